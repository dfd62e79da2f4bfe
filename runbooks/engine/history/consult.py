"""Asks the index of all runs, so that listing them reads no journal twice.

    RUNS/index.sqlite

The journals are the truth: the index may be deleted, damaged or of another version at any time
and is then made anew; where it cannot be written it lives in memory. It holds only what the
journals hold, which is redacted.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from runbooks.engine.history.index import Index
from runbooks.engine.model.diagnostic import RunbookError

__all__ = ["INDEX", "consult"]

INDEX = "index.sqlite"
# Seconds that one waits for another who uses the index.
_PATIENCE = 10.0
# Errors that a new index does not cure: another program holds it, the disk is full or failing.
_ELSEWHERE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
    }
)

T = TypeVar("T")


def consult(runs: Path, question: Callable[[Index], T], *, rebuild: bool = False) -> T:
    """Ask the refreshed index of a runs folder, whatever state it is in.

    Safe for several processes at once: the folder is locked meanwhile. RunbookError (usage)
    where `runs` is no folder that can be read; a folder that does not exist holds no runs.
    """
    with _alone(runs) as alone:
        for fresh in (rebuild, True) if alone else ():
            try:
                database = _open(runs / INDEX, fresh)
            except OSError:
                break  # a folder that may only be read
            with closing(database):
                try:
                    return question(Index(database, runs))
                except (sqlite3.Error, ValueError, TypeError) as error:
                    # Damage shows as any of these; a fault of the question comes up again below.
                    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _ELSEWHERE:
                        break
        with closing(sqlite3.connect(":memory:")) as database:
            return question(Index(database, runs))


@contextmanager
def _alone(runs: Path) -> Iterator[bool]:
    """Whether the index is ours alone for as long as this lasts."""
    try:
        handle = os.open(runs, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        yield False
        return
    except OSError as error:
        raise RunbookError.usage(
            f"the folder of the runs cannot be read: {error.strerror}", where=str(runs)
        ) from None
    try:
        yield _lock(handle)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    patience = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= patience:
                return False
            time.sleep(0.02)
        except OSError:
            return False  # a filesystem without locks


def _open(file: Path, fresh: bool) -> sqlite3.Connection:
    """The database, emptied where `fresh`. OSError where it cannot be written."""
    if fresh:
        for name in (file, file.with_name(f"{file.name}-journal")):
            name.unlink(missing_ok=True)
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        # SQLite gives its own journal the same mode.
        if os.fstat(handle).st_mode & 0o077:
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)
    return sqlite3.connect(file, timeout=_PATIENCE)
