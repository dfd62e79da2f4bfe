"""Past runs as people read them: a line a run, and what it left interrupted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from runbooks.engine.history.index import Interrupted, RunRow
from runbooks.engine.model.values import show_duration
from runbooks.engine.run.event import SCHEMA_VERSION
from runbooks.engine.view.text import printable

__all__ = [
    "day",
    "ending",
    "fault_line",
    "fault_record",
    "history_lines",
    "interrupted_text",
    "row_record",
    "verify_summary",
]

_EXITS = {
    0: "done",
    1: "bug",
    2: "usage",
    3: "invalid",
    4: "unreachable",
    5: "precondition",
    6: "failed",
    7: "stale",
    8: "approval",
    9: "locked",
    10: "pending",
    124: "timed out",
    130: "interrupted",
}
_HEAD = ("run", "runbook", "begun", "took", "by", "door", "result", "changed", "failed", "hosts")
# Columns of numbers stand to the right.
_RIGHT = frozenset({3, 7, 8})


def ending(ended: bool, code: int | None, lives: bool = False) -> str:
    """How a run ended, in a word, with its exit code: `failed (6)`."""
    if not ended:
        return "running" if lives else "unfinished"
    if code is None:
        return "ended"
    return f"{_EXITS.get(code, 'ended')} ({code})"


def day(at: float) -> str:
    """Date and local time of day: `2026-12-01 14:02:11`; `?` for an unknown one."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else "?"


def history_lines(rows: Sequence[RunRow], older: int, runs: Path) -> Iterator[Text]:
    """Newest first; `older` runs are not shown."""
    if not rows:
        yield Text(f"no runs in {runs}")
        return
    table = [_HEAD, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEAD))]
    yield Text("   " + _aligned(_HEAD, widths), style="bold")
    for row, cells in zip(rows, table[1:], strict=True):
        symbol, style = _symbol(row)
        yield Text(f" {symbol} {_aligned(cells, widths)}", style=style)
        yield from _below(row)
    if older:
        yield Text(f"   … {older:,} older: --limit {len(rows) + older}", style="dim")


def _cells(row: RunRow) -> tuple[str, ...]:
    took = show_duration(row.last - row.begun) + ("" if row.ended else "+")
    by = f"{row.operator or '?'}@{row.controller or '?'}"
    cells = (
        row.run,
        row.runbook or "?",
        day(row.begun),
        took,
        by,
        row.door or "?",
        ending(row.ended, row.exit, row.lives),
        str(row.changed),
        str(row.failed),
        ", ".join(row.hosts),
    )
    return tuple(_flat(cell) for cell in cells)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    pairs = zip(cells, widths, strict=True)
    return "  ".join(
        f"{cell:>{width}}" if column in _RIGHT else f"{cell:<{width}}"
        for column, (cell, width) in enumerate(pairs)
    ).rstrip()


def _symbol(row: RunRow) -> tuple[str, str]:
    if not row.ended:
        return (">", "cyan") if row.lives else ("?", "yellow")
    return ("=", "") if row.exit == 0 else ("!", "red")


def _below(row: RunRow) -> Iterator[Text]:
    """What is to be known of a run beside its line."""
    if row.problem:
        yield Text(f"     {_flat(row.problem)}; runbook history --verify {row.run}", style="red")
    if row.copied:
        yield Text(f"     copied from {_flat(', '.join(row.copied))}: other hosts know more", "dim")
    word = "acts" if row.lives else "without an outcome" if row.copied else "interrupted"
    for item in row.interrupted:
        yield Text(f"     {word}: {_flat(interrupted_text(item))}", style="yellow")


def interrupted_text(item: Interrupted) -> str:
    """`extract on llm-two, begun 2026-12-01 14:02:11: job (87,800,000 rows)`."""
    summary = f" ({item.summary})" if item.summary else ""
    what = f": {item.operation}{summary}" if item.operation else ""
    return f"{item.step} on {item.host}, begun {day(item.at)}{what}"


def row_record(row: RunRow) -> dict[str, Any]:
    """One run as one JSON object."""
    return {
        "v": SCHEMA_VERSION,
        "event": "history",
        "run": row.run,
        "runbook": row.runbook,
        "file": row.file,
        "operator": row.operator,
        "controller": row.controller,
        "door": row.door,
        "hosts": list(row.hosts),
        "copied_from": list(row.copied),
        "begun": row.begun,
        "ended": row.last if row.ended else None,
        "seconds": round(row.last - row.begun, 3),
        "exit": row.exit,
        "result": "running" if row.lives else ending(row.ended, row.exit).partition(" (")[0],
        "changed": row.changed,
        "failed": row.failed,
        "problem": row.problem,
        "interrupted": [
            {"step": item.step, "host": item.host, "at": item.at, "operation": item.operation}
            for item in row.interrupted
        ],
    }


def fault_line(path: Path, line: int, message: str) -> Text:
    """`FILE:LINE message`, for editors and grep."""
    return Text(_flat(f"{path}:{line} {message}"), style="red")


def fault_record(run: str, path: Path, line: int, message: str) -> dict[str, Any]:
    head = {"v": SCHEMA_VERSION, "event": "fault", "run": run}
    return head | {"file": str(path), "line": line, "message": message}


def verify_summary(runs: int, broken: int, open_: int) -> str:
    """The sum of a verification; `open_` journals have no end that could prove them whole."""
    noun = "journal" if runs == 1 else "journals"
    text = f"{runs} {noun} verified: {runs - broken} whole, {broken} broken"
    if open_:
        text += f"; {open_} without an end: whether lines are missing there, nothing tells"
    return text


def _flat(text: str) -> str:
    return printable(text).replace("\n", "\\n").replace("\t", " ")
