"""What moved since the last run, as people and machines read it: one line a field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from runbooks.engine.model.values import show_duration
from runbooks.engine.plan.drift import Drift, Unsure
from runbooks.engine.view.text import printable

__all__ = ["drift_lines", "drift_record", "unsure_record"]


def drift_lines(
    drift: Sequence[Drift], unsure: Sequence[Unsure], now: float, *, label: str = ""
) -> Iterator[Text]:
    """`llm-two  sglang_patch hidden-state-dump  is  applied → absent   since …`, in columns.

    `now` (epoch) is when the facts were read; `label` stands in front of every line.
    """
    cells = [(item.host, _subject(item), item.field, item.change()) for item in drift]
    widths = [max((len(row[column]) for row in cells), default=0) for column in range(4)]
    for item, row in zip(drift, cells, strict=True):
        text = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        age = show_duration(max(0.0, now - item.since))
        since = f"since checkpoint of run {item.run}, {age} ago, outside this runbook"
        yield Text(printable(f"{label}{text}   {since}  ({item.step})"), style="yellow")
    for lost in unsure:
        where = f"  ({lost.step})" if lost.step else ""
        text = f"{label}{lost.host}  {lost.subject}  unknown: {lost.reason}{where}"
        yield Text(printable(text), style="yellow")


def _subject(item: Drift) -> str:
    return item.subject if item.on == item.host else f"{item.subject} on {item.on}"


def drift_record(item: Drift) -> dict[str, Any]:
    """One field that differs, for machines."""
    return {
        "step": item.step,
        "host": item.host,
        "check": item.subject,
        "read_on": item.on,
        "field": item.field,
        "was": item.was,
        "now": item.now,
        "run": item.run,
        "since": item.since,
    }


def unsure_record(item: Unsure) -> dict[str, Any]:
    """What cannot be compared, for machines."""
    return {
        "step": item.step,
        "host": item.host,
        "check": item.subject,
        "unknown": item.reason,
        "unreachable": item.unreachable,
    }
