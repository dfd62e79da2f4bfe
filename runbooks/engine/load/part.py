"""One file as a part of a runbook: its own steps, joined with those of what it includes.

Each file is judged by itself, with its own variables, defaults and plugins; then the steps of an
included one get their names here (`data.merge`) and wait for what its entry says.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runbooks.engine.load.building import Builder, build_secrets
from runbooks.engine.load.collector import Collector
from runbooks.engine.load.digest import runbook_digest
from runbooks.engine.load.graph import Names, Needs, finals
from runbooks.engine.load.include import Entry, Trail, entries_of, special_keys
from runbooks.engine.load.matrix import Budget, Instance, Matrix
from runbooks.engine.load.plugins import load_plugins
from runbooks.engine.load.references import LateReference, Resolved, resolve
from runbooks.engine.load.semantics import Rules
from runbooks.engine.load.source import Source
from runbooks.engine.load.structure import structure_of
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, Place, RunbookError
from runbooks.engine.model.host import Host
from runbooks.engine.model.runbook import Secret, Step
from runbooks.engine.registry import Registry

__all__ = ["Loading", "Part"]

Declared = tuple[Secret, Place]


@dataclass(frozen=True, slots=True)
class Part:
    """A sound file with what it includes. Ids and `names` (what `needs` may name) are its own."""

    tree: Mapping[str, Any]
    steps: Mapping[str, Step]
    names: Mapping[str, tuple[str, ...]]
    variables: Mapping[str, Any]
    secrets: Mapping[str, Declared]
    digest: str

    @property
    def needs(self) -> dict[str, tuple[str, ...]]:
        return {name: step.needs for name, step in self.steps.items()}


@dataclass
class _Included:
    """What the entries of one file gave; `problems` are faults of the included files."""

    parts: list[tuple[Entry, Part]] = field(default_factory=list)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    blind: bool = False
    problems: list[Diagnostic] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _File:
    """The file that is being loaded, as its includes see it.

    `overrides` are of the command line, by the names that variables bear here; `prefix` is what
    names bear outside of it; `trail` ends with this file.
    """

    source: Source
    keys: Mapping[str, str]
    overrides: Mapping[str, str]
    prefix: str
    trail: Trail
    found: Collector


class Loading:
    """Loads a file and what it includes; `registry` gets what their plugins register."""

    def __init__(self, registry: Registry, hosts: Mapping[str, Host]):
        self.registry = registry
        self.hosts = hosts
        self.budget = Budget()
        # A file is judged by its own plugins: it must be valid wherever it is included.
        self._base = _copied(registry)

    def part(
        self,
        source: Source,
        overrides: Mapping[str, str],
        given: Mapping[str, Any] | None = None,
        prefix: str = "",
        trail: Trail | None = None,
    ) -> Part:
        """Raises RunbookError with every fault of the file and of what it includes.

        `overrides` are of the command line, `given` of the including file; `prefix` is what
        names of this file bear outside of it.
        """
        found = Collector(source.places)
        registry = _copied(self._base)
        load_plugins(source.tree, registry, found, self.registry)
        keys = special_keys(source.tree)
        file = _File(source, keys, overrides, prefix, (trail or Trail()).down(source.file), found)
        own = {name: text for name, text in overrides.items() if "." not in name}
        resolved = resolve(source.tree, own, found, keys, given, prefix)
        expanded = self._judge_shape(resolved, keys, registry, found)
        rules = self._rules(resolved, registry, found)
        included = self._include(file, resolved, expanded)
        # Steps with a fault in their shape cannot be built; the others are judged further.
        shaped = {name for name in expanded if not found.touches(("steps", name))}
        needs = self._needs(expanded, included, found)
        steps = self._build(resolved, rules, expanded, shaped)
        needs.judge_cycles()
        if found.diagnostics or included.problems:
            raise RunbookError(*found.ordered, *included.problems)
        secrets = _secrets(resolved.tree, included.parts, found)
        found.raise_if_any()
        return _joined(resolved, steps, expanded, included, needs, secrets)

    def _judge_shape(
        self,
        resolved: Resolved,
        keys: Mapping[str, str],
        registry: Registry,
        found: Collector,
    ) -> dict[str, list[Instance]]:
        """The steps as instances; the schema has judged each of them, a mistake once."""
        tree = resolved.tree
        raw = tree.get("steps")
        structure = structure_of(registry)
        if not isinstance(raw, dict):
            if keys["steps"] not in tree and "include" in tree:
                Matrix(tree, keys["matrix"], found).expand({}, self.budget)
            structure.judge(tree, found)
            return {}
        expanded = Matrix(tree, keys["matrix"], found).expand(raw, self.budget)
        firsts = {name: ones[0].tree for name, ones in expanded.items()}
        structure.judge({**tree, "steps": firsts}, found)
        for turn in _turns(expanded, found):
            structure.judge_steps({one.step: one.tree for one in turn}, found)
        return expanded

    # What the file includes.

    def _include(self, file: _File, resolved: Resolved, own: Iterable[str]) -> _Included:
        """Every entry that can be loaded; `own` are the steps of the file itself."""
        included = _Included()
        entries = entries_of(resolved.tree, own, file.found)
        raw = resolved.tree.get("include")
        included.blind = any(file.keys[key] != key for key in ("include", "steps")) or (
            "include" in resolved.tree and len(entries) < (len(raw) if isinstance(raw, list) else 1)
        )
        for entry in entries:
            try:
                part = self._one(entry, file)
            except RunbookError as error:
                if error.code is ExitCode.USAGE:
                    raise  # of the command line, not of a file
                part = None
                included.problems += [entry.place(file.found, item) for item in error.diagnostics]
            if part is None:
                included.broken |= {entry.alias}
                continue
            included.parts.append((entry, part))
            included.names[entry.alias] = tuple(map(entry.id, finals(part.needs)))
            for name, ids in part.names.items():
                included.names[entry.id(name)] = tuple(map(entry.id, ids))
        # A file that is included twice has its mistakes once.
        included.problems = list(
            {(item.place, item.message): item for item in reversed(included.problems)}.values()
        )[::-1]
        return included

    def _one(self, entry: Entry, file: _File) -> Part | None:
        inner = entry.open(file.source, file.trail, self.budget, file.found)
        if inner is None:
            return None
        below = {
            name.removeprefix(entry.id("")): text
            for name, text in file.overrides.items()
            if name.startswith(entry.id(""))
        }
        values = entry.values(inner, file.found)
        return self.part(inner, below, values, file.prefix + entry.id(""), file.trail)

    @staticmethod
    def _needs(
        expanded: Mapping[str, Sequence[Instance]], included: _Included, found: Collector
    ) -> Needs:
        names = Names(expanded, included.names, included.broken, included.blind)
        needs = Needs(names, found)
        above: dict[str, tuple[str, ...]] = {}
        aliases = [entry.alias for entry, _ in included.parts]
        for entry, part in included.parts:
            later = frozenset(aliases[aliases.index(entry.alias) + 1 :])
            needs.add_built(
                {entry.id(name): map(entry.id, others) for name, others in part.needs.items()}
            )
            roots = [entry.id(name) for name, others in part.needs.items() if not others]
            needs.add(
                roots,
                entry.needs,
                (*entry.path, "needs"),
                f"include '{entry.alias}'",
                {},
                names=replace(names, included=dict(above), later=later),
            )
            above |= {
                name: ids
                for name, ids in included.names.items()
                if name.partition(".")[0] == entry.alias
            }
        for name, instances in expanded.items():
            for one in instances:
                raw = one.tree.get("needs") if isinstance(one.tree, dict) else None
                path = ("steps", name, "needs")
                needs.add([one.id], raw, path, f"step '{name}'", one.values, but=name)
        return needs

    # Its own steps.

    def _rules(self, resolved: Resolved, registry: Registry, found: Collector) -> Rules:
        """Rules that know the references of each step; those elsewhere are judged here."""
        late: dict[str, list[LateReference]] = {}
        rules = Rules(registry, self.hosts, found, late)
        for reference in resolved.late:
            if reference.path[0] == "steps" and len(reference.path) > 2:
                late.setdefault(str(reference.path[1]), []).append(reference)
            else:
                rules.judge_elsewhere(reference)
        return rules

    @staticmethod
    def _build(
        resolved: Resolved,
        rules: Rules,
        expanded: Mapping[str, Sequence[Instance]],
        shaped: Container[str],
    ) -> dict[str, Step]:
        """The steps by id, waiting for nothing yet; those with a fault are left out, told."""
        found = rules.found
        defaults = resolved.tree.get("defaults")
        sound = isinstance(defaults, dict) and not found.holds(("defaults",))
        builder = Builder(rules, found, defaults if sound and isinstance(defaults, dict) else {})
        builder.judge_defaults()
        firsts = [ones[0] for name, ones in expanded.items() if name in shaped]
        built = {one.id: builder.build(one.step, one.tree) for one in firsts}
        for turn in _turns(expanded, found):
            built |= {one.id: builder.build(one.step, one.tree) for one in turn}
        # In the order of the file, and of the values.
        return {
            one.id: replace(step, id=one.id)
            for ones in expanded.values()
            for one in ones
            if (step := built.get(one.id)) is not None
        }


def _turns(
    expanded: Mapping[str, Sequence[Instance]], found: Collector
) -> Iterable[list[Instance]]:
    """The second instances of all sound steps, then the third, …: one that is at fault ends
    its step, so that no mistake is told for each value."""
    for index in range(1, max(map(len, expanded.values()), default=1)):
        turn = [
            ones[index]
            for name, ones in expanded.items()
            if len(ones) > index and not found.touches(("steps", name))
        ]
        if not turn:
            break
        found.instances = {one.step: one.id for one in turn}
        yield turn
    found.instances = {}


def _copied(registry: Registry) -> Registry:
    return Registry(dict(registry.facts), dict(registry.operations), dict(registry.estimators))


def _secrets(
    tree: Mapping[str, Any], parts: Sequence[tuple[Entry, Part]], found: Collector
) -> dict[str, Declared]:
    """The secrets of all files: one name is one secret, since a run reads each of them once."""
    secrets: dict[str, Declared] = {
        name: (secret, found.places.key(("secrets", name)))
        for name, secret in build_secrets(tree.get("secrets", {})).items()
    }
    for entry, part in parts:
        for name, declared in part.secrets.items():
            known = secrets.setdefault(name, declared)
            if known[0] != declared[0]:
                path = (*entry.path, "runbook")
                found.at(
                    found.places.value(path),
                    path,
                    f"two secrets are called '{name}': {entry.runbook} declares another one than "
                    f"{known[1].file.name}",
                    "declare it the same in both, or give one of them another name",
                    ((known[1], f"one '{name}'"), (declared[1], f"the other '{name}'")),
                )
    return secrets


def _joined(
    resolved: Resolved,
    steps: Mapping[str, Step],
    expanded: Mapping[str, Sequence[Instance]],
    included: _Included,
    needs: Needs,
    secrets: Mapping[str, Declared],
) -> Part:
    joined: dict[str, Step] = {}
    variables: dict[str, Any] = {}
    digests: dict[str, tuple[str, Sequence[str]]] = {}
    for entry, part in included.parts:
        waits: set[str] = set()
        for name, step in part.steps.items():
            here = entry.id(name)
            joined[here] = replace(step, id=here, needs=needs.of(here))
            waits |= set() if step.needs else set(needs.of(here))
        variables |= {entry.id(name): value for name, value in part.variables.items()}
        digests[entry.alias] = (part.digest, sorted(waits))
    joined |= {name: replace(step, needs=needs.of(name)) for name, step in steps.items()}
    names = dict(included.names)
    trees: dict[str, Mapping[str, Any]] = {}
    for name, ones in expanded.items():
        names[name] = tuple(one.id for one in ones)
        names |= {one.id: (one.id,) for one in ones if one.values}
        trees |= {one.id: {**one.tree, "needs": needs.of(one.id)} for one in ones}
    return Part(
        tree=resolved.tree,
        steps=joined,
        names=names,
        variables=variables | resolved.variables,
        secrets=secrets,
        digest=runbook_digest(resolved.tree, trees, digests),
    )
