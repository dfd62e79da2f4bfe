"""The jobs of hosts, whatever runbook began them, as every long operation tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runbooks.engine.fleet import Fleet
from runbooks.engine.inquiry import Inquiry, inquire
from runbooks.engine.model.host import Context
from runbooks.engine.model.job import JobRecord
from runbooks.engine.registry import Registry

__all__ = ["jobs_on"]


def jobs_on(
    registry: Registry, fleet: Fleet, project: Path, hosts: Sequence[str]
) -> dict[str, list[JobRecord] | str]:
    """The newest job of every step on each host; a reason where they cannot be known."""
    found: dict[str, list[JobRecord] | str] = {host: [] for host in hosts}
    long = [operation for operation in registry.operations.values() if operation.long]
    asked = [(host, operation) for host in hosts for operation in long]
    answers = inquire(
        fleet,
        [
            Inquiry(host, operation.jobs(Context(fleet.hosts[host], fleet.hosts, project)))
            for host, operation in asked
        ],
    )
    for (host, _), answer in zip(asked, answers, strict=True):
        known = found[host]
        if answer.value is None:
            found[host] = answer.unknown or "unknown"
        elif not isinstance(known, str):
            known.extend(answer.value)
    return found
