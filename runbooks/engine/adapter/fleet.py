"""The fleet on pyinfra: questions and changes over its connectors.

Questions to one host go in one round trip, hosts side by side. Several greenlets may use a
host at the same time (a question does not wait for a copy of three hours); only pyinfra's own
operations go one at a time on a host, because they leave notes on its host object.
"""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import gevent
from gevent.lock import BoundedSemaphore, RLock
from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.connectors.local import LocalConnector
from pyinfra.context import ctx_state

from runbooks.engine.adapter import batch, fake, writing
from runbooks.engine.adapter.connections import LOST, Connections, alive
from runbooks.engine.adapter.delegate import connector_arguments, run_delegate, would_change
from runbooks.engine.adapter.fence import fenced, refusal
from runbooks.engine.adapter.guard import FactFailed, guard_of
from runbooks.engine.adapter.hosts import is_fake, model_hosts, name_of
from runbooks.engine.adapter.runtime import is_patched
from runbooks.engine.adapter.standing import StandingByHost
from runbooks.engine.fleet import Fenced, ReadOnlyError, Unreachable
from runbooks.engine.model.diagnostic import RunbookError, did_you_mean
from runbooks.engine.model.host import Host
from runbooks.engine.model.operation import Command, Delegate, Put
from runbooks.engine.model.probe import Output, Shell

__all__ = ["PyinfraFleet"]

# Seconds beyond the scripts' own limits after which a host counts as gone.
_PATIENCE = 30
# OpenSSH allows ten sessions on a connection by default (MaxSessions).
_SESSIONS = 8


class PyinfraFleet:
    """`runbooks.engine.fleet.Fleet` over a pyinfra State.

    RunbookError (usage) when the inventory's data is malformed.
    """

    def __init__(self, state: Any):
        self.state = state
        self._hosts = model_hosts(state.inventory)
        self._pyinfra = {name_of(host.name): host for host in state.inventory}
        self._guard = guard_of(state)
        self._connections = Connections()
        self._standing = StandingByHost()
        self._told: dict[str, dict[str, Any]] = {}
        self._sessions = {name: BoundedSemaphore(_SESSIONS) for name in self._hosts}
        self._operating = {name: RLock() for name in self._hosts}
        # What fake hosts were told to change, for tests.
        self.recorded: list[tuple[str, Command | Put | Delegate]] = []
        context: Any = ctx_state
        if not context.isset():
            context.set(state)

    @property
    def hosts(self) -> Mapping[str, Host]:
        """Every host of the inventory, by name."""
        return self._hosts

    def name_of(self, host: Any) -> str:
        """The engine's name of a pyinfra host."""
        return name_of(host.name)

    def connect(self, names: Sequence[str]) -> Mapping[str, str]:
        """Connect side by side; returns the reason of each host that is down."""

        def one(name: str) -> str:
            try:
                self._connections.connect(self._host(name), again=True)
            except Unreachable as error:
                return error.reason
            return ""

        names = list(dict.fromkeys(names))
        reasons = _side_by_side([(one, (name,)) for name in names])
        return {name: reason for name, reason in zip(names, reasons, strict=True) if reason}

    def ask(self, questions: Sequence[tuple[str, Shell]]) -> list[Output | Unreachable]:
        """Answer (host, script) pairs in order: one round trip a host, hosts side by side."""
        by_host: dict[str, list[int]] = {}
        for index, (name, _) in enumerate(questions):
            by_host.setdefault(name, []).append(index)
        parts = [(name, [questions[i][1] for i in indices]) for name, indices in by_host.items()]
        answered = _side_by_side([(self._ask_host, part) for part in parts])
        answers: dict[int, Output | Unreachable] = {}
        for indices, outputs in zip(by_host.values(), answered, strict=True):
            answers.update(zip(indices, outputs, strict=True))
        return [answers[index] for index in range(len(questions))]

    def perform(self, host: str, action: Command | Put | Delegate, fence: str = "") -> Output:
        """Change the host: see `Fleet.perform`. A fake host has no shell that could refuse."""
        if self._guard.read_only:
            what = fake.change_text(action).splitlines()[0].removeprefix("#! ")
            raise ReadOnlyError(f"{host}: a change was to be made while planning: {what}")
        target = self._host(host)
        self._connections.connect(target)
        if is_fake(target):
            if (answer := fake.lock_answer(action)) is not None:
                return answer
            self.recorded.append((host, action))
            return self._fake(target, fake.change_text(action))
        match action:
            case Command():
                return self._change(target, batch.command_task(action), fence)
            case Put():
                return self._put(target, action, fence)
            case Delegate():

                def run(host: Any, task: batch.Task, arguments: dict[str, Any]) -> Output:
                    return self._change_as_told(host, task, arguments, fence)

                with self._operating[host]:
                    return run_delegate(self.state, target, self._guard, action, run)

    def would_change(self, host: str, delegate: Delegate) -> bool:
        """Whether a pyinfra operation would change the host now; changes nothing.

        Raises Unknown when it cannot be known, Unreachable. A fake host has nothing to
        compare with and would always change.
        """
        target = self._host(host)
        self._connections.connect(target)
        if is_fake(target):
            return True
        with self._operating[host]:
            return would_change(self.state, target, self._guard, delegate)

    def read_only(self, on: bool) -> None:
        """While on, `perform` raises and connectors refuse; a plan touches nothing."""
        self._guard.read_only = on

    def _host(self, name: str) -> Any:
        if name not in self._pyinfra:
            raise RunbookError.usage(
                f"'{name}' is no host of the inventory", hint=did_you_mean(name, self._pyinfra)
            )
        return self._pyinfra[name]

    def _ask_host(self, name: str, shells: Sequence[Shell]) -> list[Output | Unreachable]:
        host = self._host(name)
        try:
            self._connections.connect(host)
            with self._guard.reading():
                if is_fake(host):
                    return [self._fake(host, fake.question_text(shell)) for shell in shells]
                tasks = [batch.shell_task(shell) for shell in shells]
                outputs, reason = self._send(host, tasks, self._arguments(host))
        except Unreachable as error:
            return [error for _ in shells]
        lost = Unreachable(name, reason)
        return [lost if output is None else output for output in outputs]

    def _change(self, host: Any, task: batch.Task, fence: str) -> Output:
        return self._change_as_told(host, task, self._arguments(host), fence)

    def _change_as_told(
        self, host: Any, task: batch.Task, arguments: dict[str, Any], fence: str
    ) -> Output:
        """Run one changing task with these connector arguments, behind the fence."""
        outputs, reason = self._send(host, [task], arguments, changing=True, fence=fence)
        if outputs[0] is None:
            raise Unreachable(name_of(host.name), f"{reason}; how far it came is not known")
        return outputs[0]

    def _put(self, host: Any, put: Put, fence: str) -> Output:
        temp = writing.temporary(put, secrets.token_hex(6))
        # A secret never passes through another file of another mode, as file transfer
        # with sudo does.
        if put.secret or len(put.content) <= writing.INLINE_LIMIT:
            script = writing.inline_script(put, temp)
            # Whether it is secret or not: no file's content is anybody's business in an argv.
            task = batch.Task(script=script, last=True, hidden=True)
            return self._change(host, task, fence)
        prepared = self._change(host, batch.Task(script=writing.prepare_script(put, temp)), fence)
        if prepared.exit != 0:
            return prepared
        try:
            arguments = self._arguments(host)
            for key in ("_stdin", "_success_exit_codes", "_timeout", "_get_pty"):
                arguments.pop(key, None)
            with self._guard.strict():
                host.connector.put_file(BytesIO(put.content), temp, **arguments)
        except Unreachable:
            self._connections.lost(host)
            raise
        except OSError as error:
            self._change(host, batch.Task(argv=("rm", "-f", "--", temp)), fence)
            return Output(1, stderr=str(error))
        script = f"trap 'rm -f -- \"$EAGLE3_TEMP\"' EXIT\n{writing.finish_script(put, temp)}"
        return self._change(host, batch.Task(script=script, env={"EAGLE3_TEMP": temp}), fence)

    def _arguments(self, host: Any) -> dict[str, Any]:
        """How commands run on a host that is told nothing else; a copy. pyinfra takes more than
        half a millisecond to say so, each time."""
        name = name_of(host.name)
        if name not in self._told:
            self._told[name] = connector_arguments(self.state, host, {})
        return dict(self._told[name])

    def _fake(self, host: Any, text: str) -> Output:
        return fake.output_of(*host.connector.run_shell_command(StringCommand(text)))

    def _send(
        self,
        host: Any,
        tasks: Sequence[batch.Task],
        arguments: dict[str, Any],
        *,
        changing: bool = False,
        fence: str = "",
    ) -> tuple[list[Output | None], str]:
        """One round trip; None for tasks without a whole answer, and the reason of those.

        A change whose time ran out is 124, not a host that is gone: the program ended, but
        what it left behind holds its output.
        """
        name = name_of(host.name)
        if threading.current_thread() is not threading.main_thread() and not is_patched():
            raise RuntimeError("threads use a fleet only after adapter.runtime.patch()")
        token = secrets.token_hex(6)
        preamble = batch.environment(self._hosts[name])
        if fence:
            preamble += "\n" + fenced(fence, token)
        limits = [task.timeout for task in tasks]
        patience: float | None = None
        if all(limit is not None for limit in limits):
            patience = sum(limit + 10 for limit in limits if limit is not None) + _PATIENCE
        told = self._by_agent(host, tasks, arguments, patience, changing, fence)
        if told is not None:
            return told
        text = batch.compose(tasks, preamble, token)
        arguments = arguments | {
            "_shell_executable": "sh",
            "_stdin": [text],
            "_timeout": patience,
            "_env": None,
            "_chdir": None,
            "_success_exit_codes": None,
        }
        begun = time.monotonic()
        try:
            with self._sessions[name], self._guard.strict():
                _, output = host.connector.run_shell_command(
                    _launcher(host),
                    print_output=False,
                    print_input=False,
                    **arguments,
                )
        except FactFailed as error:
            raise Unreachable(name, str(error)) from error
        except Unreachable as error:
            self._connections.lost(host)
            if isinstance(error.__cause__, TimeoutError):
                reason = f"no answer within {patience:.0f} s" if patience else "no answer"
                if changing and patience is not None:
                    return [Output(124, stderr=reason) for _ in tasks], ""
                raise Unreachable(name, reason) from error
            raise
        if fence and (refused := refusal(output.stdout_lines, token)) is not None:
            raise Fenced(name, refused)
        outputs = batch.parse(output.stdout_lines, tasks, token, time.monotonic() - begun)
        if None not in outputs:
            return outputs, ""
        said = [line for line in output.stderr_lines if line.strip()]
        if all(answer is None for answer in outputs) and said:
            return outputs, said[-1].strip()
        return outputs, "the connection was cut before the answer was whole"

    def _by_agent(
        self,
        host: Any,
        tasks: Sequence[batch.Task],
        arguments: dict[str, Any],
        patience: float | None,
        changing: bool,
        fence: str,
    ) -> tuple[list[Output | None], str] | None:
        """One round trip by the program that stands on the host; None where none can.

        Never again by another way after it began: a change may have been made.
        """
        name = name_of(host.name)
        token = secrets.token_hex(6)
        self._guard.refuse(host, "a command was to run")
        try:
            with self._sessions[name]:
                answers = self._standing.ask(
                    host,
                    arguments,
                    batch.environment(self._hosts[name]),
                    tasks,
                    patience,
                    fenced(fence, token) if fence else "",
                )
        except TimeoutError as error:
            reason = f"no answer within {patience:.0f} s" if patience else "no answer"
            if changing and patience is not None:
                return [Output(124, stderr=reason) for _ in tasks], ""
            raise Unreachable(name, reason) from error
        except LOST as error:
            if not alive(host):
                self._connections.lost(host)
            return [None for _ in tasks], str(error) or "the connection was cut"
        if answers is None:
            return None
        if fence:
            said = answers[0].stdout.decode(errors="replace").split("\n")
            if (refused := refusal(said, token)) is not None:
                raise Fenced(name, refused)
        return list(answers), ""


def _launcher(host: Any) -> StringCommand:
    """The shell on the host that reads the script."""
    if isinstance(host.connector, LocalConnector) and shutil.which("setsid"):
        # Ctrl-C reaches every process of the terminal's session: what runs on this machine
        # would be interrupted in the middle, which over SSH it is not.
        return StringCommand("exec", "setsid", "sh", "-c", QuoteString(batch.LAUNCH))
    return StringCommand(batch.LAUNCH)


def _side_by_side(calls: Sequence[tuple[Any, tuple[Any, ...]]]) -> list[Any]:
    """Results in order; a single call needs no greenlet."""
    if len(calls) == 1:
        function, arguments = calls[0]
        return [function(*arguments)]

    def call(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, Exception | None]:
        # gevent prints the traceback of an exception that leaves a greenlet.
        try:
            return function(*arguments), None
        except Exception as error:
            return None, error

    greenlets = [gevent.spawn(call, *one) for one in calls]
    gevent.joinall(greenlets)
    results = [greenlet.get() for greenlet in greenlets]
    for _, error in results:
        if error is not None:
            raise error
    return [result for result, _ in results]
