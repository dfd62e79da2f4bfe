"""Parses arguments by their types, and finds the hosts and roots that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runbooks.engine.load.collector import Collector
from runbooks.engine.load.places import NodePath
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.values import ListOf, MapOf, ValueType, split_root, typed_schema

__all__ = ["FAULT", "Named", "named_in", "parse_arguments", "parse_value"]

# Stands for a value that does not parse; the fault has been told.
FAULT: Any = object()
# What a fragment names: ("root" | "host", name, path).
Named = tuple[str, str, NodePath]


def parse_value(kind: ValueType, raw: Any, path: NodePath, found: Collector) -> Any:
    """The parsed value, or FAULT; a fault is told at the item where it is."""
    try:
        return kind.parse(raw)
    except ValueError as error:
        if isinstance(kind, ListOf) and isinstance(raw, list) and len(raw) >= kind.minimum:
            for index, item in enumerate(raw):
                parse_value(kind.item, item, (*path, index), found)
        elif isinstance(kind, MapOf) and isinstance(raw, dict):
            for key, item in raw.items():
                parse_value(kind.item, item, (*path, key), found)
        if not found.holds(path):
            text = str(error)
            found.value(path, f"{path[-1]} {text}" if text.startswith("is ") else text)
        return FAULT


def parse_arguments(
    arguments: Mapping[str, Argument], raw: Mapping[str, Any], path: NodePath, found: Collector
) -> dict[str, Any]:
    """Every declared argument: parsed, or its default where it is not written."""
    parsed = {}
    for name, argument in arguments.items():
        if name in raw:
            parsed[name] = parse_value(argument.type, raw[name], (*path, name), found)
        else:
            parsed[name] = argument.default
    return parsed


def named_in(kind: ValueType, raw: Any, path: NodePath) -> Iterator[Named]:
    """Roots and hosts that a written value names, found by the `x-type` of its schema."""
    yield from _named(typed_schema(kind), raw, path)


def _named(fragment: Mapping[str, Any], raw: Any, path: NodePath) -> Iterator[Named]:
    kind = fragment.get("x-type")
    if isinstance(raw, str):
        if kind == "root":
            yield "root", raw, path
        elif kind == "host":
            yield "host", raw, path
        elif kind in ("path", "root path") and (parts := split_root(raw)):
            yield "root", parts[0], path
    elif isinstance(raw, Mapping):
        for key, item in raw.items():
            inner = fragment.get("properties", {}).get(key) or _by_pattern(fragment, key)
            if isinstance(inner, Mapping):
                yield from _named(inner, item, (*path, key))
    elif isinstance(raw, Sequence):
        inner = fragment.get("items")
        if isinstance(inner, Mapping):
            for index, item in enumerate(raw):
                yield from _named(inner, item, (*path, index))


def _by_pattern(fragment: Mapping[str, Any], key: str) -> Any:
    for pattern, inner in fragment.get("patternProperties", {}).items():
        if re.search(pattern, key):
            return inner
    return None
