"""Types of arguments and fields: their JSON Schema, their parsing, their printing.

A type turns a YAML scalar into a value of one unit (bytes, seconds) and refuses everything
else with a message that says what to write. The same object makes the schema fragment, so
that editor, validation and documentation cannot disagree.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ABSENT",
    "Absent",
    "Boolean",
    "Choice",
    "Duration",
    "HostName",
    "HostPath",
    "Integer",
    "ListOf",
    "MapOf",
    "Number",
    "Percent",
    "RootName",
    "RootPath",
    "Size",
    "Text",
    "ValueType",
    "show_duration",
    "show_size",
    "split_root",
]


class Absent:
    """What a fact reads where there is nothing: satisfies no comparison, but is not unknown."""

    _instance: Absent | None = None

    def __new__(cls) -> Absent:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()

# `$` in Python matches before a last newline; this pair means the same there and in ECMA 262.
_END = r"$(?!\n)"

_SIZE_UNITS = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "PiB": 2**50,
}
_SIZE = re.compile(rf"^([0-9]{{1,15}}(?:\.[0-9]{{1,9}})?) ?({'|'.join(_SIZE_UNITS)}){_END}")
_DURATION = re.compile(
    rf"^(?=.)(?:([0-9]{{1,9}})d)?(?:([0-9]{{1,9}})h)?(?:([0-9]{{1,9}})m)?(?:([0-9]{{1,9}})s)?{_END}"
)
_ROOT_PATH = re.compile(rf"^([a-z][a-z0-9_-]*):(.*){_END}", re.DOTALL)
_ESTIMATE = r"\$\{\{ *estimate\.bytes *\}\}"


def show_size(count: int) -> str:
    """Bytes as people write them, binary and decimal: `860.6 GiB (924.1 GB)`."""
    if count < 1000:
        return f"{count} B"
    return (
        f"{_scaled(count, 1024, 'KiB MiB GiB TiB PiB')} ({_scaled(count, 1000, 'kB MB GB TB PB')})"
    )


def _scaled(count: int, base: int, units: str) -> str:
    """In the first unit in which the amount is below `base`, or the last."""
    names = units.split()
    power = 1
    while power < len(names) and count >= base ** (power + 1):
        power += 1
    return f"{count / base**power:,.1f} {names[power - 1]}"


def show_duration(seconds: float) -> str:
    """Seconds in falling units: `1d12h`, `90m`, `4s`."""
    whole = round(seconds)
    if whole <= 0:
        return "0s"
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        amount, whole = divmod(whole, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts[:2])


def split_root(text: str) -> tuple[str, str] | None:
    """`data:merged/x` as (`data`, `merged/x`), or None when the text names no root."""
    match = _ROOT_PATH.match(text)
    return (match[1], match[2]) if match else None


class ValueType(ABC):
    """One type of value. `parse` raises ValueError with a message fit for a user."""

    name: str = ""
    ordered: bool = False

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The JSON Schema fragment, without a description."""

    @abstractmethod
    def parse(self, raw: object) -> Any:
        """The value that `raw` (a YAML scalar, list or mapping) stands for."""

    def show(self, value: Any) -> str:
        """The value in the words of the runbook."""
        return str(value)


def _spelt(raw: object) -> str:
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if raw is None:
        return "null"
    return repr(raw) if isinstance(raw, str) else str(raw)


@dataclass(frozen=True)
class Text(ValueType):
    """A string; a pattern may narrow it."""

    pattern: str | None = None
    example: str | None = None
    empty: bool = False
    name = "text"

    def schema(self) -> dict[str, Any]:
        fragment: dict[str, Any] = {"type": "string"}
        if self.pattern:
            fragment["pattern"] = rf"^(?:{self.pattern}){_END}"
        elif not self.empty:
            fragment["minLength"] = 1
        return fragment

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise ValueError(f'{_spelt(raw)} is not text; put it in quotes: "{_bare(raw)}"')
        if not raw and not self.empty and not self.pattern:
            raise ValueError("is empty; write some text")
        if self.pattern and not re.fullmatch(self.pattern, raw):
            hint = f"; write for example {self.example}" if self.example else ""
            raise ValueError(f"{raw!r} does not match {self.pattern}{hint}")
        return raw


def _bare(raw: object) -> str:
    return _spelt(raw) if not isinstance(raw, (dict, list)) else "…"


@dataclass(frozen=True)
class Boolean(ValueType):
    """`true` or `false`, and nothing that merely looks like it."""

    name = "boolean"

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}

    def parse(self, raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        word = str(raw).lower()
        right = "true" if word in {"true", "yes", "on", "1", "y"} else "false"
        if word in {"true", "yes", "on", "1", "y", "false", "no", "off", "0", "n"}:
            raise ValueError(f"{_spelt(raw)} is not a boolean; write {right}")
        raise ValueError(f"{_spelt(raw)} is not a boolean; write true or false")

    def show(self, value: Any) -> str:
        return "true" if value is True else "false" if value is False else str(value)


@dataclass(frozen=True)
class Integer(ValueType):
    """A whole number."""

    minimum: int | None = None
    name = "integer"
    ordered = True

    def schema(self) -> dict[str, Any]:
        return {"type": "integer"} | ({} if self.minimum is None else {"minimum": self.minimum})

    def parse(self, raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int):
            raise ValueError(f"{_spelt(raw)} is not a whole number; write for example 37_312")
        if self.minimum is not None and raw < self.minimum:
            raise ValueError(f"{raw} is too small; write at least {self.minimum}")
        return raw

    def show(self, value: Any) -> str:
        return f"{value:,}" if isinstance(value, int) else str(value)


@dataclass(frozen=True)
class Number(ValueType):
    """A finite number."""

    name = "number"
    ordered = True

    def schema(self) -> dict[str, Any]:
        return {"type": "number"}

    def parse(self, raw: object) -> float | int:
        if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not math.isfinite(raw):
            raise ValueError(f"{_spelt(raw)} is not a number; write for example 0.7")
        return raw


@dataclass(frozen=True)
class Size(ValueType):
    """An amount of bytes with its unit; `${{ estimate.bytes }}` stands for what remains to write."""

    estimate: bool = False
    name = "size"
    ordered = True

    def schema(self) -> dict[str, Any]:
        pattern = _SIZE.pattern
        if self.estimate:
            pattern = rf"(?:{pattern})|^{_ESTIMATE}{_END}"
        return {"type": "string", "pattern": pattern}

    def parse(self, raw: object) -> Any:
        if isinstance(raw, str):
            if match := _SIZE.match(raw):
                return round(float(match[1]) * _SIZE_UNITS[match[2]])
            if self.estimate and re.fullmatch(_ESTIMATE, raw):
                return raw
        number = _leading_number(raw)
        raise ValueError(
            f"{_spelt(raw)} is not a size; write it with a unit, for example {number} GiB or {number} GB"
        )

    def show(self, value: Any) -> str:
        return show_size(value) if isinstance(value, int) else str(value)


@dataclass(frozen=True)
class Duration(ValueType):
    """A time in falling units (`72h`, `1d12h`, `90m`); the value is seconds."""

    name = "duration"
    ordered = True

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": _DURATION.pattern}

    def parse(self, raw: object) -> int:
        if isinstance(raw, str) and (match := _DURATION.match(raw)):
            days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
            return days * 86400 + hours * 3600 + minutes * 60 + seconds
        raise ValueError(f"{_spelt(raw)} is not a duration; write {_duration_hint(raw)}")

    def show(self, value: Any) -> str:
        return show_duration(value) if isinstance(value, (int, float)) else str(value)


def _leading_number(raw: object) -> str:
    match = re.match(r"[0-9]+(?:\.[0-9]+)?", str(raw))
    return match[0] if match else "50"


def _duration_hint(raw: object) -> str:
    """The likely meaning: base-60 forms and bare numbers are the usual mistakes."""
    text = str(raw)
    if match := re.fullmatch(r"([0-9]+):([0-9]{2})(?::([0-9]{2}))?", text):
        parts = [(match[1], "h"), (match[2], "m"), (match[3] or "00", "s")]
        written = "".join(f"{int(amount)}{unit}" for amount, unit in parts if int(amount))
        return written or "0s"
    if re.fullmatch(r"[0-9]+", text):
        return f"{text}s, {text}m or {text}h"
    return "for example 72h, 1d12h or 90m"


@dataclass(frozen=True)
class Percent(ValueType):
    """A tolerance: `2%`; the value is a fraction."""

    name = "percent"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": rf"^[0-9]+(?:\.[0-9]+)?%{_END}"}

    def parse(self, raw: object) -> float:
        if isinstance(raw, str) and re.fullmatch(r"[0-9]+(?:\.[0-9]+)?%", raw):
            return float(raw[:-1]) / 100
        raise ValueError(
            f"{_spelt(raw)} is not a percentage; write for example {_leading_number(raw)}%"
        )

    def show(self, value: Any) -> str:
        return f"{value * 100:g}%"


@dataclass(frozen=True)
class Choice(ValueType):
    """One of some words."""

    words: tuple[str, ...] = ()
    name = "choice"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.words)}

    def parse(self, raw: object) -> str:
        if isinstance(raw, str) and raw in self.words:
            return raw
        raise ValueError(f"{_spelt(raw)} is none of: {', '.join(self.words)}")


@dataclass(frozen=True)
class RootPath(ValueType):
    """`root:path` below a declared root. `inside`: the root itself is refused (deletes)."""

    inside: bool = False
    name = "root path"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^[a-z][a-z0-9_-]*:"}

    def parse(self, raw: object) -> str:
        parts = split_root(raw) if isinstance(raw, str) else None
        if parts is None:
            raise ValueError(
                f"{_spelt(raw)} is not a path below a root; write for example data:merged"
            )
        return self._checked(str(raw), *parts)

    def _checked(self, raw: str, root: str, rest: str) -> str:
        segments = rest.split("/")
        if ".." in segments:
            raise ValueError(f"{raw!r} leaves its root; write a path without '..'")
        if rest.startswith("/"):
            raise ValueError(
                f"{raw!r} is absolute behind its root; write {root}:{rest.lstrip('/')}"
            )
        if self.inside and not [part for part in segments if part not in ("", ".")]:
            raise ValueError(f"{raw!r} is the root itself; write a path strictly below {root}:")
        if "\0" in raw or "\n" in raw:
            raise ValueError(f"{raw!r} holds a NUL or a newline")
        return raw


@dataclass(frozen=True)
class HostPath(RootPath):
    """`root:path`, or an absolute path of the host."""

    name = "path"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^(?:[a-z][a-z0-9_-]*:|/)"}

    def parse(self, raw: object) -> str:
        if isinstance(raw, str):
            if parts := split_root(raw):
                return self._checked(raw, *parts)
            if raw.startswith("/") and "\0" not in raw and "\n" not in raw:
                return raw
        raise ValueError(
            f"{_spelt(raw)} is not a path; write for example data:merged or /etc/fstab"
        )


@dataclass(frozen=True)
class RootName(ValueType):
    """The name of a declared root."""

    name = "root"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": rf"^[a-z][a-z0-9_-]*{_END}"}

    def parse(self, raw: object) -> str:
        if isinstance(raw, str) and re.fullmatch(r"[a-z][a-z0-9_-]*", raw):
            return raw
        raise ValueError(f"{_spelt(raw)} is not the name of a root; write for example data")


@dataclass(frozen=True)
class HostName(ValueType):
    """The name of a host of the inventory."""

    name = "host"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}

    def parse(self, raw: object) -> str:
        if isinstance(raw, str) and raw:
            return raw
        raise ValueError(f"{_spelt(raw)} is not the name of a host")


@dataclass(frozen=True)
class ListOf(ValueType):
    """A list, of at least `minimum` items."""

    item: ValueType = field(default_factory=Text)
    minimum: int = 1
    name = "list"

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": typed_schema(self.item), "minItems": self.minimum}

    def parse(self, raw: object) -> tuple[Any, ...]:
        if isinstance(raw, str) or not isinstance(raw, Sequence):
            raise ValueError(f"{_spelt(raw)} is not a list; write [{_bare(raw)}]")
        if len(raw) < self.minimum:
            raise ValueError(f"is empty; write at least {self.minimum} item")
        return tuple(self.item.parse(item) for item in raw)

    def show(self, value: Any) -> str:
        return "[" + ", ".join(self.item.show(item) for item in value) + "]"


@dataclass(frozen=True)
class MapOf(ValueType):
    """A mapping from names to values of one type."""

    item: ValueType = field(default_factory=Text)
    key_pattern: str = "[A-Za-z_][A-Za-z0-9_]*"
    name = "mapping"

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "patternProperties": {rf"^(?:{self.key_pattern}){_END}": typed_schema(self.item)},
            "additionalProperties": False,
        }

    def parse(self, raw: object) -> dict[str, Any]:
        if not isinstance(raw, Mapping):
            raise ValueError(f"{_spelt(raw)} is not a mapping; write for example {{NAME: value}}")
        return {str(key): self.item.parse(value) for key, value in raw.items()}

    def show(self, value: Any) -> str:
        return (
            "{" + ", ".join(f"{key}: {self.item.show(item)}" for key, item in value.items()) + "}"
        )


def typed_schema(kind: ValueType) -> dict[str, Any]:
    """The fragment of a type with its name as `x-type`, by which errors find the type again."""
    return kind.schema() | {"x-type": kind.name}
