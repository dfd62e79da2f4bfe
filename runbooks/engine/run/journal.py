"""The journal of a run: JSON lines, appended and fsynced, in a folder of the run's own."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runbooks.engine.model.diagnostic import RunbookError

__all__ = ["Journal", "new_run_id", "read_journal"]

# Events that must be on the disk before the engine goes on.
_DURABLE = frozenset({"run", "intent", "outcome", "end"})


def new_run_id(now: float) -> str:
    """`20261201-140211-7c1e`: sorts by time, and two of one second differ."""
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(now)) + "-" + secrets.token_hex(2)


class Journal:
    """A sink that appends each record to `FOLDER/journal.jsonl`."""

    def __init__(self, folder: Path):
        try:
            folder.mkdir(parents=True, exist_ok=False)
        except OSError as error:
            raise RunbookError.usage(
                f"the journal's folder cannot be made: {error.strerror}",
                where=str(folder),
                hint="set RUNBOOK_RUNS to a folder that you may write",
            ) from None
        self.folder = folder
        self.path = folder / "journal.jsonl"
        # 0600: diffs of configuration may hold what only the operator should read.
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def take(self, record: Mapping[str, Any]) -> None:
        if record["event"] == "progress":
            return
        line = json.dumps(record, ensure_ascii=False, default=str).encode() + b"\n"
        self._append(line)
        if record["event"] in _DURABLE:
            os.fsync(self._file)

    def _append(self, line: bytes) -> None:
        """The whole line or nothing of it: a full disk must not leave half a record."""
        size = os.fstat(self._file).st_size
        try:
            left = memoryview(line)
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            os.ftruncate(self._file, size)
            raise

    def close(self) -> None:
        try:
            os.fsync(self._file)
        finally:
            os.close(self._file)


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """Records in order; a half-written last line (a crash) is left out."""
    with open(path, "rb") as stream:
        for line in stream:
            if line.endswith(b"\n"):
                yield json.loads(line)
