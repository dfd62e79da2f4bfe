"""Small pieces of text that all views share."""

from __future__ import annotations

import re
import time

from rich.console import Console

__all__ = ["clock", "make_console", "printable"]

# C0 and C1 controls, and the Unicode marks that reorder text: a host's output may hold any.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Text without control characters: `\\x1b` stands where an escape was."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def clock(at: float) -> str:
    """The local time of day of an epoch time: `14:02:11`."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def make_console(*, stderr: bool = False) -> Console:
    """A console that neither guesses markup nor wraps: lines stay whole for grep."""
    return Console(stderr=stderr, highlight=False, markup=False, soft_wrap=True, emoji=False)
