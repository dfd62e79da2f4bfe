"""One step on one host: attach, or read, decide, act, verify.

Nothing read for a plan is used here. Every branch that does not act says why, and only a
step whose `ensures` are known to be false, whose `requires` are known to be true, and whose
loss is approved as measured now, acts.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runbooks.engine.binding import bind_args
from runbooks.engine.fleet import Unreachable
from runbooks.engine.inquiry import Answer
from runbooks.engine.lock.keeper import Locked
from runbooks.engine.model.check import Finding, Truth, out_of_reach, record, sentences
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.operation import Preview
from runbooks.engine.model.probe import Unknown
from runbooks.engine.model.runbook import Act, Estimate, Step
from runbooks.engine.plan.approval import Approval, approval_of, refusal_of
from runbooks.engine.plan.checkpoint import checkpoint_line
from runbooks.engine.plan.scope import refusal
from runbooks.engine.plan.survey import Findings, Survey, act_of, readable_together, truth_of
from runbooks.engine.plan.transient import TransientState, Want, dependents_of, living_job
from runbooks.engine.run.actor import Actor, Attempt
from runbooks.engine.run.change import Changer
from runbooks.engine.run.event import Bus
from runbooks.engine.run.outcome import Ended, Outcome, Result
from runbooks.engine.run.scheduler import release_of

__all__ = ["AskApproval", "StepLoop"]

# Characters of an outcome's reason.
_LONGEST = 4000

# Asks the operator for one step and host; None where nobody can answer.
AskApproval = Callable[[Step, str, Preview], Approval | None]


Body = Callable[[Attempt], tuple[Result, str]]


@dataclass
class StepLoop:
    """Executes steps; one instance serves a whole run. Safe to call from several threads.

    `pause` waits between attempts and is cut short by `stop`; `leave` ends the wait for jobs.
    """

    survey: Survey
    changer: Changer
    bus: Bus
    secrets: Mapping[str, str]
    approvals: Mapping[tuple[str, str], Sequence[Approval]]
    ask_approval: AskApproval
    approve_hint: str
    stop: threading.Event
    leave: threading.Event
    pause: Callable[[float], object]
    actor: Actor = field(init=False)

    def __post_init__(self) -> None:
        self.actor = Actor(self.survey, self.changer, self.bus, self.leave)

    def execute(
        self,
        step: Step,
        host: str,
        *,
        forbidden: str | None = None,
        wanted: Callable[[], TransientState] | None = None,
    ) -> Outcome:
        """Run the loop, again on errors that the step's `retry` names.

        `forbidden` is why the step must not act even where it does not hold (a host outside
        --limit), or None. `wanted` says of a transient step whether it is to hold now.
        """
        begun = time.monotonic()
        attempts = 0
        wait = float(step.retry.wait)
        acted = False
        while True:
            attempt = Attempt(step, host)
            result, reason = self._guarded(attempt, lambda one: self._loop(one, forbidden, wanted))
            acted = acted or attempt.acted
            if not self._again(step, result, attempts, attempt):
                break
            attempts += 1
            self._note(step, host, f"{reason}; attempt {attempts + 1} in {wait:g}s")
            self.pause(wait)
            if self.stop.is_set():
                break
            wait *= step.retry.backoff
            self.survey.fleet.connect([host])
        return self._outcome(step.id, host, result, reason, begun, acted)

    def release(self, step: Step, host: str, acted: bool) -> Outcome | None:
        """Run a transient step's `release`, unless a dependent's job lives or may live.

        `acted`: this run began to make the step hold, so it is released even where it does
        not hold. None where there was nothing to do.
        """
        begun = time.monotonic()
        attempt = Attempt(step, host)
        result, reason = self._guarded(attempt, lambda one: self._release(one, acted))
        if result is Result.SATISFIED:
            return None
        return self._outcome(release_of(step.id), host, result, reason, begun, attempt.acted)

    def _again(self, step: Step, result: Result, attempts: int, attempt: Attempt) -> bool:
        """Whether `retry` allows another attempt.

        Not after a mutating command was sent and its host went away: it may still run there.
        One whose time ran out was ended, and a job is found and attached to.
        """
        long = step.do is not None and step.do.operation.long
        return (
            attempts < step.retry.times
            and step.irreversible is None
            and _error_class(result) in step.retry.when
            and (long or not attempt.acted or result is Result.TIMEOUT)
            and not self.stop.is_set()
        )

    def _outcome(
        self, label: str, host: str, result: Result, reason: str, begun: float, acted: bool
    ) -> Outcome:
        # Masked here, since views print outcomes that never passed the bus.
        outcome = Outcome(
            label,
            host,
            result,
            _shortened(self.bus.redactor.text(reason)),
            time.monotonic() - begun,
            acted,
        )
        self.bus.emit(
            "outcome",
            step=label,
            host=host,
            result=result.value,
            reason=outcome.reason,
            acted=acted,
            seconds=round(outcome.seconds, 3),
        )
        return outcome

    def _guarded(self, attempt: Attempt, body: Body) -> tuple[Result, str]:
        """Every way in which a step can end, as a result with its reason."""
        try:
            return body(attempt)
        except Ended as end:
            return end.result, end.reason
        except Unreachable as error:
            told = "after it began to act: " if attempt.acted else ""
            return Result.UNREACHABLE, told + error.reason
        except Locked as error:
            hint = f"; {error.hint}" if error.hint else ""
            return Result.LOCKED, error.reason + hint
        except Unknown as error:
            return Result.UNKNOWN, error.reason
        except RunbookError as error:
            return Result.FAILED, "; ".join(item.message for item in error.diagnostics)
        except Exception as error:
            # A fault in the code of an operation must not take the other hosts with it.
            trace = traceback.format_exc()
            self._note(attempt.step, attempt.host, "a fault in the code", traceback=trace)
            return Result.BUG, f"{type(error).__name__}: {error} (the journal has the traceback)"

    def _unwanted(
        self, attempt: Attempt, state: TransientState, forbidden: str | None
    ) -> tuple[Result, str]:
        """Leave it, or release what an earlier run could not release."""
        if state.want is Want.LEFT:
            return Result.LEFT, state.reason
        if state.want is Want.UNKNOWN:
            return Result.UNKNOWN, state.reason
        if attempt.step.release is not None and forbidden is None:
            result, said = self._release(attempt, acted=False)
            if result is not Result.SATISFIED:
                return result, said
        return Result.NOT_WANTED, f"transient, and {state.reason}"

    def _release(self, attempt: Attempt, acted: bool) -> tuple[Result, str]:
        step, host = attempt.step, attempt.host
        self.changer.hold(host)
        alive = self.survey.alive(dependents_of(self.survey.whole, step))
        if (state := living_job(alive)) is not None:
            result = Result.LEFT if state.want is Want.LEFT else Result.UNKNOWN
            return result, f"not released: {state.reason}"
        if step.release is None:
            return Result.SATISFIED, ""
        if not acted:
            ensures = self._read(step, host, "ensures").ensures
            self._refuse(ensures, Truth.UNKNOWN, Result.UNKNOWN)
            if sentences(ensures, Truth.FALSE):
                return Result.SATISFIED, ""
        said = self._act(attempt, step.release, release_of(step.id))
        ensures = self._read(step, host, "ensures").ensures
        if truth_of(ensures) is Truth.TRUE:
            return Result.FAILED, f"released, but it still holds: {sentences(ensures, Truth.TRUE)}"
        return Result.RELEASED, said

    def _loop(
        self,
        attempt: Attempt,
        forbidden: str | None,
        wanted: Callable[[], TransientState] | None,
    ) -> tuple[Result, str]:
        step, host = attempt.step, attempt.host
        if wanted is not None and (state := wanted()).want is not Want.WANTED:
            return self._unwanted(attempt, state, forbidden)
        if step.gate:
            requires = self._read(step, host, "requires").requires
            self._refuse(requires, Truth.FALSE, Result.BLOCKED)
            self._refuse(requires, Truth.UNKNOWN, Result.UNKNOWN)
            return Result.HELD, sentences(requires, Truth.TRUE)
        if forbidden is None:
            self.changer.hold(host)
        attached = self._attach(attempt)
        # Where requires cost no more than a look, they are read with the ensures.
        together = forbidden is None and readable_together(step)
        parts = ("ensures", "requires") if together else ("ensures",)
        preview: Answer[Preview] | None = None
        if together and act_of(step).operation.glance:
            found, preview = self.survey.glance(step, host, parts)
            self._tell(step, host, found, parts)
        else:
            found = self._read(step, host, *parts)
        self._refuse(found.ensures, Truth.UNKNOWN, Result.UNKNOWN)
        because = sentences(found.ensures, Truth.FALSE)
        if not because:
            self._checkpoint(step, host, found.ensures)
            if attached is not None:
                return Result.RAN, attached or sentences(found.ensures, Truth.TRUE)
            return Result.SATISFIED, sentences(found.ensures, Truth.TRUE)
        if forbidden is not None:
            raise Ended(Result.BLOCKED, refusal(step.id, forbidden, because))
        # The operator may take any time to answer, so requires are read behind the question,
        # and what would be lost is measured once more.
        approved = self._approved(step, host) if step.irreversible is not None else ()
        if not together:
            estimates = self.survey.estimates([(step, host)])
            found = self._read(step, host, "requires", estimates=estimates)
        self._refuse(found.requires, Truth.FALSE, Result.BLOCKED)
        self._refuse(found.requires, Truth.UNKNOWN, Result.BLOCKED)
        if preview is None:
            preview = self._previewed(step, host)
        if step.irreversible is not None:
            self._check_approval(step, host, approved, preview)
        said = self._act(attempt, act_of(step), step.id, preview.value)
        ensures = self._read(step, host, "ensures").ensures
        self._refuse(ensures, Truth.FALSE, Result.FAILED, "after it acted: ")
        self._refuse(ensures, Truth.UNKNOWN, Result.UNKNOWN, "after it acted: ")
        self._checkpoint(step, host, ensures)
        return Result.RAN, said or sentences(ensures, Truth.TRUE)

    def _checkpoint(self, step: Step, host: str, ensures: Sequence[Finding]) -> None:
        """What holds now, for its host: drift is what differs from it later."""
        if self.survey.origin is None:
            return
        line = checkpoint_line(
            step.id,
            host,
            ensures,
            run=self.survey.origin.run,
            at=self.survey.now(),
            redactor=self.bus.redactor,
        )
        self.changer.mirror.checkpoint(host, line)

    def _read(
        self,
        step: Step,
        host: str,
        *parts: str,
        estimates: Mapping[tuple[str, str], Answer[Estimate]] | None = None,
    ) -> Findings:
        """Read the checks of these parts, in one round trip where facts allow it."""
        unit = (step.id, host)
        found = self.survey.findings([(step, host)], estimates or {}, parts=parts)[unit]
        self._tell(step, host, found, parts)
        return found

    def _tell(self, step: Step, host: str, found: Findings, parts: Sequence[str]) -> None:
        """Record what was wanted and read."""
        for part in parts:
            findings: tuple[Finding, ...] = getattr(found, part)
            if findings:
                self.bus.emit(
                    "facts",
                    step=step.id,
                    host=host,
                    part=part,
                    checks=[record(finding) for finding in findings],
                )

    @staticmethod
    def _refuse(
        findings: Sequence[Finding], truth: Truth, result: Result, prefix: str = ""
    ) -> None:
        if truth_of(findings) is not truth:
            return
        if truth is Truth.UNKNOWN and out_of_reach(findings):
            result = Result.UNREACHABLE
        raise Ended(result, prefix + sentences(findings, truth))

    def _attach(self, attempt: Attempt) -> str | None:
        """Wait for a live job of this step; what it said, or None where none lives."""
        step, host = attempt.step, attempt.host
        act = act_of(step)
        if not act.operation.long:
            return None
        alive = self.survey.alive([(step, host)])[step.id, host]
        if not alive.known:
            result = Result.UNREACHABLE if alive.unreachable else Result.UNKNOWN
            raise Ended(result, f"job: {alive.unknown}")
        if not alive.value:
            return None
        context = self.survey.context(step, host)
        acting = act.operation.attach(bind_args(act.args, context.host), context)
        if acting is None:
            return None
        self._note(step, host, "its job lives; attached")
        return self.actor.perform(attempt, acting, act, step.id)

    def _previewed(self, step: Step, host: str) -> Answer[Preview]:
        """What the operation would change now: the journal's diff, and what is measured."""
        return self.survey.previews([(step, host)])[step.id, host]

    def _approved(self, step: Step, host: str) -> Sequence[Approval]:
        """What the operator gave beforehand, or types now."""
        if given := self.approvals.get((step.id, host), ()):
            return given
        preview = _measured(self._previewed(step, host))
        typed = self.ask_approval(step, host, preview)
        if typed is None:
            hint = self.approve_hint.format(f"{step.id}={approval_of(step.id, host, preview)}")
            raise Ended(Result.APPROVAL, f"{preview.summary}; {hint}")
        return (typed,)

    def _check_approval(
        self, step: Step, host: str, approved: Sequence[Approval], answer: Answer[Preview]
    ) -> None:
        """Go on only when what is measured now is what was approved."""
        now = approval_of(step.id, host, _measured(answer))
        if (refusal := refusal_of(approved, now)) is not None:
            hint = self.approve_hint.format(f"{step.id}={now}")
            raise Ended(Result.APPROVAL, f"{refusal}; {hint}")

    def _act(self, attempt: Attempt, act: Act, label: str, preview: Preview | None = None) -> str:
        # Until it has ended well, nothing is known of what it ensures.
        self._checkpoint(attempt.step, attempt.host, ())
        context = self.survey.context(attempt.step, attempt.host)
        args = bind_args(act.args, context.host, self.secrets)
        acting = act.operation.act(args, context)
        return self.actor.perform(attempt, acting, act, label, preview)

    def _note(self, step: Step, host: str, text: str, **data: Any) -> None:
        self.bus.emit("note", step=step.id, host=host, text=text, **data)


def _measured(answer: Answer[Preview]) -> Preview:
    """What would be lost, measured here and now; ends the step where it cannot be."""
    if answer.value is None:
        raise Ended(Result.UNKNOWN, f"cannot measure what would be lost: {answer.unknown}")
    if answer.value.refused:
        raise Ended(Result.FAILED, answer.value.summary)
    return answer.value


def _shortened(text: str) -> str:
    """A reason fit for a terminal; what a program said at length is in the journal."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}… ({len(text) - _LONGEST:,} more characters)"


def _error_class(result: Result) -> str:
    return {Result.UNREACHABLE: "unreachable", Result.TIMEOUT: "timeout"}.get(result, "")
