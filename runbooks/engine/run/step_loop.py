"""One step on one host: attach, or read, decide, act, verify.

Nothing read for a plan is used here. Every branch that does not act says why, and only a
step whose `ensures` are known to be false, whose `requires` are known to be true, and whose
loss is approved as measured now, acts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runbooks.engine.binding import bind_args
from runbooks.engine.fleet import Unreachable
from runbooks.engine.inquiry import Answer
from runbooks.engine.model.check import Finding, Truth
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.operation import Acting, OperationFailed, Preview, Progress
from runbooks.engine.model.probe import Unknown
from runbooks.engine.model.runbook import Act, Estimate, Step
from runbooks.engine.plan.approval import Approval, approval_of
from runbooks.engine.plan.survey import Findings, Survey
from runbooks.engine.run.acting import Interrupted, Performer, TimedOut
from runbooks.engine.run.event import Bus
from runbooks.engine.run.outcome import Outcome, Result

__all__ = ["AskApproval", "StepLoop"]

# Asks the operator for one step and host; None where nobody can answer.
AskApproval = Callable[[Step, str, Preview], Approval | None]


class _Ended(Exception):
    """Ends the loop of one step with a result and its reason."""

    def __init__(self, result: Result, reason: str):
        super().__init__(reason)
        self.result = result
        self.reason = reason


@dataclass
class StepLoop:
    """Executes steps; one instance serves a whole run. Safe to call from several threads."""

    survey: Survey
    bus: Bus
    secrets: Mapping[str, str]
    approvals: Mapping[tuple[str, str], Sequence[Approval]]
    ask_approval: AskApproval
    stop: threading.Event
    leave: threading.Event
    sleep: Callable[[float], None] = time.sleep

    def execute(self, step: Step, host: str, *, may_act: str | None = None) -> Outcome:
        """Run the loop, again on errors that the step's `retry` names.

        `may_act` is the reason why the step must not act although it does not hold (a host
        outside --limit, a transient step under its dependent's live job), or None.
        """
        begun = time.monotonic()
        attempts = 0
        wait = float(step.retry.wait)
        while True:
            result, reason = self._attempt(step, host, may_act)
            again = (
                attempts < step.retry.times
                and step.irreversible is None
                and _error_class(result) in step.retry.when
                and not self.stop.is_set()
            )
            if not again:
                break
            attempts += 1
            self._note(step, host, f"{reason}; attempt {attempts + 1} in {wait:g}s")
            self.sleep(wait)
            wait *= step.retry.backoff
            self.survey.fleet.connect([host])
        outcome = Outcome(step.id, host, result, reason, time.monotonic() - begun)
        self.bus.emit(
            "outcome",
            step=step.id,
            host=host,
            result=result.value,
            reason=reason,
            seconds=round(outcome.seconds, 3),
        )
        return outcome

    def release(self, step: Step, host: str) -> Outcome | None:
        """Run a transient step's `release` after its last dependent; None without one."""
        if step.release is None:
            return None
        begun = time.monotonic()
        label = f"{step.id}:release"
        try:
            reason = self._act(step, host, step.release, label)
            result = Result.RAN
        except _Ended as end:
            result, reason = end.result, end.reason
        outcome = Outcome(label, host, result, reason, time.monotonic() - begun)
        self.bus.emit("outcome", step=label, host=host, result=result.value, reason=reason)
        return outcome

    def _attempt(self, step: Step, host: str, may_act: str | None) -> tuple[Result, str]:
        try:
            return self._loop(step, host, may_act)
        except _Ended as end:
            return end.result, end.reason
        except Unreachable as error:
            return Result.UNREACHABLE, error.reason
        except Unknown as error:
            return Result.UNKNOWN, error.reason
        except RunbookError as error:
            return Result.FAILED, "; ".join(item.message for item in error.diagnostics)

    def _loop(self, step: Step, host: str, may_act: str | None) -> tuple[Result, str]:
        if step.gate:
            requires = self._read(step, host, "requires").requires
            self._refuse(requires, Truth.FALSE, Result.BLOCKED)
            self._refuse(requires, Truth.UNKNOWN, Result.UNKNOWN)
            return Result.HELD, _sentences(requires, Truth.TRUE)
        attached = self._attach(step, host)
        ensures = self._read(step, host, "ensures").ensures
        self._refuse(ensures, Truth.UNKNOWN, Result.UNKNOWN)
        because = _sentences(ensures, Truth.FALSE)
        if not because:
            done = Result.RAN if attached is not None else Result.SATISFIED
            return done, _sentences(ensures, Truth.TRUE)
        if may_act is not None:
            raise _Ended(Result.BLOCKED, f"{may_act}; {because}")
        estimates = self.survey.estimates([(step, host)])
        requires = self._read(step, host, "requires", estimates).requires
        self._refuse(requires, Truth.FALSE, Result.BLOCKED)
        self._refuse(requires, Truth.UNKNOWN, Result.BLOCKED)
        if step.irreversible is not None:
            self._check_approval(step, host)
        said = self._act(step, host, _act_of(step), step.id)
        ensures = self._read(step, host, "ensures").ensures
        self._refuse(ensures, Truth.FALSE, Result.FAILED, "after it acted: ")
        self._refuse(ensures, Truth.UNKNOWN, Result.UNKNOWN, "after it acted: ")
        return Result.RAN, said or _sentences(ensures, Truth.TRUE)

    def _read(
        self,
        step: Step,
        host: str,
        part: str,
        estimates: Mapping[tuple[str, str], Answer[Estimate]] | None = None,
    ) -> Findings:
        unit = (step.id, host)
        found = self.survey.findings([(step, host)], estimates or {}, parts=[part])[unit]
        findings: tuple[Finding, ...] = getattr(found, part)
        self.bus.emit("facts", step=step.id, host=host, part=part, checks=_records(findings))
        return found

    @staticmethod
    def _refuse(
        findings: Sequence[Finding], truth: Truth, result: Result, prefix: str = ""
    ) -> None:
        if Findings(requires=tuple(findings)).truth("requires") is not truth:
            return
        deciding = [finding for finding in findings if finding.truth is truth]
        if truth is Truth.UNKNOWN and all(finding.unreachable for finding in deciding):
            result = Result.UNREACHABLE
        raise _Ended(result, prefix + _sentences(findings, truth))

    def _attach(self, step: Step, host: str) -> str | None:
        """Wait for a live job of this step; what it said, or None where none lives."""
        act = _act_of(step)
        if not act.operation.long:
            return None
        alive = self.survey.alive([(step, host)])[step.id, host]
        if alive.unknown:
            result = Result.UNREACHABLE if alive.unreachable else Result.UNKNOWN
            raise _Ended(result, f"job: {alive.unknown}")
        if not alive.value:
            return None
        context = self.survey.context(step, host)
        acting = act.operation.attach(bind_args(act.args, context.host), context)
        if acting is None:
            return None
        self._note(step, host, "its job lives; attached")
        return self._perform(step, host, acting, act, step.id)

    def _check_approval(self, step: Step, host: str) -> None:
        """Measure again, here; go on only when what is measured is what was approved."""
        answer = self.survey.previews([(step, host)])[step.id, host]
        preview = answer.value
        if preview is None:
            raise _Ended(Result.UNKNOWN, f"cannot measure what would be lost: {answer.unknown}")
        if preview.refused:
            raise _Ended(Result.FAILED, preview.summary)
        measured = approval_of(step.id, host, preview)
        given = self.approvals.get((step.id, host), ())
        refusals = [approval.refusal(measured) for approval in given]
        if None in refusals:
            return
        if refusals:
            raise _Ended(Result.APPROVAL, str(refusals[0]))
        typed = self.ask_approval(step, host, preview)
        if typed is None:
            hint = f"run with --approve {step.id}={measured}"
            raise _Ended(Result.APPROVAL, f"{preview.summary}; {hint}")

    def _act(self, step: Step, host: str, act: Act, label: str) -> str:
        context = self.survey.context(step, host)
        args = bind_args(act.args, context.host, self.secrets)
        return self._perform(step, host, act.operation.act(args, context), act, label)

    def _perform(self, step: Step, host: str, acting: Acting, act: Act, label: str) -> str:
        watch = _Watch(self, step, host)
        performer = Performer(
            fleet=self.survey.fleet,
            bus=self.bus,
            step=label,
            host=host,
            what=act.operation.name,
            leave=self.leave,
            deadline=time.monotonic() + step.timeout if step.timeout is not None else None,
            sleep=self.sleep,
            on_progress=watch.see,
        )
        try:
            return performer.perform(acting)
        except OperationFailed as error:
            raise _Ended(Result.FAILED, str(error) or "the operation failed") from None
        except TimedOut:
            raise _Ended(Result.TIMEOUT, f"timeout of {step.timeout}s") from None
        except Interrupted:
            raise _Ended(Result.INTERRUPTED, "left by the operator") from None

    def _note(self, step: Step, host: str, text: str, **data: Any) -> None:
        self.bus.emit("note", step=step.id, host=host, text=text, **data)


class _Watch:
    """Warns once when long work is late or silent; ends nothing."""

    def __init__(self, loop: StepLoop, step: Step, host: str):
        self._loop, self._step, self._host = loop, step, host
        self._begun = time.monotonic()
        self._warned: set[str] = set()

    def see(self, progress: Progress) -> None:
        late, silent = self._step.watch.late, self._step.watch.silent
        if late is not None and time.monotonic() - self._begun > late:
            self._warn("late", f"later than {late}s")
        if silent is not None and progress.beat is not None and progress.beat > silent:
            self._warn("silent", f"no progress for {progress.beat:.0f}s")

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self._loop._note(self._step, self._host, text, warning=kind)


def _act_of(step: Step) -> Act:
    if step.do is None:
        raise ValueError(f"step {step.id} is a gate")
    return step.do


def _error_class(result: Result) -> str:
    return {Result.UNREACHABLE: "unreachable", Result.TIMEOUT: "timeout"}.get(result, "")


def _sentences(findings: Sequence[Finding], truth: Truth) -> str:
    return "; ".join(finding.sentence() for finding in findings if finding.truth is truth)


def _records(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings for the journal: every check's wanted, read, where and when."""
    return [
        {
            "check": finding.check.subject,
            "host": finding.host,
            "truth": finding.truth.value,
            "wanted": finding.wanted,
            "read": finding.read,
            "at": round(finding.at, 3),
            **({"reason": finding.reason} if finding.reason else {}),
        }
        for finding in findings
    ]
