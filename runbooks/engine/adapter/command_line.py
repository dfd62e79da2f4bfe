"""pyinfra's own command line, made strict: `pyinfra inventory runbooks/extract.py`.

The project's `config.py` calls `install`, which pyinfra runs before it loads the inventory.
All of pyinfra_cli is private API, so each patch says what it is for, and one that finds
nothing to replace ends the run (tested with pyinfra 3.10).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click
import gevent
import pyinfra
from gevent.pool import Pool
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_state
from pyinfra.version import __version__

from runbooks.engine.adapter.connections import Connections
from runbooks.engine.adapter.hosts import model_hosts, name_of, unreachable_hint
from runbooks.engine.adapter.inventory import read_inventory, select_hosts
from runbooks.engine.adapter.runtime import on_endings, without_patching
from runbooks.engine.fleet import Unreachable
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError

# Where pyinfra's command line runs it is imported already.
with without_patching():
    from pyinfra_cli import cli as pyinfra_cli
    from pyinfra_cli import exceptions as cli_exceptions
    from pyinfra_cli.util import try_import_module_attribute

__all__ = ["exit_with", "install", "on_interrupt", "runbook_files", "unreachable_hint"]

_final: ExitCode | None = None
# For each run: how it ends in order, and how it is left at once.
_interrupt_hooks: list[tuple[Callable[[], None], Callable[[], None]]] = []
_interrupts = 0
_installed = False


class Refused(cli_exceptions.CliError):  # type: ignore[misc]
    """A RunbookError on its way through pyinfra's command line, which keeps its exit code."""

    def __init__(self, error: RunbookError):
        super().__init__(str(error))
        self.error = error
        self.exit_code = int(error.code)

    def show(self, file: Any = None) -> None:
        _show(self.error.diagnostics)


def install() -> None:
    """Patch the command line that is running; does nothing in API mode, nor a second time."""
    global _installed
    context = click.get_current_context(silent=True)
    if context is None or not pyinfra.is_cli or _installed:
        return
    _installed = True
    given = context.params
    runbooks = runbook_files(given.get("operations", ()))

    # A folder as the inventory; an unknown word and an empty inventory are errors there, and
    # so are options that would give a false success. Checked here, not in `install`: what
    # config.py raises pyinfra shows as a traceback.
    original_inventory = _original("make_inventory")

    def make_inventory(inventory: str, **options: Any) -> Any:
        _check_options(context, bool(runbooks))
        return _inventory(inventory, original_inventory, **options)

    pyinfra_cli.make_inventory = make_inventory

    # `--limit typo` is a warning, then a run of zero hosts that exits 0.
    _original("_get_inventory_pattern_matches")
    pyinfra_cli._get_inventory_pattern_matches = _matching_hosts

    # The exit code of the engine instead of 0 or 1; see `exit_with`.
    original_exit = _original("_exit")

    def leave() -> None:
        if _final:
            sys.exit(int(_final))
        original_exit()

    pyinfra_cli._exit = leave
    for name in ("WrappedError", "UnexpectedInternalError", "UnexpectedExternalError"):
        # "No hosts remaining!" and its like leave by an exception.
        error = _original(name, cli_exceptions)
        error.exit_code = property(lambda self: int(_final or ExitCode.BUG))

    # Ctrl-C exits 0; a terminal that is closed, or a kill, would leave locks behind.
    signal.signal(signal.SIGINT, _interrupted)
    on_endings(_ended)

    if runbooks:
        # A host that is down asks the operator whether to go on, or ends the run, although
        # perhaps no step needs it; the engine knows which hosts are needed.
        _original("connect_all")
        pyinfra_cli.connect_all = lambda state: _connect(state, runbooks)
        # A step that failed asks the operator too; what depends on it the engine has
        # stopped already.
        _original("_set_fail_prompts")
        pyinfra_cli._set_fail_prompts = lambda state, config: None


def exit_with(code: ExitCode) -> None:
    """Set what pyinfra exits with; the last call decides, but nothing hides an interrupt."""
    global _final
    if _final is not ExitCode.INTERRUPTED or code is ExitCode.BUG:
        _final = code


def on_interrupt(stop: Callable[[], None], leave: Callable[[], None]) -> None:
    """Call `stop` at the first Ctrl-C, and `leave` at the second one, which then leaves.

    Hooks run in greenlets of their own. `stop` makes the run end in order (an Event is
    enough); `leave` returns when what has to be recorded is recorded.
    """
    _interrupt_hooks.append((stop, leave))


def runbook_files(operations: Iterable[str]) -> list[Path]:
    """The deploy files among pyinfra's operations that have a runbook beside them."""
    files = [Path(word) for word in operations if word.endswith(".py")]
    return [file for file in files if file.with_suffix(".yaml").exists()]


def _original(name: str, module: Any = pyinfra_cli) -> Any:
    """What is about to be replaced; ends the run when pyinfra no longer has it."""
    try:
        return getattr(module, name)
    except AttributeError:
        click.echo(
            f"error: pyinfra {__version__} has no {module.__name__}.{name}, which "
            "runbooks/engine/adapter/command_line.py replaces; use pyinfra 3.10",
            err=True,
        )
        raise SystemExit(int(ExitCode.USAGE)) from None


def _check_options(context: click.Context, runbook: bool) -> None:
    """Refuse options with which pyinfra reports what is not so (pyinfra 3.10)."""
    given = context.params
    if given.get("dry") and given.get("yes"):
        source = context.get_parameter_source("yes")
        by = "PYINFRA_YES" if source is click.core.ParameterSource.ENVIRONMENT else "-y"
        _refuse(
            f"--dry and {by} together show an empty plan, whatever would change",
            f"leave {by} out of a dry run",
        )
    if not runbook:
        return
    for option, reason in (
        ("no_wait", "exits 0 although a host failed"),
        ("serial", "runs nested operations twice"),
    ):
        if given.get(option):
            flag = f"--{option.replace('_', '-')}"
            _refuse(f"pyinfra's {flag} {reason}", "a runbook orders its steps by `needs`")


def _refuse(message: str, hint: str) -> NoReturn:
    raise Refused(RunbookError.usage(message, hint=hint))


def _inventory(
    word: str,
    original: Callable[..., Any],
    *,
    override_data: Mapping[str, Any] | None = None,
    cwd: str | None = None,
    group_data_directories: Iterable[str] | None = None,
) -> Any:
    folder = Path(cwd or ".")
    try:
        # `module.attribute` stays pyinfra's own affair.
        if (
            not (folder / word).exists()
            and "@" not in word
            and try_import_module_attribute(word, raise_for_none=False) is not None
        ):
            return original(
                word,
                override_data=override_data,
                cwd=cwd,
                group_data_directories=group_data_directories,
            )
        return read_inventory(word, override_data or {}, folder, group_data_directories or ())
    except RunbookError as error:
        raise Refused(error) from error


def _matching_hosts(inventory: Any, patterns: Iterable[str], option: str) -> list[Any]:
    """The hosts that `--limit` or `--exclude` means; pyinfra's names of hosts match too."""
    try:
        hosts = model_hosts(inventory)
        chosen: set[str] = set()
        for pattern in patterns:
            exact = {name_of(host.name) for host in inventory if host.name == pattern}
            chosen |= exact or select_hosts(hosts, [pattern], where=option)
    except RunbookError as error:
        raise Refused(error) from error
    return [host for host in inventory if name_of(host.name) in chosen]


def _connect(state: Any, runbooks: list[Path]) -> None:
    """Connect side by side and go on with the hosts that answer."""
    hosts = [host for host in state.inventory if state.is_host_in_limit(host)]
    if not hosts:
        _refuse("no host is left by --limit and --exclude", "choose at least one host")
    connections = Connections()

    def connect(host: Any) -> str:
        try:
            connections.connect(host, again=True)
        except Unreachable as error:
            return error.reason
        return ""

    greenlets = [gevent.spawn(connect, host) for host in hosts]
    gevent.joinall(greenlets)
    down: dict[str, str] = {}
    for host, greenlet in zip(hosts, greenlets, strict=True):
        if reason := greenlet.get():
            down[name_of(host.name)] = reason
        else:
            state.activate_host(host)
    if down:
        _show(
            [
                Diagnostic(
                    f"does not answer: {reason}",
                    where=name,
                    hint=unreachable_hint(name),
                    code=ExitCode.UNREACHABLE,
                )
                for name, reason in down.items()
            ]
        )
    if len(down) == len(hosts):
        _leave_all_down(state, runbooks)


def _leave_all_down(state: Any, runbooks: list[Path]) -> NoReturn:
    """Nobody answers: let the engine say what that means for the steps, then leave."""
    from runbooks.engine.adapter.door import all_down

    # pyinfra's own end, so that the deploy files are at its stage.
    state.set_stage(StateStage.Prepare)
    codes = {all_down(state, file.resolve()) for file in runbooks}
    code = ExitCode.worst(codes | {ExitCode.UNREACHABLE})
    exit_with(code)
    raise SystemExit(int(code))


def _interrupted(signum: int, frame: Any) -> None:
    """The first Ctrl-C ends the run in order, the second one at once, the third in any case."""
    global _interrupts
    _interrupts += 1
    exit_with(ExitCode.INTERRUPTED)
    if _interrupts > 2:
        _exit_now()
    if not _interrupt_hooks:
        click.echo("interrupted", err=True)
        context: Any = ctx_state
        if context.isset() and context.get().initialised:
            # Disconnecting takes greenlets of this pool, which the hosts' work still fills.
            context.get().pool = Pool()
        sys.exit(int(ExitCode.INTERRUPTED))
    # A handler runs in gevent's loop, where nothing may wait for a lock.
    if _interrupts == 1:
        click.echo("interrupted: ending in order; once more to leave at once", err=True)
        for stop, _ in _interrupt_hooks:
            gevent.spawn(stop)
    else:
        gevent.spawn(_leave_runs)


def _ended(signum: int, frame: Any) -> None:
    """The terminal was closed, or somebody ends this process: leave at once, in order."""
    global _interrupts
    _interrupts = max(_interrupts, 1)
    if _interrupt_hooks:
        exit_with(ExitCode.INTERRUPTED)
        gevent.spawn(_leave_runs)
    else:
        _interrupted(signum, frame)


def _leave_runs() -> None:
    for _, leave in _interrupt_hooks:
        leave()
    _exit_now()


def _exit_now() -> NoReturn:
    """Whatever still waits for a host would keep the interpreter from ending."""
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(int(ExitCode.INTERRUPTED))


def _show(diagnostics: Iterable[Diagnostic]) -> None:
    from runbooks.engine.view.diagnostics import show_diagnostics

    show_diagnostics(list(diagnostics))
