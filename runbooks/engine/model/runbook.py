"""A runbook after loading: steps with parsed arguments, every part with its place."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runbooks.engine.model.check import Check
from runbooks.engine.model.diagnostic import Place
from runbooks.engine.model.operation import Operation

__all__ = [
    "Act",
    "Estimate",
    "Irreversible",
    "Notify",
    "Retry",
    "Runbook",
    "Secret",
    "Step",
    "Watch",
]


@dataclass(frozen=True, slots=True)
class Act:
    """`do`, `release` or `undo`: one operation and its arguments."""

    operation: Operation
    args: Mapping[str, Any]
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a step will take: seconds and bytes by root, written down or computed.

    `source` names a registered estimator, `args` its arguments; `time`, `writes` and `frees`
    then stay as the file says (None, empty).
    """

    time: int | None = None
    writes: Mapping[str, int] = field(default_factory=dict)
    frees: Mapping[str, int] = field(default_factory=dict)
    source: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again `times` times after `wait` seconds (times `backoff`) on error classes `when`."""

    times: int = 0
    wait: int = 30
    backoff: float = 1.0
    when: tuple[str, ...] = ("unreachable",)


@dataclass(frozen=True, slots=True)
class Irreversible:
    """What is lost, and how it could be restored."""

    loses: str
    restore: str


@dataclass(frozen=True, slots=True)
class Watch:
    """When to warn about long work (seconds); nothing is ended."""

    late: int | None = None
    silent: int | None = None


@dataclass(frozen=True, slots=True)
class Notify:
    """Whom to tell, and of what: `when` holds `failed`, `finished`, `late`, `approval`.

    Exactly one of a program here and an address; `webhook` may be `${{ secrets.NAME }}`.
    """

    when: tuple[str, ...]
    command: tuple[str, ...] = ()
    webhook: str = ""


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret comes from: exactly one of an environment variable, a file, a command."""

    name: str
    env: str | None = None
    file: str | None = None
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """`requires` → `do` → `ensures` on `hosts` after `needs`; a gate has `requires` alone."""

    id: str
    place: Place
    needs: tuple[str, ...]
    hosts: tuple[str, ...]
    requires: tuple[Check, ...] = ()
    do: Act | None = None
    ensures: tuple[Check, ...] = ()
    about: str = ""
    timeout: int | None = None
    retry: Retry = Retry()
    estimate: Estimate | None = None
    watch: Watch = Watch()
    transient: bool = False
    release: Act | None = None
    undo: Act | None = None
    irreversible: Irreversible | None = None
    notify: Notify | None = None

    @property
    def gate(self) -> bool:
        return self.do is None


@dataclass(frozen=True, slots=True)
class Runbook:
    """A whole runbook; `steps` keep the file's order, `order` is one that respects `needs`.

    Steps, and variables, of an included file bear its name: `data.merge`, `data.samples`.
    `uncut` is the runbook that this one was narrowed from, or None.
    """

    name: str
    file: Path
    about: str
    steps: Mapping[str, Step]
    order: tuple[str, ...]
    variables: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    digest: str = ""
    uncut: Runbook | None = None

    @property
    def whole(self) -> Runbook:
        """With every step of the file."""
        return self.uncut or self

    def narrowed(self, ids: Collection[str]) -> Runbook:
        """These steps alone; `ids` hold everything that they wait for.

        The digest stays the file's: what is left out is said by the scope.
        """
        return replace(
            self,
            steps={name: step for name, step in self.steps.items() if name in ids},
            order=tuple(name for name in self.order if name in ids),
            uncut=self.whole,
        )

    def upstream(self, *step_ids: str) -> set[str]:
        """Every step that one of these waits for, directly or not."""
        found: set[str] = set()
        stack = [need for step_id in step_ids for need in self.steps[step_id].needs]
        while stack:
            current = stack.pop()
            if current not in found:
                found.add(current)
                stack.extend(self.steps[current].needs)
        return found

    def dependents(self, step_id: str) -> set[str]:
        """Every step that waits for `step_id`, directly or not."""
        found = {step_id}
        # In this order every step comes after what it needs.
        for other in self.order:
            if not found.isdisjoint(self.steps[other].needs):
                found.add(other)
        return found - {step_id}

    @property
    def hosts(self) -> frozenset[str]:
        """Hosts on which a step runs."""
        return frozenset(host for step in self.steps.values() for host in step.hosts)

    @property
    def consulted(self) -> frozenset[str]:
        """Hosts that a check names besides the steps' own (`host:`, `as:`)."""
        return frozenset(
            host
            for step in self.steps.values()
            for check in (*step.requires, *step.ensures)
            for host in _named(check)
        )


def _named(check: Check) -> set[str]:
    named = {check.host} if check.host else set()
    for name, argument in check.fact.arguments.items():
        if argument.type.name == "host" and check.args.get(name):
            named.add(check.args[name])
    return named
