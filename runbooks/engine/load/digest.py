"""The digest of a runbook: the same for everything that does the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["runbook_digest"]


def runbook_digest(tree: Mapping[str, Any]) -> str:
    """SHA-256 of what matters in a resolved tree.

    Comments, `about`, `x-` keys, the order of keys and needs, and variables (already in
    place where they are used) do not change it.
    """
    top = _plain(tree, drop=("about", "vars"))
    top["defaults"] = _nested(tree.get("defaults", {}), 1)
    top["steps"] = {name: _step(step) for name, step in tree["steps"].items()}
    text = json.dumps(top, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _plain(mapping: Mapping[str, Any], drop: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        key: value for key, value in mapping.items() if key not in drop and not key.startswith("x-")
    }


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    kept = _plain(step, drop=("about",))
    kept["needs"] = sorted(step["needs"])
    for part in ("do", "release", "undo"):
        if part in kept:
            kept[part] = _nested(kept[part], 1)
    for part in ("requires", "ensures"):
        if part in kept:
            kept[part] = [_nested(check, 1) for check in kept[part]]
    for part in ("retry", "estimate", "watch", "irreversible"):
        if part in kept:
            kept[part] = _plain(kept[part])
    return kept


def _nested(mapping: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """`x-` keys dropped here and `depth` levels down; deeper ones are arguments' own."""
    return {
        key: _nested(value, depth - 1) if depth and isinstance(value, dict) else value
        for key, value in mapping.items()
        if not key.startswith("x-")
    }
