"""The journal of a run: JSON lines, appended, fsynced and chained, in a folder of the run's own.

Each line carries its number (`seq`) and the SHA-256 of the line before it (`prev`), so that a
line that was altered, removed or put in between is found (`chain_faults`); `head`, written
when the run ends, does the same for the last one. A line cut off at the end is a crash, not a
fault. A reserve of disk space is taken when the journal begins and given
up when the disk is full, so that the failure itself is still recorded.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from runbooks.engine.model.diagnostic import RunbookError

__all__ = [
    "COPIED",
    "FILE",
    "FIRST",
    "HEAD",
    "Journal",
    "chain_faults",
    "new_run_id",
    "read_journal",
]

FILE = "journal.jsonl"
# How many lines the journal of an ended run has, and the digest of the last.
HEAD = "head"
# Beside a journal that was put together from its hosts' copies: their names. Lines of other
# hosts are missing there, so only what follows directly is chained.
COPIED = "copied-from"
# What stands for the line before the first.
FIRST = "0" * 64
# Events that must be on the disk before the engine goes on.
_DURABLE = frozenset({"run", "intent", "outcome", "end"})
# Bytes held back for what happens after the disk is full: some thousand lines.
_RESERVE = 1 << 20


def new_run_id(now: float) -> str:
    """`20261201-140211-7c1e`: sorts by time, and two of one second differ."""
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(now)) + "-" + secrets.token_hex(2)


class Journal:
    """A sink that appends each record to `FOLDER/journal.jsonl`.

    `copy` receives every record with its line (without the newline), for the hosts' copies.
    """

    def __init__(self, folder: Path, copy: Callable[[Mapping[str, Any], str], None] | None = None):
        try:
            folder.mkdir(parents=True, exist_ok=False)
        except OSError as error:
            raise RunbookError.usage(
                f"the journal's folder cannot be made: {error.strerror}",
                where=str(folder),
                hint="set RUNBOOK_RUNS to a folder that you may write",
            ) from None
        self.folder = folder
        self.path = folder / FILE
        self._copy = copy
        self._seq = 0
        self._prev = FIRST
        # 0600: diffs of configuration may hold what only the operator should read.
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._reserve = folder / "reserve"
        _reserve(self._reserve)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def take(self, record: Mapping[str, Any]) -> None:
        if record["event"] == "progress":
            return
        chained = {"v": record["v"], "seq": self._seq, "prev": self._prev, **record}
        text = json.dumps(chained, ensure_ascii=False, default=str)
        # A file name's stray byte (a lone surrogate) becomes `\\udc80`, which JSON reads back.
        raw = text.encode(errors="backslashreplace")
        self._append(raw + b"\n")
        self._seq += 1
        self._prev = hashlib.sha256(raw).hexdigest()
        if record["event"] in _DURABLE:
            os.fsync(self._file)
        if self._copy is not None:
            self._copy(record, raw.decode())

    def _append(self, line: bytes) -> None:
        """The whole line or nothing of it: a full disk must not leave half a record."""
        size = os.fstat(self._file).st_size
        try:
            self._write(line)
        except OSError as error:
            os.ftruncate(self._file, size)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._reserve.exists():
                raise
            self._reserve.unlink()
            try:
                self._write(line)
            except OSError:
                os.ftruncate(self._file, size)
                raise

    def _write(self, line: bytes) -> None:
        left = memoryview(line)
        while left:
            left = left[os.write(self._file, left) :]

    def close(self) -> None:
        try:
            os.fsync(self._file)
        finally:
            os.close(self._file)
            with suppress(OSError):
                self._reserve.unlink()
            with suppress(OSError):
                _put(self.folder / HEAD, f"{self._seq} {self._prev}\n")


def _put(file: Path, text: str) -> None:
    temporary = file.with_name(f".{file.name}")
    with open(temporary, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(file)


def _reserve(file: Path) -> None:
    """Take the space; a disk too full for it leaves the journal without, which still begins."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.posix_fallocate(handle, 0, _RESERVE)
    except OSError:
        # Half a reserve would be taken for a whole one.
        with suppress(OSError):
            file.unlink()
    finally:
        os.close(handle)


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """Records in order; a half-written last line (a crash) is left out.

    RunbookError names a line that is no record.
    """
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
                if not isinstance(record, dict) or "event" not in record:
                    raise ValueError("not an event")
            except (ValueError, RecursionError) as error:
                raise RunbookError.usage(
                    f"is no journal record: {error}",
                    where=f"{path}:{number}",
                    hint="runbook history --verify tells which lines were altered",
                ) from None
            yield record


def chain_faults(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and what is wrong with it, of every line that breaks the chain."""
    prev, seq = FIRST, 0
    partial = path.with_name(COPIED).exists()
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.endswith(b"\n"):
                return
            raw = line[:-1]
            try:
                record = json.loads(raw)
                found_prev, found_seq = record["prev"], record["seq"]
            except (ValueError, KeyError, TypeError, RecursionError):
                yield number, "is no journal record"
                prev, seq = hashlib.sha256(raw).hexdigest(), seq + 1
                continue
            if partial and isinstance(found_seq, int) and found_seq > seq:
                prev, seq = found_prev, found_seq  # lines of other hosts stood between
            if found_prev != prev:
                yield (
                    number,
                    (
                        "does not follow from the line before it: one of the two was altered, or a"
                        " line is missing between them"
                        if number > 1
                        else "is not the journal's first line"
                    ),
                )
            elif found_seq != seq:
                yield number, f"is numbered {found_seq}, want {seq}"
            prev, seq = hashlib.sha256(raw).hexdigest(), seq + 1
    yield from _head_faults(path, seq, prev)


def _head_faults(path: Path, seq: int, prev: str) -> Iterator[tuple[int, str]]:
    head = path.with_name(HEAD)
    if not head.exists():
        return  # the run has not ended, or its controller was killed
    wanted = head.read_text(errors="replace").split()
    if wanted[:1] != [str(seq)]:
        yield seq, f"is the last line of {seq}; the run ended with {' '.join(wanted[:1])} lines"
    elif wanted[1:] != [prev]:
        yield seq, "was altered after the run ended"
