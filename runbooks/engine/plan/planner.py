"""Makes a plan: reads every fact, then decides each row in the order of the graph.

A plan invents no results: what depends on a step that has not run is "may run (waits for X)",
never "satisfied" and never "blocked".
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from runbooks.engine.inquiry import Answer
from runbooks.engine.model.check import Finding, Truth
from runbooks.engine.model.operation import Preview
from runbooks.engine.model.runbook import Estimate, Step
from runbooks.engine.plan.approval import approval_of
from runbooks.engine.plan.ledger import balance, entries_of
from runbooks.engine.plan.plan import PENDING, STUCK, Plan, Row, Status
from runbooks.engine.plan.survey import Findings, Survey, Unit

__all__ = ["make_plan", "still_to_run", "wanted"]


def make_plan(survey: Survey, *, limit: Collection[str] | None = None) -> Plan:
    """Connect, read, decide. The fleet is read-only meanwhile; no host is changed."""
    fleet, runbook = survey.fleet, survey.runbook
    fleet.read_only(True)
    try:
        down = fleet.connect(list(fleet.hosts))
        begun = survey.now()
        units = survey.units()
        estimates = survey.estimates(units)
        findings = survey.findings(units, estimates, planning=True)
        alive = survey.alive(units)
        rows = _Decision(survey, findings, estimates, alive, down, limit).rows(units)
        rows = _with_previews(survey, rows)
        contexts = {host: survey.context(step, host) for step, host in units}
        ledger = balance(
            entries_of(rows, fleet.hosts), fleet, survey.registry.facts.get("disk_free"), contexts
        )
        return Plan(
            id=secrets.token_hex(2),
            runbook=runbook,
            rows=tuple(rows),
            ledger=tuple(ledger),
            down=down,
            begun=begun,
            ended=survey.now(),
        )
    finally:
        fleet.read_only(False)


def still_to_run(survey: Survey, findings: Mapping[Unit, Findings]) -> dict[str, bool]:
    """For each step whether it, or what it waits for, does not hold now.

    A transient step's own ensures do not count: whether it is wanted follows from this.
    """
    answer: dict[str, bool] = {}
    for step_id in survey.runbook.order:
        step = survey.runbook.steps[step_id]
        upstream = any(answer[need] for need in step.needs)
        own = not step.gate and any(
            findings[step_id, host].truth("ensures") is not Truth.TRUE for host in step.hosts
        )
        answer[step_id] = upstream or (own and not step.transient)
    return answer


def wanted(survey: Survey, step: Step, to_run: Mapping[str, bool]) -> bool:
    """Whether a transient step is wanted: a dependent still has to run, or nobody needs it.

    A gate among the dependents counts, since it reads the world on every run.
    """
    dependents = survey.runbook.dependents(step.id)
    steps = survey.runbook.steps
    return not dependents or any(to_run[other] or steps[other].gate for other in dependents)


@dataclass
class _Decision:
    survey: Survey
    findings: Mapping[Unit, Findings]
    estimates: Mapping[Unit, Answer[Estimate]]
    alive: Mapping[Unit, Answer[bool]]
    down: Mapping[str, str]
    limit: Collection[str] | None

    def rows(self, units: Sequence[tuple[Step, str]]) -> list[Row]:
        to_run = still_to_run(self.survey, self.findings)
        decided: dict[str, list[Row]] = {}
        rows = []
        for step, host in units:
            row = self._row(step, host, decided, to_run)
            decided.setdefault(step.id, []).append(row)
            rows.append(row)
        return rows

    def _row(
        self,
        step: Step,
        host: str,
        decided: Mapping[str, Sequence[Row]],
        to_run: Mapping[str, bool],
    ) -> Row:
        found = self.findings[step.id, host]
        estimate = self.estimates.get((step.id, host))
        row = Row(
            step=step,
            host=host,
            status=Status.UNKNOWN,
            reason="",
            ensures=found.ensures,
            requires=found.requires,
            estimate=estimate.value if estimate else None,
            estimate_problem=(estimate.unknown or "") if estimate else "",
        )
        waits = tuple(
            need
            for need in step.needs
            if any(other.status in PENDING | STUCK for other in decided[need])
        )
        if host in self.down:
            return replace(row, status=Status.UNREACHABLE, reason=self.down[host], waits=waits)
        if step.gate:
            return self._gate(row, waits)
        return self._step(row, waits, self._moves(step, decided), to_run)

    def _gate(self, row: Row, waits: tuple[str, ...]) -> Row:
        truth = _truth(row.requires)
        reason = _because(row.requires, truth)
        if waits:
            return replace(row, status=Status.MAY_RUN, reason=reason, waits=waits)
        status = {
            Truth.TRUE: Status.HOLDS,
            Truth.FALSE: Status.BLOCKED,
            Truth.UNKNOWN: _lost(row.requires),
        }[truth]
        return replace(row, status=status, reason=reason)

    def _step(
        self, row: Row, waits: tuple[str, ...], moves: bool, to_run: Mapping[str, bool]
    ) -> Row:
        step, truth = row.step, _truth(row.ensures)
        reason = _because(row.ensures, truth)
        alive = self.alive.get((step.id, row.host))
        if alive is not None and alive.value:
            return replace(row, status=Status.ATTACH, reason="its job lives on the host")
        if alive is not None and alive.unknown:
            return replace(row, status=Status.UNKNOWN, reason=f"job: unknown ({alive.unknown})")
        if step.transient and not wanted(self.survey, step, to_run):
            return replace(
                row, status=Status.NOT_WANTED, reason="transient, and no dependent has to run"
            )
        if truth is Truth.TRUE and not moves:
            return replace(row, status=Status.SATISFIED, reason=reason)
        if self.limit is not None and row.host not in self.limit:
            return replace(row, status=Status.BLOCKED, reason=f"outside --limit; {reason}")
        if waits:
            return replace(row, status=Status.MAY_RUN, reason=reason, waits=waits)
        if truth is Truth.UNKNOWN:
            return replace(row, status=_lost(row.ensures), reason=reason)
        required = _truth(row.requires)
        if required is Truth.FALSE:
            reason = f"requires {_because(row.requires, required)}"
            return replace(row, status=Status.BLOCKED, reason=reason)
        if required is Truth.UNKNOWN:
            reason = f"requires {_because(row.requires, required)}"
            return replace(row, status=_lost(row.requires), reason=reason)
        return replace(row, status=Status.WILL_RUN, reason=reason)

    def _moves(self, step: Step, decided: Mapping[str, Sequence[Row]]) -> bool:
        """Whether something upstream would change the world; a stuck gate changes nothing."""
        return any(
            row.acts or (row.status in STUCK and not row.step.gate)
            for other in self.survey.runbook.upstream(step.id)
            for row in decided[other]
        )


def _truth(findings: Sequence[Finding]) -> Truth:
    return Findings(requires=tuple(findings)).truth("requires")


def _lost(findings: Sequence[Finding]) -> Status:
    """Unknown because a host is down is said as unreachable."""
    unknown = [finding for finding in findings if finding.truth is Truth.UNKNOWN]
    if unknown and all(finding.unreachable for finding in unknown):
        return Status.UNREACHABLE
    return Status.UNKNOWN


def _because(findings: Sequence[Finding], truth: Truth) -> str:
    """The findings that decided, as sentences."""
    return "; ".join(finding.sentence() for finding in findings if finding.truth is truth)


def _with_previews(survey: Survey, rows: Sequence[Row]) -> list[Row]:
    """Add what each acting row would change, and the digest that approves it."""
    acting = [(row.step, row.host) for row in rows if row.acts]
    previews = survey.previews(acting)
    return [_previewed(row, previews.get((row.step.id, row.host))) for row in rows]


def _previewed(row: Row, answer: Answer[Preview] | None) -> Row:
    if answer is None:
        return row
    preview = answer.value
    if preview is None:
        return replace(row, preview_problem=answer.unknown or "no preview")
    approval = None
    if row.step.irreversible is not None and not preview.refused:
        approval = str(approval_of(row.step.id, row.host, preview))
    return replace(row, preview=preview, approval=approval)
