"""What a plan or a run may act on: hosts by `--limit`, steps by `--from` and `--only`.

Whatever the scope, everything that a selected step waits for is still read and judged. A step
outside the scope is like a gate on its own `ensures`: it never acts, and where it does not
hold, what waits for it does not run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from runbooks.engine.model.diagnostic import RunbookError, did_you_mean
from runbooks.engine.model.runbook import Runbook

__all__ = ["EVERYTHING", "Scope", "narrowed", "refusal", "scope_of"]


@dataclass(frozen=True, slots=True)
class Scope:
    """The hosts and the steps that may act; None means all of them.

    `words` are the options that selected the steps: `--from extract, --only merge`.
    """

    limit: frozenset[str] | None = None
    selected: frozenset[str] | None = None
    words: str = ""

    def forbids(self, step: str, host: str) -> str | None:
        """Why a step must not act on a host, or None where it may."""
        if self.limit is not None and host not in self.limit:
            return "outside --limit"
        if self.selected is not None and step not in self.selected:
            return f"not selected by {self.words}"
        return None

    def __str__(self) -> str:
        hosts = [] if self.limit is None else [f"--limit {host}" for host in sorted(self.limit)]
        return " ".join([*hosts, *self.words.split(", ")]).strip() or "everything"


EVERYTHING = Scope()


def scope_of(
    runbook: Runbook,
    *,
    limit: Collection[str] | None = None,
    starts: Sequence[str] = (),
    only: Sequence[str] = (),
) -> Scope:
    """The scope that the options mean, each given any number of times.

    `starts` (`--from`) selects a step and everything that waits for it, `only` just the step.
    Raises RunbookError (usage) for a step that the runbook does not have.
    """
    selected: set[str] = set()
    for given in starts:
        for step in _steps(runbook, given, "--from"):
            selected |= {step} | runbook.dependents(step)
    for given in only:
        selected |= _steps(runbook, given, "--only")
    words = [f"--from {step}" for step in starts] + [f"--only {step}" for step in only]
    return Scope(
        limit=None if limit is None else frozenset(limit),
        selected=frozenset(selected) if words else None,
        words=", ".join(words),
    )


def _steps(runbook: Runbook, given: str, option: str) -> set[str]:
    """The step of that id, or every instance of a matrix step that was written so."""
    if given in runbook.steps:
        return {given}
    instances = {step for step in runbook.steps if step.startswith(f"{given}[")}
    if not instances:
        raise RunbookError.usage(
            f"'{given}' is no step of {runbook.name}",
            where=option,
            hint=did_you_mean(given, runbook.steps),
        )
    return instances


def narrowed(runbook: Runbook, scope: Scope) -> Runbook:
    """The selected steps and everything that they wait for; all of them without a selection."""
    if scope.selected is None:
        return runbook
    needed = {other for step in scope.selected for other in runbook.upstream(step)}
    return runbook.narrowed(needed | scope.selected)


def refusal(step: str, forbidden: str, because: str) -> str:
    """Why a step that may not act stops what waits for it.

    `purge-old is not satisfied: path data:old: directory, want absent; not selected by --from x`.
    """
    return f"{step} is not satisfied: {because}; {forbidden}"
