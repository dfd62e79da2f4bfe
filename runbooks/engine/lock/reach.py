"""Which hosts a run locks: those it may change, owners of roots it writes, and their guests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runbooks.engine.model.host import Host
from runbooks.engine.model.runbook import Runbook, Step
from runbooks.engine.model.values import split_root

__all__ = ["guests_of", "locked_hosts"]

# `${{ root.NAME }}` stays text until the host is known.
_LATE = re.compile(r"\$\{\{ *root\.([A-Za-z_][A-Za-z0-9_-]*) *\}\}")


def locked_hosts(
    runbook: Runbook,
    fleet: Mapping[str, Host],
    forbids: Callable[[str, str], str | None] = lambda step, host: None,
) -> dict[str, tuple[str, ...]]:
    """Every host to lock, and for each the hosts whose work its lock protects.

    `forbids(step, host)` says why a step must not act on a host, or None.
    """
    protects: dict[str, set[str]] = {}
    for step in runbook.steps.values():
        if step.gate:
            continue
        for name in step.hosts:
            if forbids(step.id, name) is not None:
                continue
            protects.setdefault(name, set()).add(name)
            for owner in _owners(step, fleet[name]):
                if owner in fleet:
                    protects.setdefault(owner, set()).add(name)
    # Whoever changes a machine changes what runs on it.
    for name in list(protects):
        for guest in guests_of(name, fleet):
            protects.setdefault(guest, set())
    for name, hosts in protects.items():
        hosts |= {name, *guests_of(name, fleet)}
    return {name: tuple(sorted(protects[name])) for name in sorted(protects)}


def guests_of(name: str, fleet: Mapping[str, Host]) -> tuple[str, ...]:
    """The hosts that run on a host, at any depth."""
    found: list[str] = []
    pending = [name]
    while pending:
        above = pending.pop()
        for host in fleet.values():
            if host.guest_of == above and host.name not in found and host.name != name:
                found.append(host.name)
                pending.append(host.name)
    return tuple(sorted(found))


def _owners(step: Step, host: Host) -> set[str]:
    """Owners of every root that the step's operations name, or its estimate counts."""
    acts = [act.args for act in (step.do, step.release, step.undo) if act is not None]
    roots = {name for args in acts for name in _roots(args, host)}
    if step.estimate is not None:
        roots |= {*step.estimate.writes, *step.estimate.frees}
    return {host.roots[name].owner for name in roots if name in host.roots}


def _roots(value: Any, host: Host) -> Iterator[str]:
    if isinstance(value, str):
        parts = split_root(value)
        if parts is not None and parts[0] in host.roots:
            yield parts[0]
        yield from _LATE.findall(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _roots(item, host)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _roots(item, host)
