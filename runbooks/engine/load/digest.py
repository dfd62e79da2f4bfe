"""The digest of a runbook: the same for everything that does the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["runbook_digest"]


def runbook_digest(
    tree: Mapping[str, Any],
    steps: Mapping[str, Mapping[str, Any]],
    included: Mapping[str, tuple[str, Sequence[str]]],
) -> str:
    """SHA-256 of what matters in a resolved tree.

    `steps` are its instances by id, with the ids that they wait for; `included` holds, by the
    name that an included file has here, its digest and the ids that it waits for.

    Comments, `about`, `x-` keys, the order of keys and needs, and variables and the matrix
    (already in place where they are used) do not change it.
    """
    top = _plain(tree, drop=("about", "vars", "matrix", "include"))
    top["defaults"] = _nested(tree.get("defaults", {}), 1)
    top["steps"] = {name: _step(step) for name, step in steps.items()}
    if included:
        top["include"] = {
            name: {"digest": digest, "needs": sorted(needs)}
            for name, (digest, needs) in included.items()
        }
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
    for part in ("retry", "estimate", "watch", "irreversible", "notify"):
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
