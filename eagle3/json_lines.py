"""JSONL files, strictly: one object a line, and every fault with its line number."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eagle3.errors import InputError, Place

__all__ = ["JsonLines", "parse_json"]

_BOM = b"\xef\xbb\xbf"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} is there twice")
        found[key] = value
    return found


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number


def parse_json(text: str) -> Any:
    """The value of a JSON text; ValueError for duplicate keys, NaN, Infinity and all else."""
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _reason(error: ValueError) -> str:
    """Without the line that the JSON parser counts within the one line it was given."""
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    what = error.msg.removesuffix(" at")
    if error.lineno > 1:
        return f"{what} at the end of the line"
    return f"{what} at column {error.colno}"


class JsonLines:
    """The objects of one JSONL file with their line numbers; one pass, hashing what it reads.

    A byte order mark, CRLF and blank lines are tolerated; a last line without a line end is read
    if it is whole. After the pass, `sha256` (hexadecimal) and `size` (bytes) are those of exactly
    the bytes that were parsed.
    """

    def __init__(self, path: Path):
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields (line from 1, object). Raises InputError with file and line."""
        try:
            with open(self.path, "rb") as stream:
                for number, raw in enumerate(stream, start=1):
                    self._hash.update(raw)
                    self.size += len(raw)
                    line = raw.removeprefix(_BOM) if number == 1 else raw
                    if line.strip():
                        yield number, self._object(number, line)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", place=Place(self.path)) from error

    def _object(self, number: int, line: bytes) -> dict[str, Any]:
        place = Place(self.path, line=number)
        try:
            value = parse_json(line.decode())
        except UnicodeDecodeError as error:
            raise InputError(
                f"byte {error.start + 1} of the line is not UTF-8", place=place
            ) from None
        except ValueError as error:
            if not line.endswith(b"\n"):
                raise InputError(
                    f"the last line is half written: {_reason(error)}",
                    place=place,
                    hint="the program that wrote the file was cut off; write the line again",
                ) from None
            raise InputError(f"the line is not JSON: {_reason(error)}", place=place) from None
        if not isinstance(value, dict):
            raise InputError(
                f"the line is not an object but {type(value).__name__}",
                place=place,
                hint='wanted {"id": ..., "messages": [...]} or {"id": ..., "input_ids": [...]}',
            )
        return value
