"""`include`: the entries of a file, the files that they name, and the variables given to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os.path import isdir, isfile
from pathlib import Path
from typing import Any

from runbooks.engine.load.collector import Collector
from runbooks.engine.load.matrix import Budget
from runbooks.engine.load.places import NodePath
from runbooks.engine.load.source import Source, read_source
from runbooks.engine.load.variables import unfit
from runbooks.engine.model.diagnostic import Diagnostic, RunbookError, did_you_mean, nearest

__all__ = ["Entry", "Trail", "declared_names", "entries_of", "special_keys"]

MOST_DEEP = 8
_SPECIAL = ("vars", "secrets", "matrix", "include", "steps")


def special_keys(tree: Mapping[str, Any]) -> dict[str, str]:
    """The keys that hold what references and needs name, so that a misspelt one is the only error."""
    special = {}
    for key in _SPECIAL:
        near = [other for other in tree if key not in tree and nearest(other, _SPECIAL) == key]
        special[key] = near[0] if near else key
    return special


@dataclass(frozen=True, slots=True)
class Trail:
    """The files that are being loaded, from the outermost to this one."""

    files: tuple[Path, ...] = ()

    def down(self, file: Path) -> Trail:
        return Trail((*self.files, file))

    def cycle(self, file: Path) -> str | None:
        """The circle that including `file` would close, in words."""
        resolved = [one.resolve() for one in self.files]
        if file.resolve() not in resolved:
            return None
        start = resolved.index(file.resolve())
        return " → ".join(map(str, [*self.files[start:], self.files[start]]))


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of `include`; `needs` and `given` (values of variables) as they are written."""

    index: int
    alias: str
    runbook: str
    needs: Any
    given: Mapping[str, Any]

    @property
    def path(self) -> NodePath:
        return ("include", self.index)

    def id(self, name: str) -> str:
        """What a name of the included file is called here."""
        return f"{self.alias}.{name}"

    def open(self, source: Source, trail: Trail, budget: Budget, found: Collector) -> Source | None:
        """The included file; None where it cannot be had, which is told at the entry.

        RunbookError with places of its own where it is no YAML.
        """
        file = source.file.parent / self.runbook
        path = (*self.path, "runbook")
        budget.files -= 1
        # `isfile` and `isdir` take any text, however long or odd.
        if not isfile(file):  # noqa: PTH113
            beside = file.parent.glob("*.y*ml") if isdir(file.parent) else ()  # noqa: PTH112
            hint = did_you_mean(file.name, (one.name for one in beside))
            found.value(path, f"no such file: {file}", hint)
        elif cycle := trail.cycle(file):
            found.value(path, f"runbooks include each other in a cycle: {cycle}")
        elif len(trail.files) > MOST_DEEP:
            found.value(path, f"includes are more than {MOST_DEEP} deep")
        elif budget.files < 0:
            found.value(path, "too many files are included")
        else:
            try:
                return read_source(file)
            except RunbookError as error:
                if error.diagnostics[0].place is not None:
                    raise
                found.value(path, f"{file} {error.diagnostics[0].message}")
        return None

    def values(self, source: Source, found: Collector) -> dict[str, Any]:
        """The given values that fit; what does not is told at the entry."""
        declared = source.tree.get(special_keys(source.tree)["vars"], {})
        if not isinstance(declared, dict):
            return {}
        fitting: dict[str, Any] = {}
        for name, value in self.given.items():
            path = (*self.path, "vars", name)
            if found.touches(path):
                continue
            if name not in declared:
                message = f"{self.runbook} declares no variable '{name}'"
                hint = did_you_mean(name, declared) or "it declares none"
                if hint.startswith("did"):
                    message, hint = f"{message}; {hint}", ""
                found.key(path, message, hint or None)
            elif (problem := unfit(declared[name], value)) is not None:
                found.value(path, f"{name}: {problem}, as {self.runbook} declares")
            else:
                fitting[name] = value
        return fitting

    def place(self, found: Collector, item: Diagnostic) -> Diagnostic:
        """A fault of the included file, with where it is included from."""
        here = found.places.value((*self.path, "runbook"))
        return Diagnostic(
            item.message,
            item.place,
            item.where,
            item.hint,
            item.code,
            (*item.related, (here, f"included as '{self.alias}'")),
        )


def entries_of(tree: Mapping[str, Any], steps: Iterable[str], found: Collector) -> list[Entry]:
    """The sound entries. Tells names that two of them have, or one and a step of this file."""
    entries: list[Entry] = []
    raw = tree.get("include")
    for index, item in enumerate(raw if isinstance(raw, list) else ()):
        path = ("include", index)
        alone = all(not found.holds((*path, key)) for key in ("as", "runbook"))
        if not isinstance(item, dict) or found.covers(path) or not alone:
            continue
        alias, runbook = item.get("as"), item.get("runbook")
        if not isinstance(alias, str) or not isinstance(runbook, str):
            continue
        if alias in (entry.alias for entry in entries):
            found.value((*path, "as"), f"two includes are called '{alias}'")
            continue
        given = item.get("vars")
        entries.append(
            Entry(
                index,
                alias,
                runbook,
                item.get("needs", []),
                given if isinstance(given, dict) else {},
            )
        )
    known = {entry.alias: entry for entry in entries}
    for name in steps:
        alias, dot, _ = name.partition(".")
        if alias in known:
            what = f"begins with '{alias}.'" if dot else "is also the name of an include"
            found.key(
                ("steps", name),
                f"step '{name}' {what}; those names belong to the steps of {known[alias].runbook}",
                "give the step, or the include, another name",
            )
    return entries


def declared_names(
    source: Source, depth: int = 0, budget: Budget | None = None
) -> tuple[list[str], bool]:
    """Every variable that the command line may set (`data.samples`), for a hint.

    False where an included file cannot be read, so that there may be more.
    """
    budget = budget or Budget()
    keys = special_keys(source.tree)
    declared = source.tree.get(keys["vars"])
    names = list(declared) if isinstance(declared, dict) else []
    sure = True
    included = source.tree.get(keys["include"])
    for item in included if isinstance(included, list) else ():
        alias = item.get("as") if isinstance(item, dict) else None
        budget.files -= 1
        if not isinstance(alias, str) or depth >= MOST_DEEP or budget.files < 0:
            sure = False
            continue
        try:
            inner, all_of_it = declared_names(
                read_source(source.file.parent / str(item.get("runbook"))), depth + 1, budget
            )
        except RunbookError:
            sure = False
            continue
        sure = sure and all_of_it
        names += [f"{alias}.{name}" for name in inner]
    return names, sure
