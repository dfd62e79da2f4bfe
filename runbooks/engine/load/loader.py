"""`load_runbook`: a file to a `Runbook`, or every fault of it with its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from runbooks.engine.load.graph import order_of
from runbooks.engine.load.include import declared_names, special_keys
from runbooks.engine.load.part import Loading
from runbooks.engine.load.source import Source, read_source
from runbooks.engine.model.diagnostic import RunbookError, did_you_mean
from runbooks.engine.model.host import Host
from runbooks.engine.model.runbook import Runbook
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
    given = variables or {}
    _judge_overrides(source, given)
    part = Loading(registry, hosts).part(source, given)
    return Runbook(
        name=part.tree["runbook"],
        file=source.file,
        about=part.tree.get("about", ""),
        steps=part.steps,
        order=order_of(part.needs),
        variables=part.variables,
        secrets={name: secret for name, (secret, _) in part.secrets.items()},
        digest=part.digest,
    )


def _judge_overrides(source: Source, given: Mapping[str, str]) -> None:
    """RunbookError (usage) for a variable that neither the file nor an included one declares."""
    declared = source.tree.get(special_keys(source.tree)["vars"])
    others = [name for name in given if not isinstance(declared, dict) or name not in declared]
    if not others:
        return
    known, sure = declared_names(source)
    for name in others:
        if name not in known and (sure or "." not in name):
            raise RunbookError.usage(
                f"the runbook declares no variable '{name}'",
                where=f"-v {name}={given[name]}",
                hint=did_you_mean(name, known),
            )
