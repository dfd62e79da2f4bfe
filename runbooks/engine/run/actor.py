"""Performs a step's operation on a host, and gives every way in which it can end its words."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from runbooks.engine.model.operation import Acting, OperationFailed, Preview
from runbooks.engine.model.probe import Unknown
from runbooks.engine.model.runbook import Act, Step
from runbooks.engine.model.values import show_duration
from runbooks.engine.plan.survey import Survey
from runbooks.engine.run.acting import Interrupted, Performer, TimedOut
from runbooks.engine.run.alarm import Alarm
from runbooks.engine.run.change import Changer
from runbooks.engine.run.event import Bus
from runbooks.engine.run.outcome import Ended, Result

__all__ = ["Actor", "Attempt"]


@dataclass
class Attempt:
    """One pass of a step on a host; `acted` once a mutating command was sent."""

    step: Step
    host: str
    acted: bool = False


@dataclass
class Actor:
    """Acts for the step loop; one instance serves a whole run."""

    survey: Survey
    changer: Changer
    bus: Bus
    leave: threading.Event

    def perform(
        self,
        attempt: Attempt,
        acting: Acting,
        act: Act,
        label: str,
        preview: Preview | None = None,
    ) -> str:
        """The operation's words; Ended with the result where it did not succeed.

        `preview` goes into the intent. Raises Unreachable, Unknown, Locked too.
        """
        step = attempt.step
        performer = self._performer(attempt, act, label, preview, step.timeout)
        try:
            return performer.perform(acting)
        except OperationFailed as error:
            raise Ended(Result.FAILED, str(error) or "the operation failed") from None
        except TimedOut:
            limit = f"longer than timeout: {show_duration(step.timeout or 0)}"
            if act.operation.long:
                limit += f"; {self._cancel(attempt, act, label)}"
            raise Ended(Result.TIMEOUT, limit) from None
        except Interrupted:
            lives = ""
            if act.operation.long:
                lives = "; its job goes on, and the next run attaches to it"
            raise Ended(Result.INTERRUPTED, f"left by the operator{lives}") from None
        finally:
            attempt.acted = attempt.acted or performer.acted

    def _performer(
        self,
        attempt: Attempt,
        act: Act,
        label: str,
        preview: Preview | None,
        timeout: int | None,
    ) -> Performer:
        intent = {"operation": act.operation.name}
        if preview is not None:
            intent |= {"summary": preview.summary, "diff": preview.diff}
        return Performer(
            fleet=self.survey.fleet,
            changer=self.changer,
            bus=self.bus,
            step=label,
            host=attempt.host,
            intent=intent,
            leave=self.leave,
            deadline=time.monotonic() + timeout if timeout is not None else None,
            on_progress=Alarm(
                attempt.step.watch, lambda kind, text: self._warn(attempt, kind, text)
            ).see,
        )

    def _cancel(self, attempt: Attempt, act: Act, label: str) -> str:
        """End a job whose time is over; what came of it, in words."""
        context = self.survey.context(attempt.step, attempt.host)
        performer = self._performer(attempt, act, label, None, None)
        try:
            return performer.perform(act.operation.cancel(context))
        except (OperationFailed, Unknown) as error:
            return f"its job could not be ended ({error})"
        except Interrupted:
            return "its job is being ended, on its host"

    def _warn(self, attempt: Attempt, kind: str, text: str) -> None:
        self.bus.emit("note", step=attempt.step.id, host=attempt.host, text=text, warning=kind)
