"""Events of a run, and the bus that carries them, redacted, to every sink."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError
from runbooks.engine.redact import Redactor

__all__ = ["SCHEMA_VERSION", "Bus", "Event", "Sink"]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `kind` is one of these words:

    `run` begins, `lock` (taken, taken over, lost), `facts` (a step's findings), `intent`
    (fsynced before the first mutating command of a step), `command` (one mutating command and
    its exit), `progress`, `outcome` (of a step on a host), `note`, `end`.
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
    """The one way out: every record passes the redactor before any sink sees it.

    A view whose reader went away is dropped, and the run goes on: what is done must be
    recorded. Where the journal cannot be written, no further intent passes.
    """

    def __init__(self, sinks: list[Sink], now: Callable[[], float] = time.time):
        self._sinks = sinks
        self._now = now
        self._lock = threading.Lock()
        self._journal: Sink | None = None
        self._journal_problem = ""
        self.redactor = Redactor()

    def add(self, sink: Sink) -> None:
        self._sinks.append(sink)

    def record_to(self, journal: Sink) -> None:
        """Give every record to `journal` first."""
        self._journal = journal
        self._journal_problem = ""

    def emit(self, kind: str, *, step: str = "", host: str = "", **data: Any) -> None:
        """Send one event to all sinks. RunbookError for an intent that cannot be recorded."""
        record = self.redactor.value(Event(kind, self._now(), step, host, data).record())
        with self._lock:
            self._write(record)
            for sink in list(self._sinks):
                try:
                    sink.take(record)
                except OSError:
                    self._sinks.remove(sink)
        if kind == "intent" and self._journal_problem:
            raise RunbookError(
                Diagnostic(
                    f"the journal cannot be written ({self._journal_problem}); nothing was done",
                    where=f"{step}@{host}",
                    hint="free some space for it, or set RUNBOOK_RUNS to another folder",
                    code=ExitCode.FAILED,
                )
            )

    def _write(self, record: Mapping[str, Any]) -> None:
        if self._journal is None or self._journal_problem:
            return
        try:
            self._journal.take(record)
        except OSError as error:
            self._journal_problem = error.strerror or str(error)
