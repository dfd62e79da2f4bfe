"""Files that are never half written: temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["atomic_write", "canonical_json", "fsync_folder", "sha256_file", "write_json"]

_CHUNK = 1 << 20


def fsync_folder(folder: Path) -> None:
    """Make a rename inside `folder` durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for writing under a temporary name; it appears whole, or not at all.

    The temporary name is fixed (`.NAME.partial`), so that a killed writer leaves at most one,
    which the next writer replaces.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    partial.replace(path)
    fsync_folder(path.parent)


def canonical_json(value: Any) -> bytes:
    """The one spelling of a JSON value: sorted keys, no spaces, UTF-8. Digests are taken of it."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def write_json(path: Path, value: Any) -> None:
    """Write `value` atomically as indented JSON with sorted keys and a last newline."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    with atomic_write(path) as stream:
        stream.write(text.encode() + b"\n")


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal; reads in chunks of 1 MiB."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
