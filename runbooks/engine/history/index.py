"""The tables of the index of all runs: made from the journals, and from nothing else."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbooks.engine.history.runs import RunRecord, Stamp, Unit, process_lives, read_run, text
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.run.journal import FILE

__all__ = ["Index", "Interrupted", "RunRow"]

# Raise it with every change of the tables, or of how a value of them comes from a journal: an
# index of another number is made anew.
SCHEMA = 1
_TABLES = """
CREATE TABLE runs (
  run TEXT PRIMARY KEY, size INTEGER, changed_ns INTEGER, runbook TEXT, file TEXT, operator TEXT,
  controller TEXT, door TEXT, hosts TEXT, copied TEXT, pid INTEGER, boot TEXT, begun REAL, last REAL,
  ended INTEGER, exit INTEGER, changed INTEGER, failed INTEGER, problem TEXT
);
CREATE INDEX runs_by_time ON runs (runbook, begun);
CREATE TABLE steps (
  run TEXT, step TEXT, host TEXT, result TEXT, begun REAL, last REAL, seconds REAL,
  acted INTEGER, PRIMARY KEY (run, step, host)
);
CREATE TABLE intents (
  run TEXT, step TEXT, host TEXT, at REAL, operation TEXT, summary TEXT, interrupted INTEGER
);
CREATE INDEX intents_by_run ON intents (run);
"""
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
# Of a journal that could not be read: it is tried again each time.
_NEVER = Stamp(-1, -1)


@dataclass(frozen=True, slots=True)
class Interrupted:
    """An intent without an outcome: what the step did to the host, nobody knows.

    `at` is when the intent was written (seconds since the epoch); `lives`: a process of the
    run's number lives on this machine, so the run perhaps goes on.
    """

    run: str
    step: str
    host: str
    at: float
    operation: str
    summary: str
    lives: bool


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run in a list. Times are seconds since the epoch, 0 where nothing tells them; `exit`
    is None without an end; `problem` says why its journal cannot be read, or not whole; `copied`
    names the hosts whose copies are all that is known of it here."""

    run: str
    runbook: str
    file: str
    operator: str
    controller: str
    door: str
    hosts: tuple[str, ...]
    copied: tuple[str, ...]
    begun: float
    last: float
    ended: bool
    exit: int | None
    changed: int
    failed: int
    problem: str
    lives: bool
    interrupted: tuple[Interrupted, ...]


class Index:
    """The tables of one runs folder, refreshed when made. May raise sqlite3.Error."""

    def __init__(self, database: sqlite3.Connection, runs: Path):
        self._database = database
        self._database.row_factory = sqlite3.Row
        self._runs = runs
        self._prepare()
        self._refresh()

    def ids(self) -> list[str]:
        """All runs, newest first."""
        return [
            row["run"] for row in self._ask("SELECT run FROM runs ORDER BY begun DESC, run DESC")
        ]

    def runbooks(self) -> list[str]:
        """The names of the runbooks that ever ran."""
        return [
            row["runbook"]
            for row in self._ask("SELECT DISTINCT runbook FROM runs WHERE runbook != '' ORDER BY 1")
        ]

    def rows(self, runbook: str | None = None, limit: int | None = None) -> list[RunRow]:
        """Newest first, at most `limit`; those of one runbook, or all."""
        found = self._ask(
            "SELECT * FROM runs WHERE ?1 IS NULL OR runbook = ?1"
            " ORDER BY begun DESC, run DESC LIMIT ?2",
            runbook,
            -1 if limit is None else limit,
        )
        return [self._row(dict(row)) for row in found]

    def newest(self, runbook: str, but: str = "") -> RunRow | None:
        """The newest run of a runbook besides `but`; ending a job of it is no run."""
        found = self._ask(
            "SELECT * FROM runs WHERE runbook = ? AND run != ? AND door != 'cancel'"
            " ORDER BY begun DESC, run DESC LIMIT 1",
            runbook,
            but,
        )
        return self._row(dict(found[0])) if found else None

    def count(self, runbook: str | None = None) -> int:
        found = self._ask("SELECT COUNT(*) FROM runs WHERE ?1 IS NULL OR runbook = ?1", runbook)
        return int(found[0][0])

    def _ask(self, query: str, *values: object) -> list[sqlite3.Row]:
        return self._database.execute(query, values).fetchall()

    def _row(self, values: dict[str, Any]) -> RunRow:
        for name in ("size", "changed_ns"):
            del values[name]
        lives = not values["ended"] and process_lives(values["pid"], values["boot"])
        for name in ("pid", "boot"):
            del values[name]
        return RunRow(
            **values
            | {
                "hosts": tuple(json.loads(values["hosts"])),
                "copied": tuple(json.loads(values["copied"])),
                "ended": bool(values["ended"]),
                "lives": lives,
                "interrupted": tuple(self._interrupted(values["run"], lives)),
            }
        )

    def _interrupted(self, run: str, lives: bool) -> Iterator[Interrupted]:
        found = self._ask(
            "SELECT run, step, host, at, operation, summary FROM intents"
            " WHERE run = ? AND interrupted ORDER BY at, step, host",
            run,
        )
        for row in found:
            yield Interrupted(**dict(row), lives=lives)

    def _prepare(self) -> None:
        version = self._ask("PRAGMA user_version")[0][0]
        if version == SCHEMA:
            return
        if version or self._ask("SELECT 1 FROM sqlite_master"):
            raise sqlite3.DatabaseError("the index is of another version")
        self._database.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")

    def _refresh(self) -> None:
        """Read again what changed since, forget what is gone; no other journal is opened."""
        known = {
            row["run"]: Stamp(row["size"], row["changed_ns"])
            for row in self._ask("SELECT run, size, changed_ns FROM runs")
        }
        there = dict(_stamps(self._runs))
        with self._database:
            for run in known.keys() - there.keys():
                self._forget(run)
            for run, stamp in there.items():
                if stamp == _NEVER or known.get(run) != stamp:
                    self._forget(run)
                    self._read(run)

    def _forget(self, run: str) -> None:
        for table in ("runs", "steps", "intents"):
            self._database.execute(f"DELETE FROM {table} WHERE run = ?", (run,))

    def _read(self, run: str) -> None:
        try:
            record = read_run(self._runs / run)
        except RunbookError as error:
            self._insert("runs", _unreadable(run, str(error)))
            return
        self._insert("runs", _run_values(record))
        for unit in record.units.values():
            self._insert("steps", _unit_values(run, unit))
            for intent in unit.of("intent"):
                values = {
                    "run": run,
                    "step": unit.step,
                    "host": unit.host,
                    "at": intent["at"],
                    "operation": text(intent, "operation"),
                    "summary": text(intent, "summary"),
                    "interrupted": intent is unit.interrupted,
                }
                self._insert("intents", values)

    def _insert(self, table: str, values: dict[str, Any]) -> None:
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        # A stray byte of a file name is no Unicode, and SQLite takes nothing else.
        plain = [
            value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
            for value in values.values()
        ]
        self._database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", plain)


def _stamps(runs: Path) -> Iterator[tuple[str, Stamp]]:
    """Every run of the folder, and how its journal looks from outside."""
    if not runs.exists():
        return
    for folder in runs.iterdir():
        if not _RUN_ID.fullmatch(folder.name):
            continue
        try:
            yield folder.name, Stamp.of((folder / FILE).stat())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            yield folder.name, _NEVER


def _run_values(record: RunRecord) -> dict[str, Any]:
    hosts = record.run.get("hosts")
    names = [host for host in hosts if isinstance(host, str)] if isinstance(hosts, list) else []
    pid = record.run.get("pid")
    count = len(record.faults)
    words = ("runbook", "file", "operator", "controller", "door", "boot")
    return {
        "run": record.id,
        "size": record.stamp.size,
        "changed_ns": record.stamp.changed,
        **{name: text(record.run, name) for name in words},
        "hosts": json.dumps(names),
        "copied": json.dumps(record.copied),
        "pid": pid if isinstance(pid, int) and 0 < pid < 1 << 32 else None,
        "begun": record.begun,
        "last": record.last,
        "ended": record.end is not None,
        "exit": record.exit,
        "changed": record.changed,
        "failed": record.failed,
        "problem": f"{count} damaged line{'s'[: count != 1]}" if count else "",
    }


def _unreadable(run: str, problem: str) -> dict[str, Any]:
    words = ("runbook", "file", "operator", "controller", "door", "boot")
    numbers = ("begun", "last", "ended", "changed", "failed")
    stamp = {"size": _NEVER.size, "changed_ns": _NEVER.changed}
    return {
        "run": run,
        **stamp,
        **dict.fromkeys(words, ""),
        "hosts": "[]",
        "copied": "[]",
        **dict.fromkeys(numbers, 0),
        "problem": problem,
    }


def _unit_values(run: str, unit: Unit) -> dict[str, Any]:
    return {
        "run": run,
        "step": unit.step,
        "host": unit.host,
        "result": unit.result,
        "begun": unit.begun,
        "last": unit.last,
        "seconds": unit.seconds,
        "acted": unit.acted,
    }
