"""One past run, as its journal tells it: identity, steps by host, locks, notes, the end.

A journal may be of an older engine, cut off or altered. So nothing is taken for granted: a line
that is no record becomes a fault, a field that is missing or of another type reads as empty.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.run.journal import COPIED, FILE
from runbooks.engine.run.outcome import Result

__all__ = ["Record", "RunRecord", "Stamp", "Unit", "number", "process_lives", "read_run", "text"]

Record = Mapping[str, Any]

_GOOD = frozenset(result.value for result in Result if result.good)
# Seconds since the epoch that a calendar can show: up to the year 5138.
_LATEST = 1e11


def text(record: Record, name: str) -> str:
    """A field as text; empty where it is missing or something else."""
    value = record.get(name)
    return value if isinstance(value, str) else ""


def number(record: Record, name: str) -> float | None:
    """A field as a finite number, or None."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if -_LATEST < value < _LATEST else None


@dataclass(frozen=True, slots=True)
class Stamp:
    """By which a change of a journal is noticed: size in bytes, time of change in ns."""

    size: int
    changed: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Stamp:
        return cls(stat.st_size, stat.st_mtime_ns)


@dataclass(frozen=True)
class Unit:
    """A step on a host: its records, in order. Releases are units of their own."""

    step: str
    host: str
    records: tuple[Record, ...]

    def of(self, event: str) -> list[Record]:
        return [record for record in self.records if record["event"] == event]

    @cached_property
    def outcome(self) -> Record | None:
        """The last one; None while there is none."""
        found = self.of("outcome")
        return found[-1] if found else None

    @cached_property
    def interrupted(self) -> Record | None:
        """The last intent without an outcome behind it: the world has to be read anew."""
        for record in reversed(self.records):
            if record["event"] == "outcome":
                return None
            if record["event"] == "intent":
                return record
        return None

    @property
    def result(self) -> str:
        """The word of the outcome, `interrupted`, or `not ended`."""
        if self.outcome is not None:
            return text(self.outcome, "result") or "unknown"
        return "not ended" if self.interrupted is None else Result.INTERRUPTED.value

    @property
    def good(self) -> bool:
        return self.result in _GOOD

    @property
    def failed(self) -> bool:
        """Ended other than wanted, and not only because another step did."""
        ended = self.outcome is not None
        return ended and not self.good and self.result != Result.SKIPPED.value

    @property
    def reason(self) -> str:
        if self.outcome is not None:
            return text(self.outcome, "reason")
        return (
            "" if self.interrupted is None else "it began to act, and nothing tells how that ended"
        )

    @property
    def acted(self) -> bool:
        """A mutating command was sent; journals of older engines tell by the intent alone."""
        told = self.outcome.get("acted") if self.outcome is not None else None
        return told if isinstance(told, bool) else bool(self.of("intent"))

    @property
    def seconds(self) -> float | None:
        return number(self.outcome, "seconds") if self.outcome is not None else None

    @property
    def begun(self) -> float:
        """When it began: the first record comes only after the first facts were read."""
        first = float(self.records[0]["at"])
        if self.outcome is None or self.seconds is None:
            return first
        return min(first, float(self.outcome["at"]) - max(0.0, self.seconds))

    @property
    def last(self) -> float:
        """When it ended, or when it was last heard of."""
        return float((self.outcome or self.records[-1])["at"])


@dataclass(frozen=True)
class RunRecord:
    """A journal, read. `faults` are lines (counted from 1) that are no records, and why.

    `copied` names the hosts whose copies it was put together from: lines of others are missing
    there. Empty for a journal that this controller wrote.
    """

    id: str
    path: Path
    records: tuple[Record, ...]
    faults: tuple[tuple[int, str], ...]
    stamp: Stamp
    copied: tuple[str, ...] = ()

    @cached_property
    def run(self) -> Record:
        """Who ran what from where; empty where the journal does not even say that."""
        return next((record for record in self.records if record["event"] == "run"), {})

    @cached_property
    def end(self) -> Record | None:
        found = [record for record in self.records if record["event"] == "end"]
        return found[-1] if found else None

    @property
    def exit(self) -> int | None:
        """The exit code; None for a run without an end."""
        value = self.end.get("exit") if self.end is not None else None
        return value if isinstance(value, int) and 0 <= value <= 255 else None

    @property
    def begun(self) -> float:
        """Seconds since the epoch; the journal's own time where no line tells it."""
        first = self.run or (self.records[0] if self.records else None)
        return float(first["at"]) if first else self.stamp.changed / 1e9

    @property
    def last(self) -> float:
        """When it ended, or when it was last heard of."""
        last = self.end or (self.records[-1] if self.records else None)
        return max(self.begun, float(last["at"])) if last else self.begun

    @cached_property
    def units(self) -> dict[tuple[str, str], Unit]:
        """By (step, host), in the order in which they began."""
        found: dict[tuple[str, str], list[Record]] = {}
        for record in self.records:
            if text(record, "step"):
                found.setdefault((record["step"], text(record, "host")), []).append(record)
        return {unit: Unit(*unit, tuple(records)) for unit, records in found.items()}

    @property
    def changed(self) -> int:
        return sum(unit.acted for unit in self.units.values())

    @property
    def failed(self) -> int:
        return sum(unit.failed for unit in self.units.values())

    def of(self, event: str) -> list[Record]:
        """Records of the run as a whole or of a host, none of a step."""
        return [
            record
            for record in self.records
            if record["event"] == event and not text(record, "step")
        ]

    @property
    def lives(self) -> bool:
        """Whether it may go on right now, on this machine."""
        return self.end is None and process_lives(self.run.get("pid"), text(self.run, "boot"))


def process_lives(pid: object, boot: str) -> bool:
    """Whether this boot of this machine has a process of that number, perhaps another one."""
    if not isinstance(pid, int) or not boot:
        return False
    try:
        here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return False
    return boot == here and Path(f"/proc/{pid}").exists()


def read_run(folder: Path) -> RunRecord:
    """Read a run's folder. RunbookError (usage) where its journal cannot be read."""
    path = folder / FILE
    try:
        with open(path, "rb") as stream:
            # Before the lines: one written meanwhile makes the journal look changed later.
            stamp = Stamp.of(os.fstat(stream.fileno()))
            records, faults = _parse(stream)
    except OSError as error:
        raise RunbookError.usage(
            f"the journal cannot be read: {error.strerror}", where=str(path)
        ) from None
    return RunRecord(folder.name, path, records, faults, stamp, _copied(folder / COPIED))


def _copied(file: Path) -> tuple[str, ...]:
    try:
        return tuple(file.read_text(errors="replace").split())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise RunbookError.usage(f"cannot be read: {error.strerror}", where=str(file)) from None


def _parse(lines: Iterable[bytes]) -> tuple[tuple[Record, ...], tuple[tuple[int, str], ...]]:
    records: list[Record] = []
    faults: list[tuple[int, str]] = []
    for line_number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            break  # a crash, or a line that is being written
        try:
            records.append(_record(line))
        except (ValueError, RecursionError) as error:
            faults.append((line_number, f"is no journal record: {error}"))
    return tuple(records), tuple(faults)


def _record(line: bytes) -> Record:
    record = json.loads(line)
    if not isinstance(record, dict) or not isinstance(record.get("event"), str):
        raise ValueError("not an event")
    at = number(record, "at")
    if at is None or not math.isfinite(at) or at < 0:
        raise ValueError("without a time")
    for name in ("step", "host"):
        if not isinstance(record.get(name, ""), str):
            raise ValueError(f"its {name} is no text")
    return record
