"""One runbook on one fleet: plan, then run. Both front doors drive a session.

`load → validate → resolve → plan (facts now) → confirm → each step → report`: the doors do the
first three and the confirmation; the session does the rest.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbooks.engine.bounds import compact_checkpoints, left_behind, name_interrupted
from runbooks.engine.fleet import Fleet
from runbooks.engine.jobs import jobs_on
from runbooks.engine.lock.keeper import Keeper
from runbooks.engine.lock.owner import operator
from runbooks.engine.lock.reach import locked_hosts
from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from runbooks.engine.model.host import Origin
from runbooks.engine.model.operation import Preview
from runbooks.engine.model.runbook import Runbook, Step
from runbooks.engine.plan.approval import Approval
from runbooks.engine.plan.masked import masked_plan
from runbooks.engine.plan.plan import Plan
from runbooks.engine.plan.planner import make_plan
from runbooks.engine.plan.saved import SavedPlan
from runbooks.engine.plan.scope import EVERYTHING, Scope
from runbooks.engine.plan.seal import project_key
from runbooks.engine.plan.staleness import moved, use_plan
from runbooks.engine.plan.survey import Survey
from runbooks.engine.plan.transient import TransientState, dependents_of, transient_state
from runbooks.engine.redact import Redactor
from runbooks.engine.registry import Registry
from runbooks.engine.run.change import Changer
from runbooks.engine.run.event import Bus
from runbooks.engine.run.identity import identity
from runbooks.engine.run.journal import Journal, new_run_id
from runbooks.engine.run.mirror import Mirror
from runbooks.engine.run.notifier import Notifier
from runbooks.engine.run.outcome import Outcome, Result
from runbooks.engine.run.scheduler import Scheduler
from runbooks.engine.run.step_loop import AskApproval, StepLoop
from runbooks.engine.secrets import read_secrets

__all__ = ["Options", "Report", "Session", "ask_nobody"]


def ask_nobody(step: Step, host: str, preview: Preview) -> Approval | None:
    """Without a terminal nobody can approve."""
    return None


@dataclass(frozen=True, slots=True)
class Options:
    """How a run goes: what may act, what is approved, where journals lie.

    `saved`: go on only where this plan still fits, and use it up.
    """

    project: Path
    runs: Path
    scope: Scope = EVERYTHING
    saved: SavedPlan | None = None
    approvals: Mapping[tuple[str, str], Sequence[Approval]] = field(default_factory=dict)
    ask_approval: AskApproval = ask_nobody
    approve_hint: str = "run with --approve {}"
    door: str = "runbook"


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did: outcomes in the order of the runbook, and where its journal lies."""

    run: str
    outcomes: Mapping[tuple[str, str], Outcome]
    journal: Path
    seconds: float

    @property
    def code(self) -> ExitCode:
        return ExitCode.worst(outcome.code for outcome in self.outcomes.values())

    @property
    def changed(self) -> int:
        """Steps in which a mutating command was sent, on each host, whatever came of it."""
        return sum(outcome.acted for outcome in self.outcomes.values())


# Seconds that notifications have to be delivered in, once a run has ended, or was left.
_PATIENCE, _PARTING = 30.0, 5.0


class Session:
    """Plans and runs one runbook; events go to the bus."""

    def __init__(
        self,
        runbook: Runbook,
        registry: Registry,
        fleet: Fleet,
        bus: Bus,
        options: Options,
        *,
        now: Callable[[], float] = time.time,
        pause: Callable[[float], object] | None = None,
    ):
        self.runbook = runbook
        self.bus = bus
        self.options = options
        # `stop`: start no further step. `leave`: wait for nothing any more; jobs go on.
        self.stop = threading.Event()
        self.leave = threading.Event()
        self._now = now
        self._pause = pause or self.stop.wait
        self._secrets: dict[str, str] | None = None
        self._scheduler: Scheduler | None = None
        self.survey = Survey(runbook, registry, fleet, options.project, now, scope=options.scope)

    def unlock(self) -> None:
        """Read the secrets, so that a missing one is told before anybody confirms anything.

        From here on the bus masks them. RunbookError (usage) names what is missing.
        """
        if self._secrets is None:
            self._secrets = read_secrets(self.runbook.secrets, self.options.project)
            self.bus.redactor = Redactor(self._secrets.values())

    def plan(self) -> Plan:
        """Facts now, no host touched."""
        return make_plan(self.survey)

    def shown(self, plan: Plan) -> Plan:
        """The plan as a view may have it, with every secret masked (`unlock` comes first)."""
        return masked_plan(plan, self.bus.redactor)

    def moved(self, plan: Plan) -> list[str]:
        """What a saved plan found and this one does not; see `staleness.moved`."""
        if self.options.saved is None:
            return []
        key = project_key(self.options.runs)
        hosts = self.survey.fleet.hosts
        return moved(self.options.saved, plan, hosts, key, self.bus.redactor)

    def abandon(self) -> None:
        """End a run at once: nothing is waited for, jobs go on."""
        self.leave.set()
        if self._scheduler is not None:
            self._scheduler.abandon()

    def run(self) -> Report:
        """Carry the runbook out; every step is judged anew, whatever a plan said."""
        begun = time.monotonic()
        self.unlock()
        origin = Origin(new_run_id(self._now()), operator(), socket.gethostname())
        run_id = origin.run
        self.survey.origin = origin
        protects = locked_hosts(self.runbook, self.survey.fleet.hosts, self.options.scope.forbids)
        mirror = Mirror(run_id, self.runbook.name, tuple(protects))
        journal = Journal(self.options.runs / run_id, mirror.copy)
        self.bus.record_to(journal)
        notifier = Notifier(self.runbook, self._secrets or {}, run_id, self.bus)
        self.bus.add(notifier)
        keeper = self._keeper(origin, protects)
        changer = Changer(self.survey.fleet, keeper, mirror)
        loop = StepLoop(
            survey=self.survey,
            changer=changer,
            bus=self.bus,
            secrets=self._secrets or {},
            approvals=self.options.approvals,
            ask_approval=self.options.ask_approval,
            approve_hint=self.options.approve_hint,
            stop=self.stop,
            leave=self.leave,
            pause=self._pause,
        )
        self._scheduler = scheduler = Scheduler(
            self.runbook,
            execute=lambda step, host: self._execute(loop, step, host),
            release=lambda step, host, acted: self._release(loop, step, host, acted),
            skip=self._skip,
            stop=self.stop,
        )
        self.bus.emit("run", **self._identity(origin))
        code = ExitCode.BUG
        try:
            needed = self.runbook.hosts | self.runbook.consulted | set(protects)
            needed |= {host for _, host in self.survey.watched()}
            down = self.survey.fleet.connect(sorted(needed))
            keeper.take_all(down)
            for host in sorted(set(down) & set(protects)):
                text = "down, so not locked; nothing on it is changed before it is"
                self.bus.emit("note", host=host, text=text)
            name_interrupted(self.options.runs, self.runbook.name, run_id, self.bus)
            compact_checkpoints(changer, self.runbook.name)
            if self.options.saved is not None:
                use_plan(
                    self.options.saved,
                    self.survey,
                    self.options.runs,
                    self.bus.redactor,
                    run_id,
                    self._now(),
                )
            scheduler.run()
            report = Report(
                run_id, dict(scheduler.outcomes), journal.path, time.monotonic() - begun
            )
            code = report.code
            return report
        except RunbookError as error:
            code = error.code
            raise
        finally:
            try:
                left = left_behind(self.survey, scheduler.outcomes, protects)
                self.bus.emit(
                    "end", run=run_id, exit=int(code), journal=str(journal.path), left=left
                )
                keeper.release_all(left, mirror.sending)
            finally:
                try:
                    # Behind the locks: nobody waits for a server that is slow to answer.
                    notifier.close(_PARTING if self.leave.is_set() else _PATIENCE)
                finally:
                    journal.close()

    def _keeper(self, origin: Origin, protects: Mapping[str, Sequence[str]]) -> Keeper:
        def on_lock(host: str, action: str, generation: int, text: str) -> None:
            self.bus.emit("lock", host=host, action=action, generation=generation, text=text)

        fleet = self.survey.fleet
        return Keeper(
            fleet,
            origin,
            self.runbook.name,
            protects,
            lambda hosts: jobs_on(self.survey.registry, fleet, self.options.project, hosts),
            on_lock,
            self._now,
        )

    def _identity(self, origin: Origin) -> dict[str, Any]:
        """Who runs what, from where, for the journal."""
        scope, saved = self.options.scope, self.options.saved
        return identity(self.runbook, self.survey.fleet.hosts, origin) | {
            "door": self.options.door,
            "limit": None if scope.limit is None else sorted(scope.limit),
            "selected": None if scope.selected is None else sorted(scope.selected),
            "plan": saved.id if saved is not None else None,
        }

    def _execute(self, loop: StepLoop, step: Step, host: str) -> Outcome:
        return loop.execute(
            step,
            host,
            forbidden=self.options.scope.forbids(step.id, host),
            wanted=(lambda: self._wanted(step)) if step.transient else None,
        )

    def _release(self, loop: StepLoop, step: Step, host: str, acted: bool) -> Outcome | None:
        if self.options.scope.forbids(step.id, host) is not None:
            return None
        return loop.release(step, host, acted)

    def _wanted(self, step: Step) -> TransientState:
        """Read now what the dependents ensure, and whether their jobs live."""
        # Those that --only left out too: their jobs must not lose it.
        survey = self.survey.whole
        units = dependents_of(survey, step)
        alive = self.survey.alive(units)
        findings = self.survey.findings(units, {}, parts=["ensures"])
        return transient_state(survey, step, findings, alive)

    def _skip(self, step: Step, host: str, result: Result, reason: str) -> Outcome:
        outcome = Outcome(step.id, host, result, reason)
        self.bus.emit("outcome", step=step.id, host=host, result=result.value, reason=reason)
        return outcome
