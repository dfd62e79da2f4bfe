"""One runbook on one fleet: plan, then run. Both front doors drive a session.

`load → validate → resolve → plan (facts now) → confirm → each step → report`: the doors do the
first three and the confirmation; the session does the rest.
"""

from __future__ import annotations

import getpass
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbooks.engine.fleet import Fleet
from runbooks.engine.model.check import Truth
from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.model.operation import Preview
from runbooks.engine.model.runbook import Runbook, Step
from runbooks.engine.plan.approval import Approval
from runbooks.engine.plan.plan import Plan
from runbooks.engine.plan.planner import make_plan
from runbooks.engine.plan.survey import Findings, Survey
from runbooks.engine.redact import Redactor
from runbooks.engine.registry import Registry
from runbooks.engine.run.event import Bus
from runbooks.engine.run.journal import Journal, new_run_id
from runbooks.engine.run.outcome import Outcome, Result
from runbooks.engine.run.scheduler import Scheduler
from runbooks.engine.run.step_loop import AskApproval, StepLoop
from runbooks.engine.secrets import read_secrets

__all__ = ["Options", "Report", "Session"]


def _nobody(step: Step, host: str, preview: Preview) -> Approval | None:
    """Without a terminal nobody can approve."""
    return None


@dataclass(frozen=True, slots=True)
class Options:
    """How a run goes: which hosts may change, what is approved, where journals lie."""

    project: Path
    runs: Path
    limit: Collection[str] | None = None
    approvals: Mapping[tuple[str, str], Sequence[Approval]] = field(default_factory=dict)
    ask_approval: AskApproval = _nobody
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

    def count(self, *results: Result) -> int:
        return sum(outcome.result in results for outcome in self.outcomes.values())


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
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.runbook = runbook
        self.bus = bus
        self.options = options
        # `stop`: start no further step. `leave`: wait for nothing any more; jobs go on.
        self.stop = threading.Event()
        self.leave = threading.Event()
        self._now = now
        self._sleep = sleep
        self.survey = Survey(runbook, registry, fleet, options.project, now)

    def plan(self) -> Plan:
        """Facts now, no host touched."""
        return make_plan(self.survey, limit=self.options.limit)

    def run(self) -> Report:
        """Carry the runbook out; every step is judged anew, whatever a plan said."""
        begun = time.monotonic()
        secrets = read_secrets(self.runbook.secrets, self.options.project)
        self.bus.redactor = Redactor(secrets.values())
        run_id = new_run_id(self._now())
        journal = Journal(self.options.runs / run_id)
        self.bus.add(journal)
        loop = StepLoop(
            survey=self.survey,
            bus=self.bus,
            secrets=secrets,
            approvals=self.options.approvals,
            ask_approval=self.options.ask_approval,
            stop=self.stop,
            leave=self.leave,
            sleep=self._sleep,
        )
        scheduler = Scheduler(
            self.runbook,
            execute=lambda step, host: self._execute(loop, step, host),
            release=loop.release,
            skip=self._skip,
            stop=self.stop,
        )
        self.bus.emit("run", **self._identity(run_id))
        code = ExitCode.BUG
        try:
            self.survey.fleet.connect(sorted(self.runbook.hosts | self.runbook.consulted))
            scheduler.run()
            report = Report(
                run_id, dict(scheduler.outcomes), journal.path, time.monotonic() - begun
            )
            code = report.code
            return report
        except KeyboardInterrupt:
            code = ExitCode.INTERRUPTED
            raise
        finally:
            self.bus.emit("end", run=run_id, exit=int(code), journal=str(journal.path))
            journal.close()

    def _identity(self, run_id: str) -> dict[str, Any]:
        """Who runs what, from where, for the journal."""
        return {
            "run": run_id,
            "runbook": self.runbook.name,
            "file": str(self.runbook.file),
            "digest": self.runbook.digest,
            "operator": getpass.getuser(),
            "controller": socket.gethostname(),
            "door": self.options.door,
            "hosts": sorted(self.runbook.hosts),
        }

    def _execute(self, loop: StepLoop, step: Step, host: str) -> Outcome:
        may_act = None
        if self.options.limit is not None and host not in self.options.limit:
            may_act = "outside --limit"
        if step.transient and (left := self._leave_alone(step)):
            return self._skip(step, host, Result.NOT_WANTED, left)
        return loop.execute(step, host, may_act=may_act)

    def _leave_alone(self, step: Step) -> str:
        """Why a transient step is not to be made true now, or nothing.

        Wanted while a dependent still has to run; never touched while a dependent's job
        lives (a slow health probe must not restart a server under its extraction).
        """
        steps = [self.runbook.steps[other] for other in self.runbook.dependents(step.id)]
        if not steps or any(other.gate for other in steps):
            return ""
        units = [(other, host) for other in steps for host in other.hosts]
        for (other, host), answer in self.survey.alive(units).items():
            if answer.value or answer.unknown:
                state = "lives" if answer.value else f"is unknown ({answer.unknown})"
                return f"left as it is: the job of {other} on {host} {state}"
        findings = self.survey.findings(units, {}, parts=["ensures"])
        pending = [
            other.id
            for other, host in units
            if not other.transient
            and Findings(ensures=findings[other.id, host].ensures).truth("ensures")
            is not Truth.TRUE
        ]
        return "" if pending else "transient, and no dependent has to run"

    def _skip(self, step: Step, host: str, result: Result, reason: str) -> Outcome:
        outcome = Outcome(step.id, host, result, reason)
        self.bus.emit("outcome", step=step.id, host=host, result=result.value, reason=reason)
        return outcome
