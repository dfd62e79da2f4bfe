"""Every fact that a runbook names, read now, for all steps and hosts at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runbooks.engine.binding import bind_args, bind_check, wants_estimate
from runbooks.engine.fleet import Fleet
from runbooks.engine.inquiry import Answer, Inquiry, inquire, read_checks, read_with
from runbooks.engine.model.check import Check, Finding, Truth
from runbooks.engine.model.host import Context, Origin
from runbooks.engine.model.operation import OperationFailed, Preview
from runbooks.engine.model.probe import Output, Shell
from runbooks.engine.model.runbook import Act, Estimate, Runbook, Step
from runbooks.engine.plan.scope import EVERYTHING, Scope
from runbooks.engine.registry import Registry

__all__ = [
    "Findings",
    "Survey",
    "Unit",
    "act_of",
    "readable_together",
    "truth_of",
]


@dataclass(frozen=True, slots=True)
class Findings:
    """The judged checks of one step on one host."""

    requires: tuple[Finding, ...] = ()
    ensures: tuple[Finding, ...] = ()

    def truth(self, part: str) -> Truth:
        """Of `requires` or `ensures`: see `truth_of`."""
        return truth_of(getattr(self, part))


def truth_of(findings: Sequence[Finding]) -> Truth:
    """True only when all are; unknown weighs more than false."""
    truths = [finding.truth for finding in findings]
    for truth in (Truth.UNKNOWN, Truth.FALSE):
        if truth in truths:
            return truth
    return Truth.TRUE


Unit = tuple[str, str]  # step id, host name


@dataclass
class Survey:
    """Reads for one runbook on one fleet; `scope` says what may act, and hides nothing."""

    runbook: Runbook
    registry: Registry
    fleet: Fleet
    project: Path
    now: Callable[[], float] = time.time
    origin: Origin | None = None
    scope: Scope = EVERYTHING

    def context(self, step: Step, host: str) -> Context:
        return Context(
            host=self.fleet.hosts[host],
            fleet=self.fleet.hosts,
            project=self.project,
            runbook=self.runbook.name,
            step=step.id,
            origin=self.origin,
        )

    def at(self, host: str) -> Context:
        """The context of what belongs to no step."""
        return Context(
            host=self.fleet.hosts[host],
            fleet=self.fleet.hosts,
            project=self.project,
            runbook=self.runbook.name,
            origin=self.origin,
        )

    @property
    def whole(self) -> Survey:
        """Of the runbook with the steps that `--from` and `--only` left out."""
        return replace(self, runbook=self.runbook.whole)

    def watched(self) -> list[tuple[Step, str]]:
        """Steps left out that wait for a transient step of this runbook, on each host.

        Their jobs must not lose it, and it is wanted while they still have to run.
        """
        whole, kept = self.runbook.whole, self.runbook.steps
        waiting = {
            other
            for step in kept.values()
            if step.transient
            for other in whole.dependents(step.id)
            if other not in kept
        }
        return [
            (whole.steps[name], host)
            for name in whole.order
            if name in waiting
            for host in whole.steps[name].hosts
        ]

    def units(self) -> list[tuple[Step, str]]:
        """Every step on every host of it, in an order that respects `needs`."""
        return [
            (self.runbook.steps[step_id], host)
            for step_id in self.runbook.order
            for host in self.runbook.steps[step_id].hosts
        ]

    def estimates(self, units: Sequence[tuple[Step, str]]) -> dict[Unit, Answer[Estimate]]:
        """The estimate of each unit that has one; computed ones are asked for."""
        known: dict[Unit, Answer[Estimate]] = {}
        asked: list[Unit] = []
        inquiries = []
        for step, host in units:
            if step.estimate is None:
                continue
            if step.estimate.source is None:
                known[step.id, host] = Answer(value=step.estimate)
                continue
            place = self.context(step, host)
            estimator = self.registry.estimators[step.estimate.source]
            args = bind_args(step.estimate.args, place.host)
            asked.append((step.id, host))
            inquiries.append(Inquiry(host, estimator.compute(args, step, place)))
        known.update(zip(asked, inquire(self.fleet, inquiries), strict=True))
        return known

    def findings(
        self,
        units: Sequence[tuple[Step, str]],
        estimates: Mapping[Unit, Answer[Estimate]],
        *,
        parts: Sequence[str] = ("requires", "ensures"),
        planning: bool = False,
    ) -> dict[Unit, Findings]:
        """Requires and ensures of all units, in one round trip a host where facts allow it.

        `planning` lets costly facts answer cheaply (`Fact.for_plan`).
        """
        return self.findings_with(units, estimates, (), parts=parts, planning=planning)[0]

    def findings_with(
        self,
        units: Sequence[tuple[Step, str]],
        estimates: Mapping[Unit, Answer[Estimate]],
        more: Sequence[tuple[Check, Context]],
        *,
        parts: Sequence[str] = ("requires", "ensures"),
        planning: bool = False,
    ) -> tuple[dict[Unit, Findings], list[Finding]]:
        """As `findings`, and in the same round trips the findings of `more` checks."""
        asked = self._asked(units, estimates, parts)
        checks = [*asked.checks, *more]
        read = read_checks(self.fleet, checks, planning=planning, now=self.now)
        return asked.findings(read), read[len(asked.checks) :]

    def glance(
        self, step: Step, host: str, parts: Sequence[str]
    ) -> tuple[Findings, Answer[Preview]]:
        """The findings of one unit, and in the same round trips its preview."""
        asked = self._asked([(step, host)], {}, parts)
        preview = self._preview(step, host)
        read, answers = read_with(self.fleet, asked.checks, [preview], now=self.now)
        return asked.findings(read)[step.id, host], answers[0]

    def _asked(
        self,
        units: Sequence[tuple[Step, str]],
        estimates: Mapping[Unit, Answer[Estimate]],
        parts: Sequence[str],
    ) -> _Asked:
        asked = _Asked()
        for step, host in units:
            unit = (step.id, host)
            asked.judged[unit] = {"requires": [], "ensures": []}
            place = self.context(step, host)
            for part in parts:
                for check in getattr(step, part):
                    bound, problem = _bound(check, place, estimates.get(unit))
                    if problem:
                        unknown = _unknown(check, host, problem, self.now())
                        asked.judged[unit][part].append(unknown)
                        continue
                    asked.checks.append((bound, place))
                    asked.slots.append((unit, part))
        return asked

    def alive(self, units: Sequence[tuple[Step, str]]) -> dict[Unit, Answer[bool]]:
        """Whether the job of each long unit lives now."""
        asked = [(step, host) for step, host in units if step.do and step.do.operation.long]
        inquiries = []
        for step, host in asked:
            act = act_of(step)
            context = self.context(step, host)
            args = bind_args(act.args, context.host)
            inquiries.append(Inquiry(host, act.operation.alive(args, context)))
        answers = inquire(self.fleet, inquiries)
        return {
            (step.id, host): answer for (step, host), answer in zip(asked, answers, strict=True)
        }

    def previews(self, units: Sequence[tuple[Step, str]]) -> dict[Unit, Answer[Preview]]:
        """What the operation of each unit would change, from a look at the world."""
        answers = inquire(self.fleet, [self._preview(step, host) for step, host in units])
        return {
            (step.id, host): answer for (step, host), answer in zip(units, answers, strict=True)
        }

    def _preview(self, step: Step, host: str) -> Inquiry[Preview]:
        act = act_of(step)
        context = self.context(step, host)
        return Inquiry(host, _previewing(act, bind_args(act.args, context.host), context))


@dataclass
class _Asked:
    """Checks to read, and where their findings belong."""

    checks: list[tuple[Check, Context]] = field(default_factory=list)
    slots: list[tuple[Unit, str]] = field(default_factory=list)
    judged: dict[Unit, dict[str, list[Finding]]] = field(default_factory=dict)

    def findings(self, read: Sequence[Finding]) -> dict[Unit, Findings]:
        """By unit, from the findings of `checks` in their order (more may follow)."""
        for (unit, part), finding in zip(self.slots, read, strict=False):
            self.judged[unit][part].append(finding)
        return {
            unit: Findings(tuple(found["requires"]), tuple(found["ensures"]))
            for unit, found in self.judged.items()
        }


def act_of(step: Step) -> Act:
    """The step's `do`; ValueError for a gate."""
    if step.do is None:
        raise ValueError(f"step {step.id} is a gate and has no operation")
    return step.do


def readable_together(step: Step) -> bool:
    """Whether requires may be read along with ensures, before it is known that they matter.

    Not where a full reading takes hours (a plan has a cheaper one), nor where it needs the
    step's estimate, nor before an operator is asked.
    """
    return step.irreversible is None and not any(
        wants_estimate(check) or check.fact.for_plan(check.args) != check.args
        for check in step.requires
    )


def _previewing(
    act: Act, args: Mapping[str, Any], context: Context
) -> Generator[Shell, Output, Preview]:
    """A refusal of the operation is part of its preview, not a fault."""
    try:
        return (yield from act.operation.preview(args, context))
    except OperationFailed as refusal:
        return Preview(summary=f"would be refused: {refusal}", refused=True)


def _bound(check: Check, context: Context, estimate: Answer[Estimate] | None) -> tuple[Check, str]:
    """The check with its late references, or why one of them is not known."""
    host = context.fleet[check.host] if check.host else context.host
    if not wants_estimate(check):
        return bind_check(check, host), ""
    if estimate is None or estimate.value is None:
        reason = estimate.unknown if estimate else "the step has no estimate"
        return check, f"estimate: {reason}"
    return bind_check(check, host, sum(estimate.value.writes.values())), ""


def _unknown(check: Check, host: str, reason: str, at: float) -> Finding:
    return Finding(
        check=check,
        truth=Truth.UNKNOWN,
        wanted=", ".join(want.show() for want in check.wants),
        read="unknown",
        host=host,
        at=at,
        reason=reason,
    )
