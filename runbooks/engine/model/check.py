"""Checks: a fact and a comparison as data; judged true, false or unknown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from runbooks.engine.model.diagnostic import Place
from runbooks.engine.model.fact import Fact, Reading
from runbooks.engine.model.probe import Unknown
from runbooks.engine.model.values import Absent, ValueType

__all__ = [
    "OPERATORS",
    "Check",
    "Finding",
    "Truth",
    "Want",
    "judge",
    "out_of_reach",
    "record",
    "sentences",
]

OPERATORS = ("eq", "ne", "lt", "le", "gt", "ge", "in", "matches", "within")
_SIGNS = {
    "eq": "=",
    "ne": "≠",
    "lt": "<",
    "le": "≤",
    "gt": ">",
    "ge": "≥",
    "in": "in",
    "matches": "~",
}


class Truth(Enum):
    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Want:
    """One comparison: a field, an operator, the value it is compared with."""

    field: str
    operator: str
    value: Any
    type: ValueType
    within: float | None = None

    def show(self) -> str:
        """The wanted value in words: `≥ 3.5 TiB`, `absent`, `924 GB within 2%`."""
        if self.operator == "in":
            shown = "in [" + ", ".join(self.type.show(item) for item in self.value) + "]"
        elif self.operator == "matches":
            shown = f"matching {self.value}"
        else:
            sign = _SIGNS[self.operator]
            shown = f"{'' if sign == '=' else sign + ' '}{self.type.show(self.value)}"
        return shown + (f" within {self.within * 100:g}%" if self.within is not None else "")


@dataclass(frozen=True, slots=True)
class Check:
    """`<fact>: {arguments, comparison}`, perhaps read on another host than the step's."""

    fact: Fact
    args: Mapping[str, Any]
    wants: tuple[Want, ...]
    host: str | None = None
    place: Place | None = None

    @property
    def subject(self) -> str:
        """The fact with its arguments, as people say it: `path data:hidden`."""
        # `true` says nothing by itself: a switch is shown by its name.
        shown = [
            name if value is True else self.fact.arguments[name].type.show(value)
            for name, value in self.args.items()
            if value is not None and value != self.fact.arguments[name].default
        ]
        return " ".join([self.fact.name, *shown])


@dataclass(frozen=True, slots=True)
class Finding:
    """A check judged: what was wanted, what was read, where and when.

    `durable` holds every field that stays true unless somebody acts, whether compared or not,
    as JSON has it (an absent one is None; unknown ones are left out): for checkpoints and
    saved plans.
    """

    check: Check
    truth: Truth
    wanted: str
    read: str
    host: str
    at: float
    reason: str = ""
    unreachable: bool = False
    durable: Mapping[str, Any] = field(default_factory=dict)

    def sentence(self) -> str:
        """`path data:hidden is absent, want directory`."""
        if self.truth is Truth.UNKNOWN:
            return f"{self.check.subject}: unknown ({self.reason}), want {self.wanted}"
        if self.truth is Truth.TRUE:
            return f"{self.check.subject}: {self.read}"
        return f"{self.check.subject}: {self.read}, want {self.wanted}"


def sentences(findings: Sequence[Finding], truth: Truth) -> str:
    """Those that came out as `truth`, as one text."""
    return "; ".join(finding.sentence() for finding in findings if finding.truth is truth)


def out_of_reach(findings: Sequence[Finding]) -> bool:
    """Whether what is unknown is so only because hosts are down."""
    unknown = [finding for finding in findings if finding.truth is Truth.UNKNOWN]
    return bool(unknown) and all(finding.unreachable for finding in unknown)


def record(finding: Finding) -> dict[str, Any]:
    """A finding for machines: what was wanted and read, where and when."""
    return {
        "check": finding.check.subject,
        "host": finding.host,
        "truth": finding.truth.value,
        "wanted": finding.wanted,
        "read": finding.read,
        "reason": finding.reason,
        "at": round(finding.at, 3),
    }


def judge(check: Check, reading: Reading) -> Finding:
    """Compare. Unknown weighs more than false: what cannot be known never leads to an act."""
    several = len(check.wants) > 1
    truths: list[Truth] = []
    reasons: list[str] = []
    reads: list[str] = []
    wanteds: list[str] = []
    for want in _telling(check, reading):
        value = Unknown(reading.unknown) if reading.unknown else _field(reading, want)
        truth, reason = _compare(want, value)
        label = "" if want.field in (check.fact.value, "is") else f"{want.field} "
        shown = value.reason if isinstance(value, Unknown) else _shown(want, value)
        if truth is Truth.TRUE and want.operator != "eq":
            # The limit belongs to the reading: 74.9 GiB says little without "≥ 2 GiB".
            shown += f" ({want.show()})"
        reads.append(f"{label}{shown}")
        if truth is not Truth.TRUE or not several:
            wanteds.append(f"{label}{want.show()}" if several else want.show())
        if reason:
            reasons.append(reason)
        truths.append(truth)
    overall = next((truth for truth in (Truth.UNKNOWN, Truth.FALSE) if truth in truths), Truth.TRUE)
    if overall is Truth.FALSE:
        reads = [text for text, truth in zip(reads, truths, strict=True) if truth is Truth.FALSE]
    return Finding(
        check=check,
        truth=overall,
        wanted=", ".join(wanteds),
        read=", ".join(reads),
        host=reading.host,
        at=reading.at,
        reason="; ".join(dict.fromkeys(reasons)),
        unreachable=reading.unreachable,
        durable=_durable(check, reading),
    )


def _durable(check: Check, reading: Reading) -> dict[str, Any]:
    return {
        name: None if isinstance(value, Absent) else value
        for name, value in reading.fields.items()
        if name in check.fact.fields
        and not check.fact.fields[name].volatile
        and not isinstance(value, Unknown)
    }


def _telling(check: Check, reading: Reading) -> list[Want]:
    """Without the absent fields of a thing whose main field says already that it is not there."""
    mains = [want for want in check.wants if want.field == check.fact.value]
    if not any(_compare(want, reading.fields.get(want.field))[0] is Truth.FALSE for want in mains):
        return list(check.wants)
    return [
        want
        for want in check.wants
        if want in mains or not isinstance(reading.fields.get(want.field), Absent)
    ]


def _field(reading: Reading, want: Want) -> Any:
    if want.field not in reading.fields:
        return Unknown(f"the fact gave no field '{want.field}'")
    return reading.fields[want.field]


def _shown(want: Want, value: Any) -> str:
    return "absent" if isinstance(value, Absent) else want.type.show(value)


def _compare(want: Want, value: Any) -> tuple[Truth, str]:
    if isinstance(value, Unknown):
        return Truth.UNKNOWN, value.reason
    if isinstance(value, Absent):
        return Truth.FALSE, ""
    try:
        holds = _holds(want, value)
    except TypeError:
        kind = type(value).__name__
        return Truth.UNKNOWN, f"{want.field} is a {kind}, which does not compare with {want.show()}"
    return (Truth.TRUE if holds else Truth.FALSE), ""


def _holds(want: Want, value: Any) -> bool:
    wanted = want.value
    match want.operator:
        case "eq":
            if want.within is not None:
                return bool(abs(value - wanted) <= want.within * abs(wanted))
            return _same(value, wanted)
        case "ne":
            return not _same(value, wanted)
        case "lt":
            return bool(value < wanted)
        case "le":
            return bool(value <= wanted)
        case "gt":
            return bool(value > wanted)
        case "ge":
            return bool(value >= wanted)
        case "in":
            return any(_same(value, item) for item in wanted)
        case "matches":
            return re.search(wanted, value) is not None
    raise TypeError(want.operator)


def _same(value: Any, wanted: Any) -> bool:
    """Equality without Python's `True == 1`."""
    if isinstance(value, bool) != isinstance(wanted, bool):
        raise TypeError
    return bool(value == wanted)
