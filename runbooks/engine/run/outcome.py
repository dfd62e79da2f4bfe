"""How a step ended on a host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from runbooks.engine.model.diagnostic import ExitCode

__all__ = ["Ended", "Outcome", "Result"]


class Result(Enum):
    """The word of an outcome, in the order of a recap."""

    SATISFIED = "satisfied"  # ensures held before; nothing was done
    HELD = "held"  # a gate
    RAN = "ran"  # acted, and ensures hold after
    NOT_WANTED = "not wanted"  # transient without a dependent that has to run
    LEFT = "left as it is"  # transient, and the job of a dependent lives
    RELEASED = "released"  # transient, ended after its last dependent
    BLOCKED = "blocked"  # requires did not hold; nothing touched
    APPROVAL = "waits for approval"
    UNKNOWN = "unknown"  # an ensures could not be known
    BUG = "bug"  # the engine or an operation failed in its own code
    FAILED = "failed"
    TIMEOUT = "timed out"
    UNREACHABLE = "unreachable"
    LOCKED = "locked"  # the host is another run's, or became it meanwhile
    SKIPPED = "skipped"  # a step that it waits for did not succeed
    INTERRUPTED = "interrupted"

    @property
    def good(self) -> bool:
        return self in _GOOD


_GOOD = frozenset(
    {
        Result.SATISFIED,
        Result.HELD,
        Result.RAN,
        Result.NOT_WANTED,
        Result.LEFT,
        Result.RELEASED,
    }
)
_CODES = {
    Result.BLOCKED: ExitCode.PRECONDITION,
    Result.APPROVAL: ExitCode.APPROVAL,
    Result.UNKNOWN: ExitCode.FAILED,
    Result.BUG: ExitCode.BUG,
    Result.FAILED: ExitCode.FAILED,
    Result.TIMEOUT: ExitCode.TIMEOUT,
    Result.UNREACHABLE: ExitCode.UNREACHABLE,
    Result.LOCKED: ExitCode.LOCKED,
    Result.INTERRUPTED: ExitCode.INTERRUPTED,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A step's end on one host: the word, why, and how long it took (seconds).

    `acted`: a mutating command was sent, whatever came of it.
    """

    step: str
    host: str
    result: Result
    reason: str = ""
    seconds: float = 0.0
    acted: bool = False

    @property
    def code(self) -> ExitCode:
        """A skipped step has no code of its own: what it waited for has one."""
        return _CODES.get(self.result, ExitCode.DONE)


class Ended(Exception):
    """Ends the loop of one step with a result and its reason."""

    def __init__(self, result: Result, reason: str):
        super().__init__(reason)
        self.result = result
        self.reason = reason
