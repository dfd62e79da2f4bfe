"""A fault that a user can cause, as a value with a place; rendered late, by `view`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

__all__ = ["Diagnostic", "ExitCode", "Place", "RunbookError", "did_you_mean", "nearest"]


class ExitCode(int, Enum):
    """What a command exits with; where several apply, `PRECEDENCE` decides."""

    DONE = 0
    BUG = 1
    USAGE = 2
    INVALID = 3
    UNREACHABLE = 4
    PRECONDITION = 5
    FAILED = 6
    STALE = 7
    APPROVAL = 8
    LOCKED = 9
    PENDING = 10
    TIMEOUT = 124
    INTERRUPTED = 130

    @classmethod
    def worst(cls, codes: Iterable[ExitCode]) -> ExitCode:
        """The one to exit with when several apply."""
        present = set(codes)
        for code in _PRECEDENCE:
            if code in present:
                return code
        return next(iter(sorted(present - {cls.DONE})), cls.DONE)


_PRECEDENCE = (
    ExitCode.BUG,
    ExitCode.INTERRUPTED,
    ExitCode.LOCKED,
    ExitCode.STALE,
    ExitCode.APPROVAL,
    ExitCode.FAILED,
    ExitCode.TIMEOUT,
    ExitCode.PRECONDITION,
    ExitCode.UNREACHABLE,
)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in a file; lines and columns count from 1."""

    file: Path
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error: where, what, and what to do next.

    `where` stands in for a place when the fault is in no file (a host, a step, an option).
    """

    message: str
    place: Place | None = None
    where: str | None = None
    hint: str | None = None
    code: ExitCode = ExitCode.INVALID
    related: tuple[tuple[Place, str], ...] = ()


class RunbookError(Exception):
    """Carries diagnostics from wherever they arise to the front door."""

    def __init__(self, *diagnostics: Diagnostic):
        super().__init__("; ".join(item.message for item in diagnostics))
        self.diagnostics: tuple[Diagnostic, ...] = diagnostics

    @property
    def code(self) -> ExitCode:
        return ExitCode.worst(item.code for item in self.diagnostics)

    @classmethod
    def usage(
        cls, message: str, *, where: str | None = None, hint: str | None = None
    ) -> RunbookError:
        return cls(Diagnostic(message, where=where, hint=hint, code=ExitCode.USAGE))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was probably meant to be, or None."""
    names = list(known)
    folded = {name.casefold(): name for name in names}
    if word.casefold() in folded and folded[word.casefold()] != word:
        return folded[word.casefold()]
    matches = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return matches[0] if matches else None


def did_you_mean(word: str, known: Sequence[str] | Iterable[str]) -> str | None:
    """A hint: "did you mean 'x'?", or the known words when none is near."""
    names = sorted(set(known))
    match = nearest(word, names)
    if match is not None:
        return f"did you mean '{match}'?"
    if not names:
        return None
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"known: {shown}"
