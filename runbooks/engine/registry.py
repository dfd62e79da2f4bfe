"""The registry of facts, operations and estimators; schema and validation come from it.

A distribution registers its own through the entry-point group `eagle3_runbooks.plugins`
(a callable that takes the registry), a runbook through `plugins: [module:callable]`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from runbooks.engine.model.check import OPERATORS
from runbooks.engine.model.diagnostic import Diagnostic, RunbookError
from runbooks.engine.model.fact import Argument, Fact
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import Operation
from runbooks.engine.model.probe import Output, Shell
from runbooks.engine.model.runbook import Estimate, Step

__all__ = ["Estimator", "Registry", "installed"]

GROUP = "eagle3_runbooks.plugins"
# Keys that a check or a step gives a meaning of its own.
_RESERVED = {*OPERATORS, "host"}


@dataclass(frozen=True)
class Estimator:
    """Computes an estimate from facts: `estimate: {from: NAME, …}`.

    `compute` is a generator like a fact's `read`; it returns an `Estimate` of what *remains*,
    or raises Unknown (a dataset that is not there yet).
    """

    name: str
    about: str
    arguments: Mapping[str, Argument]
    compute: Callable[[Mapping[str, Any], Step, Context], Generator[Shell, Output, Estimate]]


@dataclass
class Registry:
    """Facts, operations and estimators by name."""

    facts: dict[str, Fact] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    estimators: dict[str, Estimator] = field(default_factory=dict)

    def add_fact(self, fact: Fact) -> None:
        """Register; raises ValueError on a name twice or a declaration that contradicts itself."""
        clash = (set(fact.arguments) | set(fact.fields)) & _RESERVED
        if clash:
            raise ValueError(f"fact {fact.name}: {', '.join(sorted(clash))} is a word of checks")
        if both := set(fact.arguments) & set(fact.fields):
            raise ValueError(f"fact {fact.name}: {', '.join(sorted(both))} is argument and field")
        if fact.value is not None and fact.value not in fact.fields:
            raise ValueError(f"fact {fact.name}: value '{fact.value}' is none of its fields")
        self._add(self.facts, "fact", fact.name, fact)

    def add_operation(self, operation: Operation) -> None:
        self._add(self.operations, "operation", operation.name, operation)

    def add_estimator(self, estimator: Estimator) -> None:
        self._add(self.estimators, "estimator", estimator.name, estimator)

    @staticmethod
    def _add(table: dict[str, Any], kind: str, name: str, item: object) -> None:
        if name in table:
            raise ValueError(f"{kind} {name} is registered twice")
        table[name] = item

    def load_plugin(self, reference: str) -> None:
        """Call `module:callable` with this registry; RunbookError when it cannot be."""
        module_name, _, attribute = reference.partition(":")
        try:
            register = getattr(importlib.import_module(module_name), attribute or "register")
            register(self)
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise RunbookError(
                Diagnostic(
                    f"plugin {reference!r} cannot be loaded: {error}",
                    hint="write module:callable; the callable takes the registry",
                )
            ) from error


def installed() -> Registry:
    """A fresh registry with what the installed distributions register.

    RunbookError when one of them cannot be loaded, or registers what contradicts another.
    """
    registry = Registry()
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            point.load()(registry)
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            owner = f" of {point.dist.name}" if point.dist is not None else ""
            raise RunbookError(
                Diagnostic(
                    f"the plugin '{point.name}'{owner} cannot be loaded: {error}",
                    where=point.value,
                    hint="install it again, or remove it",
                )
            ) from error
    return registry
