"""Where each value and each key of a YAML file stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbooks.engine.model.diagnostic import Place

__all__ = ["NodePath", "Places"]

# Keys and list indices from the top of the file: ("steps", "merge", "needs", 0).
NodePath = tuple[Any, ...]

_BREAK = re.compile(r"\r\n|\n|\r")


@dataclass
class Places:
    """Positions by node path; lines and columns count from 1, columns in characters.

    `blocks` are values without a line of their own (block mappings and lists, nothing at
    all): faults in them are shown at the key that holds them.
    """

    file: Path
    text: str
    values: dict[NodePath, tuple[int, int]] = field(default_factory=dict)
    keys: dict[NodePath, tuple[int, int]] = field(default_factory=dict)
    blocks: set[NodePath] = field(default_factory=set)

    def at(self, position: tuple[int, int]) -> Place:
        return Place(self.file, *position)

    def value(self, path: NodePath) -> Place:
        """A scalar or flow value where it stands; a block value at its key."""
        while path and path not in self.values:
            path = path[:-1]
        if path in self.blocks and path in self.keys:
            return self.at(self.keys[path])
        return self.at(self.values.get(path, (1, 1)))

    def key(self, path: NodePath) -> Place:
        """The key that holds a value; for a list item or the whole file, the value."""
        return self.at(self.keys[path]) if path in self.keys else self.value(path)

    def inside(self, path: NodePath, words: str) -> Place:
        """Where `words` begin within a scalar; the scalar itself where that is not plain.

        Only the scalar's first line is searched, since folding hides the rest.
        """
        place = self.value(path)
        lines = self.lines
        if place.line <= len(lines):
            column = lines[place.line - 1].find(words, place.column - 1)
            if column >= 0:
                return Place(self.file, place.line, column + 1)
        return place

    @property
    def lines(self) -> list[str]:
        return _BREAK.split(self.text)
