"""Plain YAML scalars by the 1.2 core rules, narrowed so that no reader can be surprised.

`no`, `0644`, `72:00:00`, `1e5`, `2026-09-22` and a commit of digits stay text; the type of the
key that holds them then says what to write.
"""

from __future__ import annotations

import math
import re

__all__ = ["resolve_plain"]

_NULLS = frozenset({"", "~", "null"})
# No leading zero (octal, commits) and no lone or trailing underscore.
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*(?:_[0-9]+)*)")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*(?:_[0-9]+)*)\.[0-9]+(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:nan|inf)", re.IGNORECASE)
# Beyond 64 bits a run of digits is a commit or an identity, not an amount.
_MOST_DIGITS = 18


def resolve_plain(text: str) -> str | int | float | bool | None:
    """The value of an unquoted scalar. Raises ValueError for what is not a finite number."""
    if text in _NULLS:
        return None
    if text == "true":
        return True
    if text == "false":
        return False
    first = text[0]
    if first not in "-+.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        digits = text.replace("_", "")
        return int(digits) if len(digits) <= _MOST_DIGITS + 1 else text
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{text} is not a finite number; put text in quotes")
        return number
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a number that compares; write a finite one")
    return text
