"""Drift: durable facts that differ from what they were when their step last ended well.

Nothing in a runbook moves what its steps ensured but the runbook itself, and each of its ends
writes a new checkpoint. So a difference is somebody else's doing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runbooks.engine.model.check import Check, Finding, Truth
from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.plan.checkpoint import Checkpoint, checkpoints_check, parse_checkpoints
from runbooks.engine.plan.durable import main_first, plain, show_field
from runbooks.engine.plan.survey import Findings, Survey, Unit

__all__ = ["Drift", "Records", "Unsure", "drift_code", "drift_of", "read_drift", "read_records"]


@dataclass(frozen=True, slots=True)
class Drift:
    """One field that differs: plain values, None where there is nothing.

    `since` is the checkpoint's time (epoch), `run` the run that wrote it.
    """

    step: str
    host: str
    on: str
    check: Check
    field: str
    was: Any
    now: Any
    since: float
    run: str

    @property
    def subject(self) -> str:
        return self.check.subject

    def change(self) -> str:
        """`applied → absent`."""
        was, now = (show_field(self.check, self.field, value) for value in (self.was, self.now))
        return f"{was} → {now}"


@dataclass(frozen=True, slots=True)
class Unsure:
    """What cannot be compared, and why; `step` is empty for all checkpoints of a host."""

    step: str
    host: str
    subject: str
    reason: str
    unreachable: bool = False


@dataclass(frozen=True, slots=True)
class Records:
    """The checkpoints of all hosts, and what is not known of them."""

    checkpoints: Mapping[Unit, Checkpoint]
    unsure: tuple[Unsure, ...] = ()


def read_records(hosts: Sequence[str], findings: Sequence[Finding]) -> Records:
    """From the findings of `checkpoints_check`, one for each host."""
    checkpoints: dict[Unit, Checkpoint] = {}
    unsure: list[Unsure] = []
    for host, finding in zip(hosts, findings, strict=True):
        if finding.truth is not Truth.TRUE:
            reason = f"no checkpoint is known: {finding.reason}"
            unsure.append(Unsure("", host, "checkpoints", reason, finding.unreachable))
            continue
        found, problems = parse_checkpoints(finding.durable["lines"])
        # A host tells of itself alone.
        checkpoints |= {unit: each for unit, each in found.items() if unit[1] == host}
        unsure += [Unsure("", host, "checkpoints", problem) for problem in problems]
    return Records(checkpoints, tuple(unsure))


def drift_of(
    findings: Mapping[Unit, Findings], checkpoints: Mapping[Unit, Checkpoint]
) -> tuple[list[Drift], list[Unsure]]:
    """What differs, and what cannot be compared, in the order of the findings.

    Only what a step ensured then and ensures now, by the same words, is compared.
    """
    drift: list[Drift] = []
    unsure: list[Unsure] = []
    for unit, found in findings.items():
        checkpoint = checkpoints.get(unit)
        if checkpoint is None:
            continue
        recorded = {(fact.subject, fact.on): fact.values for fact in checkpoint.facts}
        seen: set[tuple[str, str]] = set()
        for finding in found.ensures:
            key = (finding.check.subject, finding.host)
            if key in recorded and key not in seen:
                seen.add(key)
                drift.extend(_differences(checkpoint, finding, recorded[key]))
                unsure.extend(_unknown(checkpoint, finding, recorded[key]))
    return drift, unsure


def _differences(
    checkpoint: Checkpoint, finding: Finding, was: Mapping[str, Any]
) -> Iterator[Drift]:
    for field in main_first(finding.check, was, finding.durable):
        yield Drift(
            step=checkpoint.step,
            host=checkpoint.host,
            on=finding.host,
            check=finding.check,
            field=field,
            was=was[field],
            now=plain(finding.durable[field]),
            since=checkpoint.at,
            run=checkpoint.run,
        )


def _unknown(checkpoint: Checkpoint, finding: Finding, was: Mapping[str, Any]) -> Iterator[Unsure]:
    """The durable fields of which it is not known now what they are."""
    fields = finding.check.fact.fields
    lost = [
        name
        for name in sorted(was)
        if name in fields and not fields[name].volatile and name not in finding.durable
    ]
    if lost:
        told = finding.reason or "unknown"
        # One reason for a fact that could not be read at all, else by field.
        reason = told if not finding.durable else f"{', '.join(lost)}: {told}"
        yield Unsure(
            checkpoint.step,
            checkpoint.host,
            finding.check.subject,
            reason,
            finding.unreachable,
        )


def read_drift(survey: Survey) -> tuple[list[Drift], list[Unsure], Records]:
    """Connect and read now, changing nothing; see `drift_of`."""
    fleet, runbook = survey.fleet, survey.runbook
    fleet.read_only(True)
    try:
        fleet.connect(sorted(runbook.hosts | runbook.consulted))
        units = survey.units()
        hosts = sorted(runbook.hosts)
        findings, told = survey.findings_with(
            units,
            {},
            [(checkpoints_check(runbook.name), survey.at(host)) for host in hosts],
            parts=["ensures"],
            planning=True,
        )
    finally:
        fleet.read_only(False)
    records = read_records(hosts, told)
    drift, unsure = drift_of(findings, records.checkpoints)
    return drift, [*records.unsure, *unsure], records


def drift_code(drift: Sequence[Drift], unsure: Sequence[Unsure]) -> ExitCode:
    """Of the rows that are printed: 10 drift, else 6 unknown, else 4 unreachable, else 0."""
    if drift:
        return ExitCode.PENDING
    if not unsure:
        return ExitCode.DONE
    reached = any(not item.unreachable for item in unsure)
    return ExitCode.FAILED if reached else ExitCode.UNREACHABLE
