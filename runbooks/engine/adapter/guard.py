"""A plan touches nothing: connectors that refuse while the fleet is read-only.

The engine's own protocol refuses first (`perform`). This guard stands one level lower, for an
operation that calls pyinfra's `host` by itself: while planning, running a command outside a
question or a fact, and putting or getting a file, raise ReadOnlyError.

Its limits: it cannot look into a command, so a question or a fact whose script changes
something is not caught (a test runs every registered one on a host that records changes);
sudo with a password makes pyinfra leave its helper in the host's temporary folder; and code
that opens its own connection, or changes the controller, goes by unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gevent.local import local
from pyinfra.api import facts as pyinfra_facts
from pyinfra.connectors import util

from runbooks.engine.adapter.connections import LOST, alive
from runbooks.engine.adapter.hosts import name_of
from runbooks.engine.fleet import ReadOnlyError, Unreachable

__all__ = ["FactFailed", "Guard", "guard_of"]

# Of the current greenlet: what it may do, and what must not be hidden from it.
_here = local()


class FactFailed(Exception):
    """A fact that a pyinfra operation reads could not be read."""


class Guard:
    """Watches all connectors of one pyinfra state."""

    def __init__(self, state: Any):
        self.read_only = False
        for host in state.inventory:
            self._watch(host)
        self._keep_hosts(state)
        _refuse_prompts()

    @contextmanager
    def _flag(self, name: str) -> Iterator[None]:
        before = getattr(_here, name, False)
        setattr(_here, name, True)
        try:
            yield
        finally:
            setattr(_here, name, before)

    def reading(self) -> Any:
        """Within: commands are questions."""
        return self._flag("is_reading")

    def strict(self) -> Any:
        """Within: a failing fact raises FactFailed, a lost connection Unreachable; nobody is
        asked for a password."""
        return self._flag("is_strict")

    def previewing(self) -> Any:
        """Within: read-only, whatever the fleet is."""
        return self._flag("is_previewing")

    def on(self, name: str) -> bool:
        return bool(getattr(_here, name, False))

    def refuse(self, host: Any, what: str) -> None:
        """Raise when a change is not allowed now."""
        if (self.read_only or self.on("is_previewing")) and not self.on("is_reading"):
            raise ReadOnlyError(f"{name_of(host.name)}: {what} while planning")

    def _watch(self, host: Any) -> None:
        connector = host.connector
        run: Callable[..., Any] = connector.run_shell_command
        get_fact: Callable[..., Any] = host.get_fact

        def run_shell_command(command: Any, *args: Any, **kwargs: Any) -> Any:
            self.refuse(host, f"a command was to run ({str(command)[:60]!r})")
            if not self.on("is_strict"):
                return run(command, *args, **kwargs)
            try:
                status, output = run(command, *args, **kwargs)
            except LOST as error:
                silent = "the connection was lost"
                if isinstance(error, TimeoutError):
                    silent = "time ran out"
                raise Unreachable(name_of(host.name), str(error) or silent) from error
            marker = pyinfra_facts._MISSING_COMMAND_MARKER
            if status and output.stdout_lines == [marker]:
                # pyinfra takes the fact's default for the answer, "nothing there".
                raise FactFailed(f"a program is not on the host, for: {str(command)[:200]}")
            if not status:
                _here.complaint = "\n".join(output.stderr_lines or output.stdout_lines)
            return status, output

        def reading_get_fact(*args: Any, **kwargs: Any) -> Any:
            with self.reading():
                return get_fact(*args, **kwargs)

        def refusing(method: Callable[..., Any], what: str) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                self.refuse(host, what)
                try:
                    return method(*args, **kwargs)
                except LOST as error:
                    # An OSError may be the host's own (a full disk).
                    if self.on("is_strict") and (not isinstance(error, OSError) or not alive(host)):
                        raise Unreachable(name_of(host.name), str(error) or "cut off") from error
                    raise

            return call

        connector.run_shell_command = run_shell_command
        connector.put_file = refusing(connector.put_file, "a file was to be put")
        # With sudo it copies on the host.
        connector.get_file = refusing(connector.get_file, "a file was to be fetched")
        connector.rsync = refusing(connector.rsync, "files were to be copied")
        host.get_fact = reading_get_fact

    def _keep_hosts(self, state: Any) -> None:
        """A fact that fails inside a delegated operation fails the operation; pyinfra would
        drop the host from its run, ask the operator, and go on with the fact's default."""
        fail_hosts: Callable[..., None] = state.fail_hosts

        def fail_or_raise(hosts: Any, *args: Any, **kwargs: Any) -> None:
            if hosts and self.on("is_strict"):
                complaint = getattr(_here, "complaint", "")
                raise FactFailed("a fact could not be read" + (complaint and f": {complaint}"))
            fail_hosts(hosts, *args, **kwargs)

        state.fail_hosts = fail_or_raise


def guard_of(state: Any) -> Guard:
    """The guard of a state; there is one, however many fleets use it."""
    if not hasattr(state, "eagle3_guard"):
        state.eagle3_guard = Guard(state)
    guard: Guard = state.eagle3_guard
    return guard


def _refuse_prompts() -> None:
    """pyinfra asks for a sudo password when sudo wants one; in the middle of a run, with hosts
    side by side, a prompt would wait unseen."""
    connector_util: Any = util
    getpass: Callable[..., str] = connector_util.getpass
    if getattr(getpass, "refuses", False):
        return

    def refuse(prompt: str = "", *args: Any) -> str:
        if getattr(_here, "is_strict", False):
            raise FactFailed(
                "sudo asks for a password; allow it without, or set _sudo_password in group_data"
            )
        return getpass(prompt, *args)

    refuse.refuses = True  # type: ignore[attr-defined]
    connector_util.getpass = refuse
