"""How a step ended on a host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from runbooks.engine.model.diagnostic import ExitCode

__all__ = ["Outcome", "Result"]


class Result(Enum):
    """The word of an outcome, in the order of a recap."""

    SATISFIED = "satisfied"  # ensures held before; nothing was done
    HELD = "held"  # a gate
    RAN = "ran"  # acted, and ensures hold after
    NOT_WANTED = "not wanted"  # transient without a dependent that has to run
    BLOCKED = "blocked"  # requires did not hold; nothing touched
    APPROVAL = "waits for approval"
    UNKNOWN = "unknown"  # an ensures could not be known; nothing touched
    FAILED = "failed"
    TIMEOUT = "timed out"
    UNREACHABLE = "unreachable"
    SKIPPED = "skipped"  # a step that it waits for did not succeed
    INTERRUPTED = "interrupted"

    @property
    def good(self) -> bool:
        return self in _GOOD


_GOOD = frozenset({Result.SATISFIED, Result.HELD, Result.RAN, Result.NOT_WANTED})
_CODES = {
    Result.BLOCKED: ExitCode.PRECONDITION,
    Result.APPROVAL: ExitCode.APPROVAL,
    Result.UNKNOWN: ExitCode.FAILED,
    Result.FAILED: ExitCode.FAILED,
    Result.TIMEOUT: ExitCode.TIMEOUT,
    Result.UNREACHABLE: ExitCode.UNREACHABLE,
    Result.INTERRUPTED: ExitCode.INTERRUPTED,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A step's end on one host: the word, why, and how long it took (seconds)."""

    step: str
    host: str
    result: Result
    reason: str = ""
    seconds: float = 0.0
    stale: bool = False

    @property
    def code(self) -> ExitCode:
        """A skipped step has no code of its own: what it waited for has one."""
        return _CODES.get(self.result, ExitCode.DONE)
