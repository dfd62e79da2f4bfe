"""Events of a run, and the bus that carries them, redacted, to every sink."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from runbooks.engine.redact import Redactor

__all__ = ["SCHEMA_VERSION", "Bus", "Event", "Sink"]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; `kind` is one of the words of `docs` below.

    `run` begins, `plan`, `facts` (a step's findings), `intent` (fsynced before the first
    mutating command of a step), `command` (one mutating command and its exit), `progress`,
    `outcome` (of a step on a host), `note`, `end`.
    """

    kind: str
    at: float
    step: str = ""
    host: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As one JSON object; the schema version comes first."""
        record: dict[str, Any] = {"v": SCHEMA_VERSION, "event": self.kind, "at": round(self.at, 3)}
        if self.step:
            record["step"] = self.step
        if self.host:
            record["host"] = self.host
        return record | dict(self.data)


class Sink(Protocol):
    """Takes redacted records: a terminal, a journal, a JSON stream."""

    def take(self, record: Mapping[str, Any]) -> None: ...


class Bus:
    """The one way out: every record passes the redactor before any sink sees it."""

    def __init__(self, sinks: list[Sink], now: Callable[[], float] = time.time):
        self._sinks = sinks
        self._now = now
        self._lock = threading.Lock()
        self.redactor = Redactor()

    def add(self, sink: Sink) -> None:
        self._sinks.append(sink)

    def emit(self, kind: str, *, step: str = "", host: str = "", **data: Any) -> None:
        """Send one event to all sinks, in the order of their adding."""
        record = self.redactor.value(Event(kind, self._now(), step, host, data).record())
        with self._lock:
            for sink in self._sinks:
                sink.take(record)
