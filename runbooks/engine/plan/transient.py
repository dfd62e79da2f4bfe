"""Whether a transient step is wanted now: one rule for plan, run and release.

Wanted while a dependent still has to run, and not otherwise; one that nobody needs, or that a
gate looks at, is always wanted. It is never touched while a dependent's job lives: a slow
health probe must not restart a server under its extraction. What is not known decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from runbooks.engine.inquiry import Answer
from runbooks.engine.model.check import Truth
from runbooks.engine.model.runbook import Step
from runbooks.engine.plan.survey import Findings, Survey, Unit

__all__ = ["TransientState", "Want", "dependents_of", "living_job", "transient_state"]


class Want(Enum):
    WANTED = "wanted"
    NOT_WANTED = "not wanted"
    LEFT = "left as it is"  # a dependent's job lives
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TransientState:
    """The word and the reason for it."""

    want: Want
    reason: str = ""


def dependents_of(survey: Survey, step: Step) -> list[tuple[Step, str]]:
    """Every step that waits for a transient one, on each of its hosts."""
    steps = survey.runbook.steps
    dependents = survey.runbook.dependents(step.id)
    return [
        (steps[other], host)
        for other in survey.runbook.order
        if other in dependents
        for host in steps[other].hosts
    ]


def living_job(alive: Mapping[Unit, Answer[bool]]) -> TransientState | None:
    """The dependent whose job lives, or of which that cannot be said; None without one."""
    for (other, host), answer in alive.items():
        if answer.value:
            return TransientState(Want.LEFT, f"the job of {other} on {host} lives")
    for (other, host), answer in alive.items():
        if not answer.known:
            return TransientState(
                Want.UNKNOWN, f"whether the job of {other} on {host} lives: {answer.unknown}"
            )
    return None


def transient_state(
    survey: Survey,
    step: Step,
    findings: Mapping[Unit, Findings],
    alive: Mapping[Unit, Answer[bool]],
    *,
    moves: bool = False,
) -> TransientState:
    """`findings` and `alive` are of the dependents at least; `moves` says that something they
    wait for will change the world, so that what they ensure now does not count."""
    units = dependents_of(survey, step)
    mine = {(other.id, host): (other, host) for other, host in units}
    if (state := living_job({unit: alive[unit] for unit in mine if unit in alive})) is not None:
        return state
    if not units or any(other.gate for other, _ in units) or moves:
        return TransientState(Want.WANTED)
    truths = {
        unit: findings[unit].truth("ensures")
        for unit, (other, _) in mine.items()
        if not other.transient
    }
    if Truth.FALSE in truths.values():
        return TransientState(Want.WANTED)
    for (other_id, host), truth in truths.items():
        if truth is Truth.UNKNOWN:
            reason = f"whether {other_id} on {host} still has to run is unknown"
            return TransientState(Want.UNKNOWN, reason)
    return TransientState(Want.NOT_WANTED, "no dependent has to run")
