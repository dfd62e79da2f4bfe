"""Judges the shape of a runbook by the schema, and says every fault in an author's words.

One mistake gives one error: what only follows from another fault (a misspelt key is also a
missing one) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jsonschema import Draft202012Validator

from runbooks.engine.load.collector import MOST_FAULTS, Collector
from runbooks.engine.load.places import NodePath
from runbooks.engine.load.schema import SchemaBuilder
from runbooks.engine.load.wording import (
    Fault,
    dependent,
    expected,
    holder,
    kind_of,
    meant_key,
    named,
    operators_hint,
    refusal,
    what_below,
)
from runbooks.engine.model.check import OPERATORS
from runbooks.engine.model.diagnostic import did_you_mean
from runbooks.engine.model.values import (
    Boolean,
    Choice,
    Duration,
    HostName,
    HostPath,
    Integer,
    Number,
    Percent,
    RootName,
    RootPath,
    Size,
    Text,
    ValueType,
)
from runbooks.engine.registry import Registry

__all__ = ["Structure", "structure_of"]

# Types by name, for fragments within a type that the engine does not know.
_BY_NAME: dict[str, ValueType] = {
    kind.name: kind
    for kind in (
        Boolean(),
        Duration(),
        HostName(),
        HostPath(),
        Integer(),
        Number(),
        Percent(),
        RootName(),
        RootPath(),
        Size(),
        Text(),
    )
}


class Structure:
    """The compiled schema of one registry."""

    def __init__(self, registry: Registry):
        self.registry = registry
        builder = SchemaBuilder(registry)
        self.schema = builder.build()
        self.types = builder.types
        self.validator = Draft202012Validator(self.schema)

    def faults(self, tree: Mapping[str, Any]) -> Iterator[Fault]:
        """Every fault that the schema finds, in no order."""
        for error in self.validator.iter_errors(tree):
            yield Fault(
                path=tuple(error.absolute_path),
                rule=str(error.validator),
                wanted=error.validator_value,
                instance=error.instance,
                schema=error.schema if isinstance(error.schema, dict) else {},
                message=error.message,
            )

    def judge(self, tree: Mapping[str, Any], found: Collector) -> None:
        """Add what is wrong with the tree's shape."""
        _Judge(self, found).judge(tree)

    def judge_steps(self, steps: Mapping[str, Any], found: Collector) -> None:
        """The same for steps alone: further instances of ones that have been judged."""
        _Judge(self, found).judge({"runbook": "instances", "steps": steps})


_structures: dict[tuple[int, ...], tuple[tuple[object, ...], Structure]] = {}


def structure_of(registry: Registry) -> Structure:
    """The compiled schema, made once for the same facts, operations and estimators."""
    parts = (
        *registry.facts.values(),
        *registry.operations.values(),
        *registry.estimators.values(),
    )
    # The parts are kept beside the result, so that their ids stay theirs.
    key = tuple(map(id, parts))
    if key not in _structures:
        if len(_structures) >= 8:
            _structures.clear()
        snapshot = Registry(
            dict(registry.facts), dict(registry.operations), dict(registry.estimators)
        )
        _structures[key] = (parts, Structure(snapshot))
    return _structures[key][1]


@dataclass
class _Mapping:
    """What is wrong with the keys of one mapping."""

    unknown: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    # Known keys that unknown ones were probably meant to be.
    meant: set[str] = field(default_factory=set)
    error: Fault | None = None


class _Judge:
    def __init__(self, structure: Structure, found: Collector):
        self.structure = structure
        self.registry = structure.registry
        self.found = found
        self.places = found.places
        self.mappings: dict[NodePath, _Mapping] = {}

    def judge(self, tree: Mapping[str, Any]) -> None:
        if "steps" not in tree and "include" not in tree:
            self._mapping(()).missing.append("steps")
        others: list[tuple[NodePath, Fault]] = []
        for error in self.structure.faults(tree):
            path = error.path
            if self.found.covers(path):
                continue
            if error.rule == "additionalProperties":
                self._note_unknown(path, error)
            elif error.rule == "required":
                self._mapping(path).missing += [
                    name for name in error.wanted if name not in error.instance
                ]
            else:
                others.append((path, error))
        for path, mapping in self.mappings.items():
            self._tell_unknown(path, mapping)
        for path, mapping in self.mappings.items():
            self._tell_missing(path, mapping)
        for path, error in others:
            self._tell_other(path, error)

    def _mapping(self, path: NodePath) -> _Mapping:
        return self.mappings.setdefault(path, _Mapping())

    def _note_unknown(self, path: NodePath, error: Fault) -> None:
        patterns = error.schema.get("patternProperties", {})
        known = error.schema.get("properties", {})
        mapping = self._mapping(path)
        mapping.error = error
        for name in error.instance:
            if name in known or any(re.search(pattern, name) for pattern in patterns):
                continue
            mapping.unknown.append(name)
            if len(mapping.unknown) > MOST_FAULTS:
                break
            if self._is_indented(path, name):
                # A key of the step that slipped below `do` is not missing as well.
                self._mapping(path[:-1]).meant.add(name)
            elif meant := meant_key(name, known, error.instance):
                mapping.meant.add(meant)

    def _is_indented(self, path: NodePath, name: str) -> bool:
        step = self.structure.schema["$defs"]["step"]["properties"]
        return what_below(path) == "operation" and name in step

    def _tell_unknown(self, path: NodePath, mapping: _Mapping) -> None:
        if mapping.error is None:
            return
        known = mapping.error.schema.get("properties", {})
        lost = [name for name in mapping.missing if name not in mapping.meant]
        for name in mapping.unknown:
            message, hint = self._unknown(path, name, known, mapping.error)
            single = len(mapping.unknown) == 1 and len(lost) == 1
            if single and not meant_key(name, known, mapping.error.instance):
                # One key too many and one too few are one mistake.
                message += f"; '{lost[0]}' is missing here"
                mapping.meant.add(lost[0])
            self.found.key((*path, name), message, hint)

    def _unknown(
        self, path: NodePath, name: str, known: Mapping[str, Any], error: Fault
    ) -> tuple[str, str | None]:
        """What to say of a key that nobody knows."""
        if path == ("steps",) and {"[", "]"} & set(name):
            return (
                f"'{name}' holds brackets, which are for the steps of a matrix",
                "write the step once, with ${{ matrix.AXIS }} where its copies differ",
            )
        if not known:
            pattern = next(iter(error.schema.get("patternProperties", {})), "")
            return f"'{name}' is no name here; write letters, digits, _ and -", (
                f"names match {pattern}" if pattern else None
            )
        what = what_below(path)
        meant = meant_key(name, known, error.instance)
        if what == "fact" and name in self.registry.operations:
            return f"'{name}' is an operation, not a fact; it stands below do", None
        if what == "operation" and name in self.registry.facts:
            return f"'{name}' is a fact, not an operation; it stands in requires or ensures", None
        if self._is_indented(path, name):
            return f"'{name}' is a key of the step, not an operation; indent it less", None
        if what == "step key" and name in self.registry.operations:
            return f"'{name}' is an operation; write do: {{{name}: …}}", None
        if name in OPERATORS and what == "key of a fact":
            return f"'{name}' does not fit fact '{path[-1]}'", operators_hint(
                self.registry, str(path[-1]), known
            )
        if name == "host" and what == "key of a fact":
            return "'host' stands beside the fact, not in it; indent it less", None
        message = f"unknown {what} '{name}'"
        if meant:
            return f"{message}; did you mean '{meant}'?", None
        return message, did_you_mean(name, known)

    def _tell_missing(self, path: NodePath, mapping: _Mapping) -> None:
        for name in mapping.missing:
            if name not in mapping.meant:
                self.found.key(path, f"{holder(path)} lacks '{name}'", self._about(path, name))

    def _about(self, path: NodePath, name: str) -> str | None:
        """What the missing key is for."""
        definitions = self.structure.schema["$defs"]
        if len(path) == 2 and path[0] == "steps":
            keys = definitions["step"]["properties"]
        elif not path:
            keys = self.structure.schema["properties"]
        elif what_below(path) == "key of a fact":
            keys = definitions.get(f"fact.{path[-1]}", {}).get("properties", {})
        elif what_below(path) == "argument":
            keys = definitions.get(f"operation.{path[-1]}", {}).get("properties", {})
        else:
            return None
        about = keys.get(name, {}).get("description")
        return f"{name}: {about}" if about else None

    def _tell_other(self, path: NodePath, error: Fault) -> None:
        kind = self._type(error)
        rule = error.rule
        mapping = self.mappings.get(path)
        if mapping and mapping.unknown and rule in ("minProperties", "maxProperties"):
            return
        if path in self.found.faulty and rule != "dependentRequired":
            return
        if error.instance is None:
            self.found.value(path, f"{named(path)} has no value", expected(error))
        elif rule == "dependentRequired":
            self._tell_dependent(path, error)
        elif kind is not None:
            self.found.value(path, refusal(kind, path, error))
        elif rule in ("minProperties", "maxProperties"):
            self._tell_count(path, error)
        elif rule == "enum":
            hint = did_you_mean(str(error.instance), error.wanted)
            self.found.value(path, f"unknown {named(path)} '{error.instance}'", hint)
        elif rule in ("minItems", "minLength"):
            self.found.value(path, f"{named(path)} is empty", expected(error))
        elif rule == "type":
            self.found.value(path, f"{named(path)} is {kind_of(error.instance)}", expected(error))
        else:
            self.found.value(path, f"{named(path)}: {error.message}")

    def _type(self, error: Fault) -> ValueType | None:
        kind = self.structure.types.get(id(error.schema))
        if kind is None and "x-type" in error.schema:
            if error.schema.get("enum"):
                return Choice(tuple(error.schema["enum"]))
            return _BY_NAME.get(error.schema["x-type"])
        return kind

    def _tell_dependent(self, path: NodePath, error: Fault) -> None:
        """A key that another key of the step asks for."""
        if path in self.found.faulty:
            return
        meant = self.mappings[path].meant if path in self.mappings else set()
        for key, wanted in error.wanted.items():
            if key not in error.instance:
                continue
            for name in wanted:
                if name in error.instance or name in meant:
                    continue
                if key == "irreversible" and self._destructive(error.instance):
                    continue  # told at the operation
                if key == "release":
                    self.found.key(
                        (*path, key), "release is for transient steps; add transient: true"
                    )
                else:
                    self.found.key(path, *dependent(path, key, name))

    def _destructive(self, step: Mapping[str, Any]) -> bool:
        do = step.get("do")
        return isinstance(do, dict) and any(
            name in self.registry.operations and self.registry.operations[name].destructive
            for name in do
        )

    def _tell_count(self, path: NodePath, error: Fault) -> None:
        names = [str(name) for name in error.instance]
        what = what_below((*path,))
        if error.rule == "minProperties" and not names:
            self.found.value(path, f"{named(path)} is empty", expected(error))
        elif what == "operation":
            listed = " and ".join(names)
            self.found.value(
                path,
                f"one operation per step: {path[-1]} holds {listed}",
                "make a step of each, joined by needs",
            )
        elif what == "fact" and names == ["host"]:
            self.found.value(path, "this check names a host but no fact")
        elif what == "fact":
            facts = " and ".join(name for name in names if name != "host")
            self.found.value(
                path, f"one fact per check: this one holds {facts}", "write - for each"
            )
        else:
            self.found.value(
                path, f"{named(path)} holds {' and '.join(names)}; write exactly one of them"
            )
