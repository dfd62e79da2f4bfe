"""`matrix`: named axes of values; a step that uses an axis becomes one step for each value.

The instances of a step share its places in the file, so that a mistake in it is one mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from runbooks.engine.load.collector import Collector
from runbooks.engine.load.places import NodePath
from runbooks.engine.load.references import AXIS, is_hatch, texts_of
from runbooks.engine.load.variables import NAME, show_value

__all__ = ["MOST_INSTANCES", "Budget", "Instance", "Matrix", "instance_id", "parse_id"]

# Of all matrix steps together, whatever includes what; a plan reads each of them on each host.
MOST_INSTANCES = 1000
MOST_FILES = 100
# Values are parts of step ids, which stand in commands, file names and reports.
_VALUE = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
_ID = re.compile(r"([^\[\]]+)\[([^\[\]]+)\]")

Scalar = str | int | bool


@dataclass
class Budget:
    """What one load may still grow to, over all of its files."""

    instances: int = MOST_INSTANCES
    files: int = MOST_FILES


@dataclass(frozen=True, slots=True)
class Instance:
    """One step of those that a written step stands for; `values` by axis, `tree` without axes."""

    step: str
    id: str
    values: Mapping[str, Scalar]
    tree: Any


def instance_id(step: str, values: Mapping[str, Any]) -> str:
    """`extract[lang=en,shard=2]`; the step alone where it uses no axis.

    Axes stand in the order of their names: a YAML mapping has no order of its own, and the id
    names jobs and checkpoints on hosts, so moving a line of the matrix must not change it.
    """
    if not values:
        return step
    inner = ",".join(f"{axis}={show_value(values[axis])}" for axis in sorted(values))
    return f"{step}[{inner}]"


def parse_id(text: str) -> tuple[str, dict[str, str]] | None:
    """A written `extract[shard=2,lang=en]` as the step and its values; None for anything else."""
    match = _ID.fullmatch(text)
    if match is None:
        return None
    values: dict[str, str] = {}
    for part in match[2].split(","):
        axis, equals, value = part.strip().partition("=")
        if not equals or axis in values:
            return None
        values[axis] = value
    return match[1], values


class Matrix:
    """The axes of one file. An axis at fault is None, and steps that use it are not judged."""

    def __init__(self, tree: Mapping[str, Any], key: str, found: Collector):
        raw = tree.get(key)
        self.key = key
        self.found = found
        self.axes: dict[str, Sequence[Scalar] | None] = {}
        for axis, values in (raw if isinstance(raw, dict) else {}).items():
            if re.fullmatch(NAME, axis):
                self.axes[axis] = self._values((key, axis), values)

    def _values(self, path: NodePath, values: Any) -> Sequence[Scalar] | None:
        """The values, or None; a fault of their shape is told by the schema."""
        if not isinstance(values, list) or not values or self.found.touches(path):
            return None
        seen: dict[str, int] = {}
        for index, value in enumerate(values):
            here = (*path, index)
            if isinstance(value, float):
                self.found.value(
                    here,
                    f"{value} is a number with a fraction; the matrix takes text, whole numbers "
                    "and booleans",
                    f'as text, in quotes: "{value}"',
                )
            elif not isinstance(value, (str, int)) or "${{" in str(value):
                return None  # no scalar, or a reference that has no place here
            elif not _VALUE.fullmatch(show_value(value)):
                self.found.value(
                    here,
                    f"{value!r} cannot be part of a step's id; write letters, digits and _ . + -",
                    "at most 64 characters; keep paths in vars and their names here",
                )
            elif show_value(value) in seen:
                self.found.value(here, f"'{show_value(value)}' stands twice on axis '{path[-1]}'")
            seen[show_value(value)] = index
        return None if self.found.holds(path) else values

    def expand(self, steps: Mapping[str, Any], budget: Budget) -> dict[str, list[Instance]]:
        """Every written step as its instances, at least one; tells axes that nobody uses.

        Steps that cannot be expanded are marked, and stand as they are written.
        """
        used = {name: self._used(name, raw) for name, raw in steps.items()}
        self._tell_unused({axis for axes in used.values() for axis in axes})
        counts = {
            name: prod(len(self.axes[axis] or ()) for axis in axes)
            for name, axes in used.items()
            if axes
        }
        if (total := sum(counts.values())) > budget.instances:
            self.found.key(
                (self.key,),
                f"the matrix makes {total:,} steps; at most {budget.instances:,} may be",
                f"{MOST_INSTANCES:,} in all, over every included file",
            )
            counts = {}
        budget.instances -= sum(counts.values())
        expanded: dict[str, list[Instance]] = {}
        for name, raw in steps.items():
            if used[name] and not counts.get(name):
                # The axis at fault has been told; without its values nothing can be said.
                self.found.mark(("steps", name))
                expanded[name] = [Instance(name, name, {}, raw)]
            else:
                expanded[name] = list(self._instances(name, raw, used[name]))
        return expanded

    def _used(self, name: str, raw: Any) -> list[str]:
        names = {
            match[1] for text in texts_of(raw, ("steps", name)) for match in AXIS.finditer(text)
        }
        return sorted(names & set(self.axes))

    def _tell_unused(self, used: set[str]) -> None:
        if self.found.diagnostics:
            return  # a reference at fault may be the one that is missing
        for axis in self.axes:
            if axis not in used:
                self.found.key(
                    (self.key, axis),
                    f"no step uses axis '{axis}'",
                    f"write ${{{{ matrix.{axis} }}}} where the copies of a step differ, or remove it",
                )

    def _instances(self, name: str, raw: Any, axes: Sequence[str]) -> Iterator[Instance]:
        for values in product(*(self.axes[axis] or () for axis in axes)):
            chosen = dict(zip(axes, values, strict=True))
            tree = _filled(raw, chosen, ("steps", name)) if chosen else raw
            yield Instance(name, instance_id(name, chosen), chosen, tree)


def _filled(value: Any, values: Mapping[str, Scalar], path: NodePath) -> Any:
    """A tree with the values of axes in place; one that stands alone keeps its type."""
    if isinstance(value, str):
        if match := AXIS.fullmatch(value):
            return values.get(match[1], value)
        return AXIS.sub(
            lambda match: show_value(values[match[1]]) if match[1] in values else match[0], value
        )
    if isinstance(value, list):
        return [_filled(item, values, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {
            key: item if is_hatch(path, key) else _filled(item, values, (*path, key))
            for key, item in value.items()
        }
    return value
