"""`load_runbook`: a file to a `Runbook`, or every fault of it with its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runbooks.engine.load.building import Builder, build_secrets
from runbooks.engine.load.collector import Collector
from runbooks.engine.load.digest import runbook_digest
from runbooks.engine.load.graph import judge_needs, order_of
from runbooks.engine.load.plugins import load_plugins
from runbooks.engine.load.references import LateReference, Resolved, resolve
from runbooks.engine.load.semantics import Rules
from runbooks.engine.load.source import Source, read_source
from runbooks.engine.load.structure import structure_of
from runbooks.engine.model.diagnostic import RunbookError, did_you_mean, nearest
from runbooks.engine.model.host import Host
from runbooks.engine.model.runbook import Runbook, Step
from runbooks.engine.registry import Registry

__all__ = ["FOLDER", "find_runbook", "load_runbook", "load_source"]

FOLDER = Path("runbooks")
_SUFFIXES = (".yaml", ".yml")


def find_runbook(given: str, folder: Path = FOLDER) -> Path:
    """The file of a path or of a runbook's name; RunbookError (usage) with a near one."""
    path = Path(given)
    if path.is_file():
        return path
    named = folder / f"{given}.yaml"
    if path.suffix not in _SUFFIXES and len(path.parts) == 1:
        if named.is_file():
            return named
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        raise RunbookError.usage(
            f"no runbook '{given}' in {folder}", where=given, hint=did_you_mean(given, known)
        )
    if path.is_dir():
        raise RunbookError.usage("is a folder, not a runbook", where=given)
    beside = path.parent.glob("*.y*ml") if path.parent.is_dir() else ()
    hint = did_you_mean(path.name, sorted(file.name for file in beside))
    raise RunbookError.usage("no such file", where=given, hint=hint)


def load_runbook(
    file: Path,
    registry: Registry,
    hosts: Mapping[str, Host],
    variables: Mapping[str, str] | None = None,
) -> Runbook:
    """Read, resolve, validate, build; no host is contacted.

    Raises RunbookError with every fault, by line. `variables` override declared ones, in
    their declared types. Plugins that the runbook names are added to `registry`.
    """
    return load_source(read_source(file), registry, hosts, variables)


def load_source(
    source: Source,
    registry: Registry,
    hosts: Mapping[str, Host],
    variables: Mapping[str, str] | None = None,
) -> Runbook:
    """`load_runbook` for a file that has been read."""
    found = Collector(source.places)
    load_plugins(source.tree, registry, found)
    resolved = resolve(source.tree, variables or {}, found, _special_keys(source.tree))
    structure_of(registry).judge(resolved.tree, found)
    steps = _steps(resolved, registry, hosts, found)
    found.raise_if_any()
    tree = resolved.tree
    return Runbook(
        name=tree["runbook"],
        file=source.file,
        about=tree.get("about", ""),
        steps=steps,
        order=order_of({name: step.needs for name, step in steps.items()}),
        variables=resolved.variables,
        secrets=build_secrets(tree.get("secrets", {})),
        digest=runbook_digest(tree),
    )


def _special_keys(tree: Mapping[str, Any]) -> dict[str, str]:
    """The keys that hold vars and secrets, so that a misspelt one is the only error."""
    special = {}
    for key in ("vars", "secrets"):
        if key not in tree:
            near = [other for other in tree if nearest(other, ["vars", "secrets"]) == key]
            special[key] = near[0] if near else key
    return special


def _steps(
    resolved: Resolved, registry: Registry, hosts: Mapping[str, Host], found: Collector
) -> dict[str, Step]:
    raw_steps = resolved.tree.get("steps")
    if not isinstance(raw_steps, dict):
        return {}
    late: dict[str, list[LateReference]] = {}
    for reference in resolved.late:
        if reference.path[0] == "steps" and len(reference.path) > 2:
            late.setdefault(str(reference.path[1]), []).append(reference)
        else:
            found.value(
                reference.path,
                f"${{{{ {reference.space}.{reference.name} }}}} stands in steps only",
            )
    defaults = resolved.tree.get("defaults")
    sound = isinstance(defaults, dict) and not found.holds(("defaults",))
    rules = Rules(registry, hosts, found, late)
    builder = Builder(rules, found, defaults if sound and isinstance(defaults, dict) else {})
    # Steps with a fault in their shape cannot be built; the others are judged further.
    shaped = {name: raw for name, raw in raw_steps.items() if not found.touches(("steps", name))}
    judge_needs(raw_steps, found)
    built = {name: builder.build(name, raw) for name, raw in shaped.items()}
    return {name: step for name, step in built.items() if step is not None}
