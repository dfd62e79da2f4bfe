"""Performs the actions of an operation, one by one, with the intent journalled first."""

from __future__ import annotations

import math
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from runbooks.engine.fleet import Fleet, Unreachable
from runbooks.engine.lock.keeper import Locked
from runbooks.engine.model.operation import (
    Acting,
    Action,
    Command,
    Delegate,
    Progress,
    Put,
    Wait,
)
from runbooks.engine.model.probe import Output, Shell
from runbooks.engine.run.event import Bus

__all__ = ["Interrupted", "Performer", "TimedOut"]

# How much of a command's output the journal keeps.
_TAIL = 4000


class Changes(Protocol):
    """What changes hosts: `change.Changer` behind locks."""

    def hold(self, host: str) -> None: ...

    def perform(self, host: str, action: Command | Put | Delegate) -> Output: ...


class Interrupted(Exception):
    """The operator asked to leave; a job goes on, on its host."""


class TimedOut(Exception):
    """The step's time ran out."""


@dataclass
class Performer:
    """Runs one operation's `act` on one host.

    The intent (`intent` says what it holds) is on the disk before the first mutating action,
    and only then. `deadline` is in seconds of the monotonic clock, None without a timeout.
    """

    fleet: Fleet
    changer: Changes
    bus: Bus
    step: str
    host: str
    intent: Mapping[str, Any]
    leave: threading.Event
    deadline: float | None = None
    sleep: Callable[[float], None] = time.sleep
    on_progress: Callable[[Progress], None] | None = None
    acted: bool = field(default=False, init=False)

    def perform(self, acting: Acting) -> str:
        """The operation's outcome text.

        Raises OperationFailed, Unreachable, TimedOut, Interrupted, Locked.
        """
        output: Output | None = None
        error: Unreachable | None = None
        while True:
            try:
                if error is not None:
                    action = acting.throw(error)
                elif output is None:
                    action = next(acting)
                else:
                    action = acting.send(output)
            except StopIteration as stop:
                return str(stop.value or "")
            output, error = None, None
            try:
                output = self._one(action)
            except Unreachable as problem:
                error = problem

    def _one(self, action: Action) -> Output:
        match action:
            case Shell():
                answer = self.fleet.ask([(action.host or self.host, action)])[0]
                if isinstance(answer, Unreachable):
                    raise answer
                return answer
            case Wait():
                self._wait(action.seconds)
                return Output(0)
            case Progress():
                self._report(action)
                return Output(0)
            case Command() | Put() | Delegate():
                return self._mutate(action)

    def _wait(self, seconds: float) -> None:
        """Sleep in short pieces, so that an interrupt is heard."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.leave.is_set():
                raise Interrupted
            if self.deadline is not None and time.monotonic() >= self.deadline:
                raise TimedOut
            self.sleep(min(left, 0.25))

    def _report(self, progress: Progress) -> None:
        if self.on_progress is not None:
            self.on_progress(progress)
        data: dict[str, Any] = {"text": progress.text}
        for name in ("done", "total", "unit", "eta", "beat"):
            value = getattr(progress, name)
            if value not in (None, ""):
                data[name] = value
        self.bus.emit("progress", step=self.step, host=self.host, **data)

    def _mutate(self, action: Command | Put | Delegate) -> Output:
        left = self._time_left()
        bounded = False
        if isinstance(action, Command) and left is not None:
            bounded = action.timeout is None or left <= action.timeout
            action = replace(action, timeout=left if bounded else action.timeout)
        first = not self.acted
        if first:
            # A host that is down already was not touched: no intent.
            if reason := self.fleet.connect([self.host]).get(self.host):
                raise Unreachable(self.host, reason)
            self.changer.hold(self.host)
            self.bus.emit("intent", step=self.step, host=self.host, **self.intent)
            self.acted = True
        begun = time.monotonic()
        try:
            output = self.changer.perform(self.host, action)
        except Locked:
            # Refused by the host before it did anything.
            self.acted = not first
            raise
        self.bus.emit(
            "command",
            step=self.step,
            host=self.host,
            command=describe(action),
            exit=output.exit,
            seconds=round(time.monotonic() - begun, 3),
            stdout=self._tail(output.stdout.decode(errors="replace")),
            stderr=self._tail(output.stderr),
        )
        if output.exit == 124 and bounded:
            raise TimedOut
        return output

    def _tail(self, text: str) -> str:
        """The end of an output. Masked before it is cut: half a secret matches nothing."""
        return self.bus.redactor.text(text)[-_TAIL:]

    def _time_left(self) -> int | None:
        """Whole seconds until the deadline, at least one; TimedOut behind it."""
        if self.deadline is None:
            return None
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimedOut
        return math.ceil(left)


def describe(action: Command | Put | Delegate) -> str:
    """The action on one line, without environment or content: there secrets may stand."""
    match action:
        case Command():
            return action.label or (shlex.join(action.argv) if action.argv else "script")
        case Put():
            return f"write {action.path} ({len(action.content)} B, mode {action.mode})"
        case Delegate():
            name = getattr(action.operation, "__name__", "operation")
            return action.label or f"pyinfra {name}"
