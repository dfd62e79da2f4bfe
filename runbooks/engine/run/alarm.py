"""Warns once when long work is late or silent; ends nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from runbooks.engine.model.job import Progress
from runbooks.engine.model.runbook import Watch
from runbooks.engine.model.values import show_duration

__all__ = ["Alarm"]


@dataclass
class Alarm:
    """`warn(kind, text)` hears of `late` and of `silent`, each once."""

    watch: Watch
    warn: Callable[[str, str], None]
    _begun: float = field(default_factory=time.monotonic)
    _warned: set[str] = field(default_factory=set)

    def see(self, progress: Progress) -> None:
        late, silent = self.watch.late, self.watch.silent
        # A job may be older than this run, which attached to it.
        age = time.monotonic() - self._begun if progress.age is None else progress.age
        if late is not None and age > late:
            self._once("late", f"late: it takes longer than {show_duration(late)}")
        if silent is not None and progress.beat is not None and progress.beat > silent:
            self._once("silent", f"silent: no progress for {show_duration(progress.beat)}")

    def _once(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self.warn(kind, text)
