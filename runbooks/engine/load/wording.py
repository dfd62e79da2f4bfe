"""The words in which faults of a runbook's shape are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runbooks.engine.load.grammar import FOREIGN
from runbooks.engine.load.places import NodePath
from runbooks.engine.model.check import OPERATORS
from runbooks.engine.model.diagnostic import nearest
from runbooks.engine.model.values import ValueType
from runbooks.engine.registry import Registry

__all__ = [
    "Fault",
    "dependent",
    "expected",
    "holder",
    "kind_of",
    "meant_key",
    "named",
    "operators_hint",
    "refusal",
    "what_below",
]

_KIND_WORDS = {"object": "a mapping", "array": "a list", "string": "text"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One error of the schema: where, which rule with what value, in which fragment."""

    path: NodePath
    rule: str
    wanted: Any
    instance: Any
    schema: dict[str, Any]
    message: str


def meant_key(name: str, known: Mapping[str, Any], present: Mapping[str, Any]) -> str | None:
    """The known key that is not there yet and was probably meant."""
    free = [key for key in known if key not in present]
    foreign = FOREIGN.get(name)
    if foreign in free:
        return foreign
    return nearest(name, free) or nearest(name, known)


def what_below(path: NodePath) -> str:
    """What a key below `path` is called."""
    if not path:
        return "key"
    if path[0] == "steps" and len(path) > 1:
        if len(path) == 2:
            return "step key"
        if path[2] in ("do", "release", "undo"):
            return {3: "operation", 4: "argument"}.get(len(path), "key")
        if path[2] in ("requires", "ensures"):
            return {4: "fact", 5: "key of a fact"}.get(len(path), "key")
    return "key"


def holder(path: NodePath) -> str:
    """The mapping at `path` in words."""
    if not path:
        return "the runbook"
    if path[0] == "steps" and len(path) == 2:
        return f"step '{path[1]}'"
    return {"argument": f"operation '{path[-1]}'", "key of a fact": f"fact '{path[-1]}'"}.get(
        what_below(path), named(path)
    )


def named(path: NodePath) -> str:
    """The value at `path` in words: its key, or its place in a list."""
    if not path:
        return "the runbook"
    if isinstance(path[-1], int):
        return f"item {path[-1] + 1} of {named(path[:-1])}"
    if len(path) == 2 and path[0] == "steps":
        return f"step '{path[1]}'"
    return str(path[-1])


def kind_of(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "true or false" if isinstance(value, bool) else f"the value {value!r}"


def expected(error: Fault) -> str | None:
    kind = error.schema.get("type")
    if isinstance(kind, list):
        return "write " + ", ".join(kind)
    word = _KIND_WORDS.get(str(kind))
    about = error.schema.get("description")
    parts = [f"write {word}" if word else "", str(about) if about else ""]
    return "; ".join(part for part in parts if part) or None


def refusal(kind: ValueType, path: NodePath, error: Fault) -> str:
    """Why a type refuses the value; the schema's own words where the type accepts it."""
    if isinstance(error.instance, (dict, list)) and error.rule == "type":
        article = "an" if kind.name[:1] in "aeiou" else "a"
        due = "text" if kind.name == "text" else f"{article} {kind.name}"
        return f"{named(path)} is {kind_of(error.instance)}, not {due}"
    try:
        kind.parse(error.instance)
    except ValueError as refusal:
        text = str(refusal)
        return f"{named(path)} {text}" if text.startswith("is ") else text
    return f"{named(path)}: {error.message}"


def dependent(path: NodePath, key: str, name: str) -> tuple[str, str]:
    step = holder(path)
    if key == "do":
        return (
            f"{step} has do but lacks '{name}'",
            "ensures says what is true when the step is done; it decides skip and resume",
        )
    return (
        f"{step} is {key} but lacks '{name}'",
        "requires proves, right before the act, that nothing needed is lost",
    )


def operators_hint(registry: Registry, fact: str, known: Mapping[str, Any]) -> str:
    declared = registry.facts.get(fact)
    fitting = [name for name in OPERATORS if name in known]
    if declared is None or declared.value is None:
        fields = ", ".join(declared.fields) if declared else ""
        return f"it has no single value; compare its fields by equality: {fields}"
    kind = declared.fields[declared.value].type.name
    return f"its value '{declared.value}' is of type {kind}; fitting: {', '.join(fitting)}"
