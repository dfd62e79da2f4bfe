"""Journals as the engine writes them, of runs that never were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runbooks.engine.run.journal import Journal

# 2026-12-01 02:00:00 UTC
BEGIN = 1_796_090_400.0


def record(event: str, after: float = 0.0, **data: Any) -> dict[str, Any]:
    """`after` is in seconds behind BEGIN."""
    return {"v": 1, "event": event, "at": BEGIN + after, **data}


def started(run: str, after: float = 0.0, runbook: str = "extract", **more: Any) -> dict[str, Any]:
    data = {
        "runbook": runbook,
        "file": f"runbooks/{runbook}.yaml",
        "digest": "d1" * 32,
        "operator": "alice",
        "controller": "laptop",
        "door": "runbook",
        "hosts": ["one", "two"],
    }
    return record("run", after, run=run, **data | more)


def unit(event: str, after: float, step: str, host: str = "one", **data: Any) -> dict[str, Any]:
    return record(event, after, step=step, host=host, **data)


def outcome(after: float, step: str, result: str = "ran", host: str = "one", **data: Any):
    more = {"reason": f"{step} is {result}", "seconds": 2.0, "acted": result == "ran"} | data
    return unit("outcome", after, step, host, result=result, **more)


def intent(after: float, step: str, host: str = "one", **data: Any):
    return unit("intent", after, step, host, **{"operation": "set", "summary": "a → b"} | data)


def check(subject: str = "flag a", truth: str = "true", **data: Any) -> dict[str, Any]:
    known = {"wanted": "on", "read": "on", "host": "one", "reason": "", "at": BEGIN + 1}
    return {"check": subject, "truth": truth} | known | data


def write(runs: Path, run: str, *records: dict[str, Any], closed: bool = True) -> Path:
    """The journal of these records; without `closed` as a killed controller leaves it."""
    journal = Journal(runs / run)
    for one in records:
        journal.take(one)
    journal.close()
    if not closed:
        (journal.folder / "head").unlink()
    return journal.path


def add_two(runs: Path) -> None:
    """`early` of extract ended well; `late` of extract was killed while `b` acted on two."""
    write(
        runs,
        "early",
        started("early"),
        intent(1, "a"),
        unit("command", 2, "a", command="set a", exit=0, seconds=0.5, stdout="", stderr=""),
        outcome(3, "a"),
        outcome(4, "b", "satisfied", host="two"),
        record("end", 5, run="early", exit=0),
    )
    write(
        runs,
        "late",
        started("late", 100),
        intent(101, "a"),
        outcome(102, "a"),
        intent(103, "b", host="two", operation="job", summary="work"),
        closed=False,
    )
