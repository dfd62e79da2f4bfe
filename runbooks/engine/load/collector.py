"""Gathers what is wrong with one file, so that one reading shows every mistake."""

from __future__ import annotations

from dataclasses import dataclass, field

from runbooks.engine.load.places import NodePath, Places
from runbooks.engine.model.diagnostic import Diagnostic, Place, RunbookError

__all__ = ["MOST_FAULTS", "Collector"]

# Enough to see a pattern; a file of a thousand aliases is one mistake a thousand times.
MOST_FAULTS = 50


@dataclass
class Collector:
    """Diagnostics of one file and the paths at fault, which nothing else judges again."""

    places: Places
    diagnostics: list[Diagnostic] = field(default_factory=list)
    faulty: set[NodePath] = field(default_factory=set)
    # Steps of which another instance than the first is being judged, by written name: a
    # fault that only this one has depends on its values, so the message says which it is.
    instances: dict[str, str] = field(default_factory=dict)
    # Every path that holds a fault, so that large files are judged in one pass.
    _holding: set[NodePath] = field(default_factory=set)

    def value(self, path: NodePath, message: str, hint: str | None = None) -> None:
        """A fault of a value."""
        self.at(self.places.value(path), path, message, hint)

    def key(self, path: NodePath, message: str, hint: str | None = None) -> None:
        """A fault of a key, or a key missing in the mapping that this key holds."""
        self.at(self.places.key(path), path, message, hint)

    def at(
        self,
        place: Place,
        path: NodePath,
        message: str,
        hint: str | None = None,
        related: tuple[tuple[Place, str], ...] = (),
    ) -> None:
        if len(path) > 1 and path[0] == "steps" and path[1] in self.instances:
            message += f" (in {self.instances[path[1]]})"
        self.diagnostics.append(Diagnostic(message, place, hint=hint, related=related))
        self.mark(path)
        if len(self.diagnostics) >= MOST_FAULTS:
            self.raise_if_any()

    def mark(self, path: NodePath) -> None:
        """Judge nothing at `path` again; its fault is told here or somewhere else."""
        if path:
            # A fault of the file as a whole leaves its parts to be judged.
            self.faulty.add(path)
            self._holding.update(path[:length] for length in range(1, len(path) + 1))

    def covers(self, path: NodePath) -> bool:
        """Whether something at or above `path` is at fault."""
        return any(path[:length] in self.faulty for length in range(1, len(path) + 1))

    def holds(self, path: NodePath) -> bool:
        """Whether something at or below `path` is at fault."""
        return path in self._holding

    def touches(self, path: NodePath) -> bool:
        """Whether something at, above or below `path` is at fault."""
        return self.holds(path) or self.covers(path)

    def raise_if_any(self) -> None:
        """Raise RunbookError with everything so far, by line (`at` does it at MOST_FAULTS)."""
        if self.diagnostics:
            raise RunbookError(*self.ordered)

    @property
    def ordered(self) -> list[Diagnostic]:
        """Everything so far, by line, each once."""
        return sorted(
            dict.fromkeys(self.diagnostics),
            key=lambda item: item.place or Place(self.places.file, 0),
        )
