"""Builds checks: the comparisons that a fact's fields and operators stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from runbooks.engine.binding import ESTIMATE_BYTES
from runbooks.engine.load.collector import Collector
from runbooks.engine.load.places import NodePath
from runbooks.engine.load.schema import value_operators
from runbooks.engine.load.typed import FAULT, parse_arguments, parse_value
from runbooks.engine.model.check import OPERATORS, Check, Want
from runbooks.engine.model.fact import Fact
from runbooks.engine.model.values import Percent, Size
from runbooks.engine.registry import Registry

__all__ = ["build_check"]

_LOWER, _UPPER = ("gt", "ge"), ("lt", "le")


def build_check(
    raw: Mapping[str, Any], path: NodePath, registry: Registry, found: Collector, *, lasting: bool
) -> Check | None:
    """The check written at `path`, or None when it has a fault (told).

    `lasting` checks decide whether a step is done: they may not rest on volatile fields.
    """
    name = next(key for key in raw if key != "host")
    fact = registry.facts[name]
    body = raw[name]
    here = (*path, name)
    host = raw.get("host")
    args = parse_arguments(fact.arguments, body, here, found)
    if not found.holds(path) and (problem := fact.check_arguments(args)) is not None:
        found.key(here, problem)
    wants = _wants(fact, body, here, found)
    if found.holds(path):
        return None
    if not wants:
        found.key(here, f"fact '{name}' is compared with nothing", _comparable(fact))
        return None
    if lasting:
        _refuse_volatile(fact, body, wants, here, found)
    return Check(fact, args, tuple(wants), host, found.places.key(here))


def _comparable(fact: Fact) -> str:
    words = [*(name for name in value_operators(fact) if name != "within"), *fact.fields]
    return f"write one of: {', '.join(words)}"


def _wants(fact: Fact, body: Mapping[str, Any], here: NodePath, found: Collector) -> list[Want]:
    wants: list[Want] = []
    operators = value_operators(fact)
    for name, raw in body.items():
        path = (*here, name)
        if name in fact.fields:
            field, operator, kind = name, "eq", fact.fields[name].type
            parsed = parse_value(kind, raw, path, found)
        elif name in operators and name != "within" and fact.value is not None:
            field, operator, kind = fact.value, name, fact.fields[fact.value].type
            parsed = parse_value(operators[name], raw, path, found)
        else:
            continue
        if parsed is FAULT:
            continue
        if operator == "matches":
            _compile(parsed, path, found)
        if _estimate(parsed) and not (isinstance(kind, Size) and kind.estimate):
            found.value(path, f"{raw} is an amount of bytes; '{name}' compares {kind.name}")
        wants.append(Want(field, operator, parsed, kind))
    _refuse_contradiction(fact, wants, here, found)
    if "within" in body:
        wants = _with_tolerance(wants, body["within"], here, found)
    compared = {want.field for want in wants}
    wants += [
        Want(name, "eq", value, fact.fields[name].type)
        for name, value in fact.defaults.items()
        if name not in compared and not found.holds(here)
    ]
    return wants


def _estimate(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_estimate, value))
    return isinstance(value, str) and ESTIMATE_BYTES.fullmatch(value) is not None


def _compile(pattern: str, path: NodePath, found: Collector) -> None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        found.value(path, f"{pattern!r} is not a regular expression: {error}")


def _with_tolerance(wants: list[Want], raw: Any, here: NodePath, found: Collector) -> list[Want]:
    within = parse_value(Percent(), raw, (*here, "within"), found)
    amounts = [want for want in wants if want.operator == "eq" and want.type.ordered]
    if not amounts:
        found.key(
            (*here, "within"),
            "within needs an equal amount to be near to",
            "write it beside eq, or beside a field that is an amount",
        )
    if within is FAULT:
        return wants
    return [
        Want(want.field, want.operator, want.value, want.type, within) if want in amounts else want
        for want in wants
    ]


def _refuse_contradiction(fact: Fact, wants: list[Want], here: NodePath, found: Collector) -> None:
    """Comparisons of one field that cannot hold together, or say one thing twice."""
    values: dict[str, Any] = {}
    for want in wants:
        if want.field == fact.value:
            if want.operator in values:
                found.key(here, f"'{want.field}' and eq are the same comparison; write one of them")
                return
            values[want.operator] = want.value
    if "eq" in values and len(values) > 1:
        others = ", ".join(name for name in values if name != "eq")
        found.key(here, f"eq says it all; {others} beside it adds nothing or contradicts")
        return
    for pair in (_LOWER, _UPPER):
        if all(name in values for name in pair):
            found.key(here, f"{pair[0]} and {pair[1]} are one bound twice; write one of them")
            return
    lower = next((name for name in _LOWER if name in values), None)
    upper = next((name for name in _UPPER if name in values), None)
    if (
        lower
        and upper
        and not isinstance(values[lower], str)
        and not isinstance(values[upper], str)
    ):
        least, most = values[lower], values[upper]
        if least > most or (least == most and (lower, upper) != ("ge", "le")):
            found.key(here, f"{lower} and {upper} contradict each other; nothing is both")


def _refuse_volatile(
    fact: Fact, body: Mapping[str, Any], wants: list[Want], here: NodePath, found: Collector
) -> None:
    """Volatile fields change without anybody acting: a step would be redone for nothing."""
    for want in wants:
        if not fact.fields[want.field].volatile:
            continue
        key = next((name for name in (want.field, *OPERATORS) if name in body), None)
        whole = want.field == fact.value and want.field not in body
        what = f"'{fact.name}'" if whole else f"'{want.field}' of '{fact.name}'"
        path = (*here, key) if key else here
        found.key(
            path,
            f"{what} is volatile and may not stand in ensures unless the step is transient",
            "ensures decides whether the step is done; put this into requires",
        )
        return
