"""Makes a plan: reads every fact, then decides each row in the order of the graph.

A plan invents no results: what depends on a step that has not run is "may run (waits for X)",
never "satisfied" and never "blocked".
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from runbooks.engine.inquiry import Answer
from runbooks.engine.model.check import Finding, Truth, out_of_reach, sentences
from runbooks.engine.model.operation import Preview
from runbooks.engine.model.runbook import Estimate, Step
from runbooks.engine.plan.approval import approval_of
from runbooks.engine.plan.checkpoint import checkpoints_check
from runbooks.engine.plan.drift import drift_of, read_records
from runbooks.engine.plan.ledger import balance, entries_of
from runbooks.engine.plan.plan import PENDING, STUCK, Plan, Row, Status
from runbooks.engine.plan.scope import Scope, refusal
from runbooks.engine.plan.survey import Findings, Survey, Unit, truth_of
from runbooks.engine.plan.transient import Want, transient_state

__all__ = ["make_plan"]

# What depends on such a row cannot be settled. A release changes nothing for dependents.
_UNSETTLED = (PENDING | STUCK) - {Status.RELEASE}


def make_plan(
    survey: Survey, *, scope: Scope | None = None, limit: Collection[str] | None = None
) -> Plan:
    """Connect, read, decide. The fleet is read-only meanwhile; no host is changed.

    `scope` says what may act, where it is not the survey's; `limit` replaces its hosts. The
    survey's runbook is narrowed to the scope already (`scope.narrowed`).
    """
    fleet, runbook = survey.fleet, survey.runbook
    scope = scope or survey.scope
    if limit is not None:
        scope = replace(scope, limit=frozenset(limit))
    fleet.read_only(True)
    try:
        down = fleet.connect(list(fleet.hosts))
        begun = survey.now()
        units = survey.units()
        estimates = survey.estimates(units)
        up = [host for host in sorted(runbook.hosts) if host not in down]
        findings, told = survey.findings_with(
            [*units, *survey.watched()],
            estimates,
            [(checkpoints_check(runbook.name), survey.at(host)) for host in up],
            planning=True,
        )
        alive = survey.alive([*units, *survey.watched()])
        rows = _Decision(survey, findings, estimates, alive, down, scope).rows(units)
        rows = _with_previews(survey, rows)
        contexts = {host: survey.context(step, host) for step, host in units}
        ledger = balance(
            entries_of(rows, fleet.hosts), fleet, survey.registry.facts.get("disk_free"), contexts
        )
        records = read_records(up, told)
        mine = {(step.id, host): findings[step.id, host] for step, host in units}
        drift, unsure = drift_of(mine, records.checkpoints)
        return Plan(
            id=secrets.token_hex(2),
            runbook=runbook,
            rows=tuple(rows),
            ledger=tuple(ledger),
            down=down,
            begun=begun,
            ended=survey.now(),
            scope=scope,
            drift=tuple(drift),
            # Of what is down, the rows say so themselves.
            unsure=(*records.unsure, *(item for item in unsure if not item.unreachable)),
        )
    finally:
        fleet.read_only(False)


@dataclass
class _Decision:
    survey: Survey
    findings: Mapping[Unit, Findings]
    estimates: Mapping[Unit, Answer[Estimate]]
    alive: Mapping[Unit, Answer[bool]]
    down: Mapping[str, str]
    scope: Scope
    # Steps that would move, or act, and all that wait for one: each asks only what it needs.
    _moving: set[str] = field(default_factory=set, init=False)
    _acting: set[str] = field(default_factory=set, init=False)

    def rows(self, units: Sequence[tuple[Step, str]]) -> list[Row]:
        decided: dict[str, list[Row]] = {}
        rows = []
        for step, host in units:
            row = self._row(step, host, decided)
            decided.setdefault(step.id, []).append(row)
            rows.append(row)
            if self._moves(step) or (row.status in _UNSETTLED and not step.gate):
                self._moving.add(step.id)
            if self._changes(step) or row.acts:
                self._acting.add(step.id)
        return rows

    def _row(self, step: Step, host: str, decided: Mapping[str, Sequence[Row]]) -> Row:
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
            forbidden=self.scope.forbids(step.id, host) or "",
        )
        waits = tuple(
            need
            for need in step.needs
            if any(other.status in _UNSETTLED for other in decided[need])
        )
        if host in self.down:
            return replace(row, status=Status.UNREACHABLE, reason=self.down[host], waits=waits)
        if step.gate:
            return self._gate(row, waits)
        moves = self._moves(step)
        if step.transient and (settled := self._transient(row, moves)) is not None:
            return settled
        holds = truth_of(row.ensures) is Truth.TRUE
        if row.forbidden and not holds and not self._changes(step):
            # It waits for nothing that would change it: what it ensures is judged as it is.
            waits = ()
        return self._step(row, waits, moves)

    def _gate(self, row: Row, waits: tuple[str, ...]) -> Row:
        truth = truth_of(row.requires)
        reason = sentences(row.requires, truth)
        if waits:
            return replace(row, status=Status.MAY_RUN, reason=reason, waits=waits)
        status = {
            Truth.TRUE: Status.HOLDS,
            Truth.FALSE: Status.BLOCKED,
            Truth.UNKNOWN: _lost(row.requires),
        }[truth]
        return replace(row, status=status, reason=reason)

    def _transient(self, row: Row, moves: bool) -> Row | None:
        """The row of a transient step that is not to be made true; None where it is wanted."""
        step, truth = row.step, truth_of(row.ensures)
        state = transient_state(
            self.survey.whole,
            step,
            self.findings,
            self.alive,
            moves=moves or self._others_move(step),
        )
        if state.want is Want.WANTED:
            return None
        if state.want is Want.UNKNOWN:
            return replace(row, status=Status.UNKNOWN, reason=state.reason)
        if state.want is Want.LEFT:
            reason = f"left as it is: {state.reason}"
            return replace(row, status=Status.NOT_WANTED, reason=reason)
        if step.release is not None and truth is Truth.TRUE and not row.forbidden:
            reason = f"{state.reason}; {sentences(row.ensures, truth)}"
            return replace(row, status=Status.RELEASE, reason=reason)
        return replace(row, status=Status.NOT_WANTED, reason=f"transient, and {state.reason}")

    def _others_move(self, step: Step) -> bool:
        """Whether a dependent waits, beside this step, for one that does not hold now."""
        steps = self.survey.runbook.steps
        dependents = self.survey.runbook.dependents(step.id)
        beside = self.survey.runbook.upstream(*dependents) - dependents - {step.id}
        return any(
            self.findings[other, host].truth("ensures") is not Truth.TRUE
            for other in beside
            if not steps[other].gate and not steps[other].transient
            for host in steps[other].hosts
        )

    def _step(self, row: Row, waits: tuple[str, ...], moves: bool) -> Row:
        step, truth = row.step, truth_of(row.ensures)
        reason = sentences(row.ensures, truth)
        alive = self.alive.get((step.id, row.host))
        if alive is not None and alive.value:
            return replace(row, status=Status.ATTACH, reason="its job lives on the host")
        if alive is not None and not alive.known:
            status = Status.UNREACHABLE if alive.unreachable else Status.UNKNOWN
            return replace(row, status=status, reason=f"job: unknown ({alive.unknown})")
        if truth is Truth.TRUE and not moves:
            return replace(row, status=Status.SATISFIED, reason=reason)
        if waits or (row.forbidden and truth is Truth.TRUE):
            return replace(row, status=Status.MAY_RUN, reason=reason, waits=waits)
        if row.forbidden and truth is Truth.FALSE:
            reason = refusal(step.id, row.forbidden, reason)
            return replace(row, status=Status.BLOCKED, reason=reason)
        if truth is Truth.UNKNOWN:
            return replace(row, status=_lost(row.ensures), reason=reason)
        required = truth_of(row.requires)
        if required is Truth.FALSE:
            reason = f"requires {sentences(row.requires, required)}"
            return replace(row, status=Status.BLOCKED, reason=reason)
        if required is Truth.UNKNOWN:
            # A run stops here with the code of a precondition, so the plan does too.
            reason = f"requires {sentences(row.requires, required)}"
            status = Status.UNREACHABLE if out_of_reach(row.requires) else Status.BLOCKED
            return replace(row, status=status, reason=reason)
        return replace(row, status=Status.WILL_RUN, reason=reason)

    def _changes(self, step: Step) -> bool:
        """Whether something upstream would act; of what is stuck nothing comes."""
        return not self._acting.isdisjoint(step.needs)

    def _moves(self, step: Step) -> bool:
        """Whether something upstream would change the world; a stuck gate changes nothing."""
        return not self._moving.isdisjoint(step.needs)


def _lost(findings: Sequence[Finding]) -> Status:
    return Status.UNREACHABLE if out_of_reach(findings) else Status.UNKNOWN


def _with_previews(survey: Survey, rows: Sequence[Row]) -> list[Row]:
    """Add what each acting row would change, and the digest that approves it."""
    acting = [(row.step, row.host) for row in rows if row.acts and row.status is not Status.RELEASE]
    previews = survey.previews(acting)
    return [_previewed(row, previews.get((row.step.id, row.host))) for row in rows]


def _previewed(row: Row, answer: Answer[Preview] | None) -> Row:
    if answer is None:
        return row
    preview = answer.value
    if preview is None:
        return replace(row, preview_problem=answer.unknown or "no preview")
    if preview.refused and row.status is Status.WILL_RUN:
        return replace(row, preview=preview, status=Status.BLOCKED, reason=preview.summary)
    approval = None
    # Nothing measured (it is not there yet) is nothing that could be approved.
    if row.step.irreversible is not None and not preview.refused and preview.identity:
        approval = str(approval_of(row.step.id, row.host, preview))
    return replace(row, preview=preview, approval=approval)
