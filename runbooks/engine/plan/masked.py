"""What a plan, a drift or a check found, as it may be shown: every text of a host is masked.

The plan itself keeps what was read: a saved plan digests it, and an approval measures it.
Masked before a view shortens a line: half a secret matches nothing.
"""

from __future__ import annotations

from dataclasses import replace

from runbooks.engine.model.check import Finding
from runbooks.engine.plan.drift import Drift, Unsure
from runbooks.engine.plan.plan import Plan, Row
from runbooks.engine.redact import Redactor

__all__ = ["masked_drift", "masked_finding", "masked_plan", "masked_unsure"]


def masked_plan(plan: Plan, redactor: Redactor) -> Plan:
    """The same plan, fit for a terminal and for JSON."""
    return replace(
        plan,
        rows=tuple(_row(row, redactor) for row in plan.rows),
        ledger=tuple(
            replace(balance, problem=redactor.text(balance.problem)) for balance in plan.ledger
        ),
        down=redactor.value(dict(plan.down)),
        drift=tuple(masked_drift(item, redactor) for item in plan.drift),
        unsure=tuple(masked_unsure(item, redactor) for item in plan.unsure),
    )


def masked_finding(finding: Finding, redactor: Redactor) -> Finding:
    """The same finding; what it compared is gone, what it says stays."""
    return replace(
        finding,
        wanted=redactor.text(finding.wanted),
        read=redactor.text(finding.read),
        reason=redactor.text(finding.reason),
        durable=redactor.value(finding.durable),
    )


def masked_drift(item: Drift, redactor: Redactor) -> Drift:
    return replace(item, was=redactor.value(item.was), now=redactor.value(item.now))


def masked_unsure(item: Unsure, redactor: Redactor) -> Unsure:
    return replace(item, reason=redactor.text(item.reason))


def _row(row: Row, redactor: Redactor) -> Row:
    preview = row.preview
    if preview is not None:
        preview = replace(
            preview,
            summary=redactor.text(preview.summary),
            diff=redactor.text(preview.diff),
        )
    return replace(
        row,
        reason=redactor.text(row.reason),
        ensures=tuple(masked_finding(finding, redactor) for finding in row.ensures),
        requires=tuple(masked_finding(finding, redactor) for finding in row.requires),
        preview=preview,
        preview_problem=redactor.text(row.preview_problem),
        estimate_problem=redactor.text(row.estimate_problem),
    )
