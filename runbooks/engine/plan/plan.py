"""A plan as data: one row for each step and host, the disk ledger, the hosts that are down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from runbooks.engine.model.check import Finding
from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.model.operation import Preview
from runbooks.engine.model.runbook import Estimate, Runbook, Step
from runbooks.engine.plan.drift import Drift, Unsure
from runbooks.engine.plan.scope import EVERYTHING, Scope

__all__ = ["PENDING", "STUCK", "Balance", "Plan", "Row", "Status"]


class Status(Enum):
    """What a plan says of one step on one host."""

    SATISFIED = "satisfied"  # ensures hold now
    HOLDS = "holds"  # a gate whose requires hold now
    WILL_RUN = "will run"
    MAY_RUN = "may run"  # depends on a step that has not run
    ATTACH = "will attach"  # its job lives on the host
    NOT_WANTED = "not wanted"  # transient, and no dependent has to run
    RELEASE = "will release"  # transient, holds, and no dependent has to run
    BLOCKED = "blocked"  # requires do not hold
    UNKNOWN = "unknown"
    UNREACHABLE = "unreachable"


# Rows that change something, or that wait for one that does.
PENDING = frozenset({Status.WILL_RUN, Status.MAY_RUN, Status.ATTACH, Status.RELEASE})
STUCK = frozenset({Status.BLOCKED, Status.UNKNOWN, Status.UNREACHABLE})


@dataclass(frozen=True, slots=True)
class Row:
    """One step on one host: what would happen and the facts that say why.

    `forbidden` is why the step must not act here (the plan's scope), or empty.
    """

    step: Step
    host: str
    status: Status
    reason: str
    waits: tuple[str, ...] = ()
    ensures: tuple[Finding, ...] = ()
    requires: tuple[Finding, ...] = ()
    preview: Preview | None = None
    preview_problem: str = ""
    estimate: Estimate | None = None
    estimate_problem: str = ""
    approval: str | None = None
    forbidden: str = ""

    @property
    def acts(self) -> bool:
        """Whether a run would change this host by this step (a gate never does)."""
        if self.step.gate or (self.forbidden and self.status is Status.MAY_RUN):
            return False
        return self.status in PENDING


@dataclass(frozen=True, slots=True)
class Balance:
    """The ledger of one filesystem, in bytes; `free` None where it could not be read."""

    filesystem: str
    roots: tuple[str, ...]
    hosts: tuple[str, ...]
    free: int | None
    frees: int
    writes: int
    lowest: int | None
    reserve: int
    problem: str = ""

    @property
    def short(self) -> bool:
        return self.lowest is not None and self.lowest < self.reserve


@dataclass(frozen=True, slots=True)
class Plan:
    """All rows in the runbook's order, and what moved since the last run.

    `unsure` is what cannot be compared with the last run.
    """

    id: str
    runbook: Runbook
    rows: Sequence[Row]
    ledger: Sequence[Balance] = ()
    down: Mapping[str, str] = field(default_factory=dict)
    begun: float = 0.0
    ended: float = 0.0
    scope: Scope = EVERYTHING
    drift: Sequence[Drift] = ()
    unsure: Sequence[Unsure] = ()

    def row(self, step: str, host: str) -> Row:
        for row in self.rows:
            if row.step.id == step and row.host == host:
                return row
        raise KeyError((step, host))

    @property
    def changes(self) -> int:
        return sum(row.acts for row in self.rows)

    def count(self, *statuses: Status) -> int:
        return sum(row.status in statuses for row in self.rows)

    @property
    def code(self) -> ExitCode:
        """0, or why a run could not go through: 4 unreachable, 5 blocked, 6 unknown."""
        codes = {
            Status.UNREACHABLE: ExitCode.UNREACHABLE,
            Status.BLOCKED: ExitCode.PRECONDITION,
            Status.UNKNOWN: ExitCode.FAILED,
        }
        found = {codes[row.status] for row in self.rows if row.status in codes}
        if any(balance.short for balance in self.ledger):
            found.add(ExitCode.PRECONDITION)
        return ExitCode.worst(found)
