"""`--json`: one event per line on standard output, schema version first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TextIO

from runbooks.engine.model.check import record
from runbooks.engine.plan.plan import Plan, Row
from runbooks.engine.run.event import SCHEMA_VERSION
from runbooks.engine.view.drift import drift_record, unsure_record

__all__ = ["JsonLines", "plan_record"]


class JsonLines:
    """A sink that writes records as they come."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def take(self, record: Mapping[str, Any]) -> None:
        self._stream.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")
        self._stream.flush()


def plan_record(plan: Plan) -> dict[str, Any]:
    """A plan as one JSON object."""
    return {
        "v": SCHEMA_VERSION,
        "event": "plan",
        "plan": plan.id,
        "runbook": plan.runbook.name,
        "digest": plan.runbook.digest,
        "facts_from": plan.begun,
        "facts_to": plan.ended,
        "changes": plan.changes,
        "rows": [_row(row) for row in plan.rows],
        "disk": [
            {
                "filesystem": item.filesystem,
                "free": item.free,
                "frees": item.frees,
                "writes": item.writes,
                "lowest": item.lowest,
                "reserve": item.reserve,
                "short": item.short,
            }
            for item in plan.ledger
        ],
        "down": dict(plan.down),
        "scope": {
            "limit": sorted(plan.scope.limit) if plan.scope.limit is not None else None,
            "selected": sorted(plan.scope.selected) if plan.scope.selected is not None else None,
            "words": plan.scope.words,
        },
        "drift": [drift_record(item) for item in plan.drift],
        "drift_unknown": [unsure_record(item) for item in plan.unsure],
    }


def _row(row: Row) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "step": row.step.id,
        "host": row.host,
        "status": row.status.value,
        "reason": row.reason,
        "waits": list(row.waits),
        "operation": row.step.do.operation.name if row.step.do else None,
        "irreversible": row.step.irreversible is not None,
        "requires": [record(finding) for finding in row.requires],
        "ensures": [record(finding) for finding in row.ensures],
    }
    if row.preview is not None:
        shown["preview"] = {
            "summary": row.preview.summary,
            "diff": row.preview.diff,
            "frees": dict(row.preview.frees),
            "files": row.preview.files,
        }
    if row.approval is not None:
        shown["approval"] = row.approval
    return shown
