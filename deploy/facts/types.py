"""Types of fields that only facts have: commits, versions, digests compared with this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from runbooks.engine.model.values import Integer, ValueType

__all__ = ["Commit", "CommitPrefix", "DriverVersion", "PackageDigest", "RowNumber", "Rows"]

_END = r"$(?!\n)"


class CommitPrefix(str):
    """A commit as people write it: equal to every full commit id that begins with it."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other.startswith(str(self))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


@dataclass(frozen=True)
class Commit(ValueType):
    """A git commit id, whole or its first seven or more digits."""

    name = "commit"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": rf"^[0-9a-f]{{7,64}}{_END}"}

    def parse(self, raw: object) -> CommitPrefix:
        if isinstance(raw, str) and re.fullmatch(r"[0-9a-f]{7,64}", raw):
            return CommitPrefix(raw)
        raise ValueError(f"{raw!r} is not a commit; write seven or more digits of 0-9a-f in quotes")


@dataclass(frozen=True)
class PackageDigest(ValueType):
    """`controller` (the digest of the project's own code), or a digest of 64 digits."""

    name = "package digest"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": rf"^(?:controller|[0-9a-f]{{64}}){_END}"}

    def parse(self, raw: object) -> str:
        if isinstance(raw, str) and re.fullmatch(r"controller|[0-9a-f]{64}", raw):
            return raw
        raise ValueError(f"{raw!r} is not a digest; write controller, or 64 digits of 0-9a-f")


@dataclass(frozen=True)
class DriverVersion(ValueType):
    """`same` (as the host named by `as`), or a version: `580.159.04`."""

    name = "driver version"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": rf"^(?:same|[0-9]+(?:\.[0-9]+)+){_END}"}

    def parse(self, raw: object) -> str:
        if isinstance(raw, str) and re.fullmatch(r"same|[0-9]+(?:\.[0-9]+)+", raw):
            return raw
        raise ValueError(
            f"{raw!r} is not a driver version; write same, or for example '580.159.04' in quotes"
        )


class Rows(int):
    """A number of rows with a remark for people: `8,779 (0001.done is empty)`."""

    note: str

    def __new__(cls, count: int, note: str = "") -> Rows:
        rows = super().__new__(cls, count)
        rows.note = note
        return rows


@dataclass(frozen=True)
class RowNumber(Integer):
    """A whole number whose reading may carry a remark."""

    def show(self, value: Any) -> str:
        note = value.note if isinstance(value, Rows) else ""
        return super().show(value) + (f" ({note})" if note else "")
