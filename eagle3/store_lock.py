"""One writer of a store: flock on a file in it, gone with its process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eagle3.errors import Place, StoreError

__all__ = ["store_lock"]


@contextmanager
def store_lock(path: Path) -> Iterator[None]:
    """Hold the lock in the file `path`, which is made and never removed (removing it would race).

    Its content is the writer's pid, for the error of the second one, and empty when free.
    Raises StoreError when another process holds it.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
            raise StoreError(
                f"another extractor is writing this store{f' (pid {pid})' if pid else ''}",
                place=Place(path.parent),
                hint="wait for it to end; its lock goes with it",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)
