"""The disk ledger: free + frees − writes ≥ reserve, walked in plan order, by filesystem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runbooks.engine.fleet import Fleet
from runbooks.engine.inquiry import Inquiry, inquire
from runbooks.engine.model.fact import Fact
from runbooks.engine.model.host import Context, Host, Root
from runbooks.engine.model.probe import Unknown
from runbooks.engine.model.values import Absent
from runbooks.engine.plan.plan import Balance, Row

__all__ = ["Entry", "balance", "entries_of"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What one row frees and then writes on one root of its host, in bytes."""

    host: str
    root: Root
    frees: int
    writes: int


def entries_of(rows: Sequence[Row], hosts: Mapping[str, Host]) -> list[Entry]:
    """Entries of the rows that act, in plan order; measured amounts before estimated ones."""
    entries: list[Entry] = []
    for row in rows:
        if not row.acts:
            continue
        roots = hosts[row.host].roots
        frees = dict(row.estimate.frees) if row.estimate else {}
        if row.preview is not None:
            frees.update(row.preview.frees)
        writes = row.estimate.writes if row.estimate else {}
        for name in dict.fromkeys([*frees, *writes]):
            if name in roots:
                entries.append(
                    Entry(row.host, roots[name], frees.get(name, 0), writes.get(name, 0))
                )
    return entries


def balance(
    entries: Sequence[Entry], fleet: Fleet, disk_free: Fact | None, contexts: Mapping[str, Context]
) -> list[Balance]:
    """Read the free space of each filesystem once and walk its entries."""
    by_filesystem: dict[str, list[Entry]] = {}
    for entry in entries:
        by_filesystem.setdefault(entry.root.filesystem, []).append(entry)
    if disk_free is None or not by_filesystem:
        return []
    inquiries = []
    for group in by_filesystem.values():
        context = contexts[group[0].host]
        args = {name: item.default for name, item in disk_free.arguments.items()}
        inquiries.append(
            Inquiry(
                context.host.name,
                disk_free.read(args | {"root": group[0].root.name}, context),
            )
        )
    balances = []
    for (filesystem, group), answer in zip(
        by_filesystem.items(), inquire(fleet, inquiries), strict=True
    ):
        free: Any = answer.value.get(disk_free.value or "") if answer.value else None
        problem = answer.unknown or ""
        if isinstance(free, Unknown):
            free, problem = None, free.reason
        if isinstance(free, Absent):
            free, problem = None, "not there"
        balances.append(_walk(filesystem, group, free, problem))
    return balances


def _walk(filesystem: str, group: Sequence[Entry], free: int | None, problem: str) -> Balance:
    lowest = current = free
    for entry in group:
        if current is not None and lowest is not None:
            current += entry.frees - entry.writes
            lowest = min(lowest, current)
    return Balance(
        filesystem=filesystem,
        roots=tuple(dict.fromkeys(entry.root.name for entry in group)),
        hosts=tuple(dict.fromkeys(entry.host for entry in group)),
        free=free,
        frees=sum(entry.frees for entry in group),
        writes=sum(entry.writes for entry in group),
        lowest=lowest,
        reserve=max(entry.root.reserve for entry in group),
        problem=problem,
    )
