"""Registers this distribution's facts and operations with the engine."""

from __future__ import annotations

from deploy.facts import FACTS
from deploy.operations import OPERATIONS
from runbooks.engine.registry import Registry

__all__ = ["register"]


def register(registry: Registry) -> None:
    """The entry point `eagle3_runbooks.plugins: deploy`."""
    for fact in FACTS:
        registry.add_fact(fact)
    for operation in OPERATIONS:
        registry.add_operation(operation)
