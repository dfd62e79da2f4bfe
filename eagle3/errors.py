"""Errors that a user can cause; `eagle3.cli` prints them as one line, without a traceback.

EagleError
├── InputError       a file, a line or a value in it is not what it should be
├── StoreError       a dataset or a hidden-state store is damaged or of other inputs
├── TargetError      a target model cannot be loaded or used
└── UsageError       arguments that contradict each other
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["EagleError", "InputError", "Place", "StoreError", "TargetError", "UsageError"]


@dataclass(frozen=True)
class Place:
    """Where a fault is: a file, and in it a line (from 1) or a named item."""

    file: Path
    line: int | None = None
    item: str | None = None

    def __str__(self) -> str:
        text = str(self.file)
        if self.line is not None:
            text += f":{self.line}"
        if self.item is not None:
            text += f" ({self.item})"
        return text


class EagleError(Exception):
    """Base of all. `exit_code` is what the command line exits with."""

    exit_code = 1

    def __init__(self, message: str, *, place: Place | None = None, hint: str | None = None):
        super().__init__(message)
        self.message = message
        self.place = place
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}" if self.place else self.message
        return f"{text}\n  {self.hint}" if self.hint else text


class InputError(EagleError):
    exit_code = 3


class StoreError(EagleError):
    exit_code = 6


class TargetError(EagleError):
    exit_code = 5


class UsageError(EagleError):
    exit_code = 2
