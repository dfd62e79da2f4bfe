"""pyinfra's own front door: `pyinfra inventory runbooks/extract.py`.

pyinfra runs the deploy file once for each host while it prepares; the first of these calls
loads the runbook, plans, and prints the plan, and each call registers one operation for each
step of its host, over the same full list on every host (pyinfra tells operations apart by
call-stack line and loop position).

While pyinfra executes it goes operation by operation, with all hosts waiting for each other
in between, so that two steps without a path between them would not run side by side. So the
first operation that runs walks the whole graph by the session's scheduler; the operations
after it report how their step ended. The alternatives were one operation for each level of
the graph (a 72-hour step then holds back every step of the next level, on every host), and
one operation for the whole runbook (pyinfra's table then shows one row and no steps).
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pyinfra.api.command import FunctionCommand
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host, ctx_state

from runbooks.engine.adapter.command_line import exit_with, on_interrupt
from runbooks.engine.adapter.fleet import PyinfraFleet
from runbooks.engine.adapter.runtime import is_terminal
from runbooks.engine.load import load_runbook, parse_variables
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError
from runbooks.engine.model.runbook import Step
from runbooks.engine.plan.plan import STUCK, Plan
from runbooks.engine.plan.scope import Scope
from runbooks.engine.registry import installed
from runbooks.engine.run.event import Bus
from runbooks.engine.run.outcome import Outcome, Result
from runbooks.engine.session import Options, Report, Session, ask_nobody

__all__ = ["run_runbook"]

logger = logging.getLogger(__name__)

# Seconds that a run which is left has for its last words.
_PARTING = 20.0
_doors: WeakKeyDictionary[Any, dict[Path, Door]] = WeakKeyDictionary()
_lock = threading.Lock()


class Door:
    """One runbook of one pyinfra state."""

    def __init__(self, state: Any, deploy_file: Path):
        # Views import rich; a controller that only runs plain deploys never gets here.
        from runbooks.engine.commands.opening import ask_on_terminal, runs_folder, spread_approvals
        from runbooks.engine.view.text import make_console

        self.console = make_console(stderr=True)
        project = Path(state.cwd)
        self.fleet = PyinfraFleet(state)
        registry = installed()
        given = state.inventory.get_override_data()
        runbook = load_runbook(
            deploy_file.with_suffix(".yaml"),
            registry,
            self.fleet.hosts,
            variables=parse_variables(_words(given.get("vars"))),
        )
        options = Options(
            project=project,
            runs=runs_folder(project),
            scope=Scope(limit=self._limit(state)),
            approvals=spread_approvals(_words(given.get("approve")), runbook, self.fleet),
            door="pyinfra",
            ask_approval=ask_on_terminal if is_terminal(sys.stdin) else ask_nobody,
            approve_hint="run with --data approve={}",
        )
        self.session = Session(runbook, registry, self.fleet, Bus([]), options)
        self._plan: Plan | None = None
        self._report: Report | None = None
        self._failure: RunbookError | None = None
        self._running = threading.Lock()
        self._ended = threading.Event()

    def _limit(self, state: Any) -> frozenset[str] | None:
        if not isinstance(state.limit_hosts, list):
            return None
        return frozenset(self.fleet.name_of(host) for host in state.limit_hosts)

    def plan(self) -> Plan:
        """The plan, made and printed once."""
        from runbooks.engine.view.plan import show_plan

        with self._running:
            if self._plan is None:
                self.session.unlock()
                self._plan = self.session.plan()
                show_plan(self.session.shown(self._plan), self.console)
                if self._plan.count(*STUCK):
                    exit_with(self._plan.code)
            return self._plan

    def outcome(self, step: str, host: str) -> Outcome:
        """How a step ended on a host; the first call runs the whole runbook."""
        from runbooks.engine.view.progress import RunView
        from runbooks.engine.view.recap import show_recap

        with self._running:
            if self._report is None and self._failure is None:
                self.session.bus.add(RunView(self.console))
                # The first Ctrl-C ends the run after the steps that run, the second one
                # leaves them: jobs go on.
                on_interrupt(self.session.stop.set, self._leave)
                try:
                    self._report = self.session.run()
                except RunbookError as error:
                    self._fail(error)
                except Exception:
                    # Once, and as a failure of every step: never a second run.
                    logger.exception("the engine failed")
                    fault = Diagnostic("the engine failed", where="runbook", code=ExitCode.BUG)
                    self._fail(RunbookError(fault))
                else:
                    show_recap(self._report, self.session.runbook, self.console)
                    exit_with(self._report.code)
                self._ended.set()
        if self._report is not None:
            return self._report.outcomes[step, host]
        return Outcome(step, host, Result.FAILED, str(self._failure))

    def _leave(self) -> None:
        """End the run, and wait a moment for its recap and its locks."""
        self.session.abandon()
        self._ended.wait(_PARTING)

    def _fail(self, error: RunbookError) -> None:
        from runbooks.engine.view.diagnostics import show_diagnostics

        self._failure = error
        show_diagnostics(error.diagnostics)
        exit_with(error.code)


def run_runbook(deploy_file: str) -> None:
    """Register this host's steps; see `runbooks.engine.run_runbook`."""
    state, host = _current()
    try:
        door = _door_of(state, Path(deploy_file).resolve())
        plan = door.plan()
    except RunbookError as error:
        _leave(error)
    name = door.fleet.name_of(host)
    # The same full list on every host, whatever applies to it.
    for step_id in host.loop(plan.runbook.order):
        step = plan.runbook.steps[step_id]
        if name in step.hosts:
            _step(name=step_id, door=door, step=step, host_name=name)


def _current() -> tuple[Any, Any]:
    """The state and host that pyinfra runs the deploy file for."""
    states: Any = ctx_state
    hosts: Any = ctx_host
    return states.get(), hosts.get()


def _door_of(state: Any, deploy_file: Path) -> Door:
    with _lock:
        doors = _doors.setdefault(state, {})
        if deploy_file not in doors:
            doors[deploy_file] = Door(state, deploy_file)
        return doors[deploy_file]


def _leave(error: RunbookError) -> None:
    """Print what is wrong and end pyinfra with the engine's exit code."""
    from runbooks.engine.view.diagnostics import show_diagnostics

    show_diagnostics(error.diagnostics)
    exit_with(error.code)
    raise SystemExit(int(error.code))


def _words(value: object) -> list[str]:
    """`--data approve=a=1,b=2` as a list of words; the id of a matrix step may hold commas."""
    if value is None:
        return []
    return [word for word in re.split(r",(?![^\[\]]*\])", str(value)) if word]


@operation(is_idempotent=True, _set_in_op=False)
def _step(door: Door, step: Step, host_name: str) -> Generator[FunctionCommand, None, None]:
    """One step: while preparing, yields when it would act; while executing, reports."""
    state, host = _current()
    if not state.is_executing:
        if door.plan().row(step.id, host_name).acts:
            yield FunctionCommand(_report, [True], {})
        return
    outcome = door.outcome(step.id, host_name)
    if outcome.result.good and outcome.result is not Result.RAN:
        host.noop(outcome.reason or outcome.result.value)
        return
    yield FunctionCommand(_report, [outcome.result.good], {})


def _report(state: Any, host: Any, good: bool) -> bool:
    """The result of a step that the scheduler ran; pyinfra counts it."""
    return good


def all_down(state: Any, deploy_file: Path) -> ExitCode:
    """Plan although no host answers, so that the plan says which, and how to reach it."""
    try:
        door = _door_of(state, deploy_file)
        return door.plan().code or ExitCode.UNREACHABLE
    except RunbookError as error:
        _leave(error)
        return error.code
