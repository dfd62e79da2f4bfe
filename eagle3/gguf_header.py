"""The scalar metadata of a GGUF file, read without torch, numpy or the `gguf` package.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little
endian). Arrays (the vocabulary, the merges) are skipped, so that it takes milliseconds.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

from eagle3.errors import Place, TargetError

__all__ = ["read_gguf_metadata"]

Scalar = str | int | float | bool

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_LONGEST_STRING = 64 << 20


class _Reader:
    def __init__(self, stream: BinaryIO, path: Path, size: int):
        self.stream, self.path, self.size = stream, path, size

    def fail(self, what: str) -> TargetError:
        return TargetError(f"is no readable GGUF file: {what}", place=Place(self.path))

    def take(self, count: int) -> bytes:
        data = self.stream.read(count)
        if len(data) != count:
            raise self.fail("its header ends early")
        return data

    def skip(self, count: int) -> None:
        if count > self.size or self.stream.seek(count, os.SEEK_CUR) > self.size:
            raise self.fail("its header ends early")

    def number(self, code: str) -> int | float | bool:
        value: int | float | bool = struct.unpack(
            "<" + code, self.take(struct.calcsize("<" + code))
        )[0]
        return value

    def length(self) -> int:
        return int(self.number("Q"))

    def string(self) -> str:
        length = self.length()
        if length > _LONGEST_STRING:
            raise self.fail(f"a string of {length:,} bytes in its header")
        return self.take(length).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Scalar | None:
        """The value, or None for a skipped array."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            self.skip_array()
            return None
        raise self.fail(f"value type {kind} is unknown")

    def skip_array(self) -> None:
        kind, count = int(self.number("I")), self.length()
        if kind in _SCALARS:
            self.skip(count * struct.calcsize("<" + _SCALARS[kind]))
        elif kind == _STRING:
            for _ in range(count):
                self.skip(self.length())
        else:
            raise self.fail(f"array of type {kind}")


def read_gguf_metadata(path: Path) -> dict[str, Scalar]:
    """Key to value of every scalar in the header of `path`.

    Raises TargetError when the file is absent, no GGUF, cut short or of another version.
    """
    try:
        with open(path, "rb") as stream:
            reader = _Reader(stream, path, os.fstat(stream.fileno()).st_size)
            if stream.read(4) != b"GGUF":
                raise reader.fail("it does not start with GGUF")
            version = int(reader.number("I"))
            if version not in (2, 3):
                raise reader.fail(f"version {version}; versions 2 and 3 are supported")
            reader.length()  # the number of tensors
            found: dict[str, Scalar] = {}
            for _ in range(reader.length()):
                key = reader.string()
                value = reader.value(int(reader.number("I")))
                if value is not None:
                    found[key] = value
            return found
    except OSError as error:
        raise TargetError(f"cannot be read: {error.strerror}", place=Place(path)) from error
