"""Plugins that a runbook names: more facts and operations, before the schema is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runbooks.engine.load.collector import Collector
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.registry import Registry

__all__ = ["load_plugins"]


def load_plugins(
    tree: Mapping[str, Any], registry: Registry, found: Collector, whole: Registry
) -> None:
    """Add what `plugins` register; a second load of the same plugin changes nothing.

    `registry` is what this file is judged by, `whole` what all included files register.
    """
    named = tree.get("plugins")
    if not isinstance(named, list):
        return
    for index, reference in enumerate(named):
        if not isinstance(reference, str) or not reference:
            continue
        path = ("plugins", index)
        extra = Registry()
        try:
            extra.load_plugin(reference)
            _merge(extra, registry)
            _merge(extra, whole)
        except RunbookError as error:
            found.value(path, error.diagnostics[0].message, error.diagnostics[0].hint)
        except Exception as error:
            # A plugin is its author's code: whatever it raises is a fault of the runbook.
            found.value(path, f"plugin {reference!r} failed: {type(error).__name__}: {error}")


def _merge(extra: Registry, registry: Registry) -> None:
    """Raises ValueError where another distribution registered the same name."""
    for kind in ("facts", "operations", "estimators"):
        known, added = getattr(registry, kind), getattr(extra, kind)
        for name, item in added.items():
            if name in known and type(known[name]) is not type(item):
                raise ValueError(f"{name} is registered by another distribution")
        for name, item in added.items():
            known.setdefault(name, item)
