"""The durable fields of a finding: as plain JSON, compared, and in the words of their types."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from runbooks.engine.model.check import Check
from runbooks.engine.redact import MASK

__all__ = ["canonical", "main_first", "plain", "same", "show_field"]

_LONGEST = 120


def plain(value: Any) -> Any:
    """A value as JSON gives it back: tuples are lists, keys are text, other things their text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return str(value)


def canonical(value: Any) -> bytes:
    """The one spelling of a value as JSON: sorted keys, no spaces, ASCII."""
    return json.dumps(
        plain(value), sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False
    ).encode()


def same(was: Any, now: Any) -> bool:
    """Whether two plain values are equal, as far as can be said where secrets were masked."""
    if isinstance(was, str) and isinstance(now, str) and MASK in was:
        pattern = ".*".join(map(re.escape, was.split(MASK)))
        return re.fullmatch(pattern, now, re.DOTALL) is not None
    if isinstance(was, list) and isinstance(now, list):
        return len(was) == len(now) and all(map(same, was, now))
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        if any(MASK in key for key in was):
            return len(was) == len(now)
        return was.keys() == now.keys() and all(same(was[key], now[key]) for key in was)
    # JSON's true is not its 1.
    return type(was) is type(now) and bool(was == now)


def main_first(check: Check, was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Fields known on both sides that differ; the field that `eq` compares stands first.

    Where that one differs, fields that are absent on one side say nothing new: a file that is
    gone has no size either.
    """
    main = check.fact.value or "is"
    fields = [
        name for name in sorted(was.keys() & now.keys()) if not same(was[name], plain(now[name]))
    ]
    if main in fields:
        rest = [
            name
            for name in fields
            if name != main and was[name] is not None and now[name] is not None
        ]
        return [main, *rest]
    return fields


def show_field(check: Check, field: str, value: Any) -> str:
    """A durable value in the words of its field's type; None is `absent`."""
    if value is None:
        return "absent"
    declared = check.fact.fields.get(field)
    try:
        text = declared.type.show(value) if declared else str(value)
    except (TypeError, ValueError, AttributeError):
        # Written by an older fact whose field had another type.
        text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"
