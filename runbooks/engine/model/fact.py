"""Facts: what can be read from a host, declared once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Asking
from runbooks.engine.model.values import ValueType

__all__ = ["Argument", "Fact", "Field", "Reading"]


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a fact or an operation. `default` is a parsed value."""

    type: ValueType
    about: str
    required: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class Field:
    """A field that a check may compare. Volatile fields change without anybody acting."""

    type: ValueType
    about: str
    volatile: bool = False


class Fact(ABC):
    """Something read from a host now, without changing it.

    `value` names the field that `eq ne lt le gt ge in matches within` compare; the other
    fields compare by equality under their own names. `defaults` are compared in every check
    that does not compare these fields itself (`dataset: {path: …, samples: 9}` also wants
    `state: complete`).

    `read` yields `Shell` scripts, receives `Output`, and returns every field: a value,
    `ABSENT` where there is nothing, or an `Unknown` instance for a field that cannot be
    known. Raising `Unknown` makes all fields unknown. A missing binary is absent; a denied,
    timed-out or unparsable probe is unknown.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    arguments: ClassVar[Mapping[str, Argument]] = {}
    fields: ClassVar[Mapping[str, Field]] = {}
    value: ClassVar[str | None] = None
    defaults: ClassVar[Mapping[str, Any]] = {}

    def check_arguments(self, args: Mapping[str, Any]) -> str | None:
        """What is wrong with arguments together (one of two is missing), or None; at load."""
        return None

    def for_plan(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Cheaper arguments for a plan, where the full reading takes hours (checksums)."""
        return args

    @abstractmethod
    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Ask the host and return the fields."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The fields of a fact as they were on a host at a time (seconds since the epoch)."""

    fields: Mapping[str, Any]
    host: str
    at: float
    unknown: str | None = None
    unreachable: bool = False
