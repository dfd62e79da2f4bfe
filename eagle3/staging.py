"""A directory that appears whole: written beside its place, then renamed into it.

The temporary name is fixed (`.NAME.partial`), so that a killed writer leaves one directory, which
the next writer empties. A lock on it (flock, gone with its process) keeps two writers apart.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from eagle3.errors import Place, StoreError
from eagle3.files import fsync_folder

__all__ = ["Staging", "staged_directory"]


@dataclass
class Staging:
    """`directory` to write in; `commit` puts it at `out`."""

    directory: Path
    out: Path
    committed: bool = False

    def commit(self, *, replace: bool) -> None:
        """Rename into place. With `replace`, what is there goes away after the rename.

        The caller has decided that it may. The moment between the two renames is the only one
        in which `out` is absent; nothing but a crash makes it longer.
        """
        fsync_folder(self.directory)
        old = self.out.with_name(f".{self.out.name}.replaced")
        shutil.rmtree(old, ignore_errors=True)
        if replace and self.out.exists():
            self.out.rename(old)
        # rename(2) refuses a directory with something in it, and takes an empty one.
        self.directory.rename(self.out)
        fsync_folder(self.out.parent)
        self.committed = True
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def staged_directory(out: Path) -> Iterator[Staging]:
    """An empty directory beside `out`, locked; removed again unless it was committed.

    Parents of `out` are made, and removed again when empty and nothing was committed.
    Raises StoreError when another process is writing the same store.
    """
    made = _make_parents(out.parent)
    directory = out.with_name(f".{out.name}.partial")
    try:
        handle = _lock(directory)
    except BaseException:
        _remove_empty(made)
        raise
    staging = Staging(directory, out)
    try:
        _clear(directory)
        yield staging
    finally:
        if not staging.committed:
            shutil.rmtree(directory, ignore_errors=True)
            _remove_empty(made)
        os.close(handle)


def _make_parents(folder: Path) -> list[Path]:
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _remove_empty(folders: list[Path]) -> None:
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _lock(directory: Path) -> int:
    """A handle that holds the lock of `directory`, which it makes."""
    while True:
        directory.mkdir(exist_ok=True)
        # Not through a symlink: what is in the directory gets deleted.
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The other writer may have renamed or removed it between open and lock.
            if directory.exists() and directory.stat().st_ino == os.fstat(handle).st_ino:
                return handle
        except BlockingIOError:
            os.close(handle)
            raise StoreError(
                "another process is writing this store",
                place=Place(directory),
                hint="wait for it to end; its lock goes with it",
            ) from None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _clear(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
