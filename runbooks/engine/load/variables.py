"""Variables of a runbook: overrides of the command line, and variables that use variables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from runbooks.engine.load.scalars import resolve_plain
from runbooks.engine.model.diagnostic import RunbookError, did_you_mean

__all__ = ["NAME", "apply_overrides", "cycle_in", "parse_variables", "show_value", "unfit"]

NAME = r"[A-Za-z_][A-Za-z0-9_-]*"


def parse_variables(given: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` words of the command line as a mapping; RunbookError (usage) otherwise.

    A variable of an included file bears its name there: `data.samples=10`.
    """
    found: dict[str, str] = {}
    for word in given:
        name, sign, value = word.partition("=")
        if not sign or not re.fullmatch(rf"{NAME}(?:\.{NAME})*", name):
            raise RunbookError.usage(
                f"'{word}' sets no variable", where="-v", hint="write -v name=value"
            )
        if name in found:
            raise RunbookError.usage(f"variable '{name}' is given twice", where="-v")
        found[name] = value
    return found


def apply_overrides(
    declared: Mapping[str, Any], overrides: Mapping[str, str], prefix: str = ""
) -> dict[str, Any]:
    """The values of the command line in their declared types, by name.

    `prefix` stands before names in messages: an included file's own (`data.`).
    RunbookError (usage) names a variable that is not declared, or a value of another type.
    """
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        where = f"-v {prefix}{name}={text}"
        if name not in declared:
            raise RunbookError.usage(
                f"the runbook declares no variable '{prefix}{name}'",
                where=where,
                hint=did_you_mean(f"{prefix}{name}", [prefix + other for other in declared]),
            )
        if "${{" in text:
            raise RunbookError.usage(
                "a value given on the command line holds no ${{ }}", where=where
            )
        values[name] = _typed(declared[name], text, where)
    return values


def _typed(declared: Any, text: str, where: str) -> Any:
    if isinstance(declared, str):
        return text
    kind = _kind(declared)
    try:
        if isinstance(declared, list):
            raise ValueError
        value = resolve_plain(text)
    except ValueError:
        value = text
    fits = _kind(value) == kind or (kind == "number" and _kind(value) == "whole number")
    if not fits:
        raise RunbookError.usage(
            f"'{text}' is not a {kind}, as the runbook declares (it has {show_value(declared)})",
            where=where,
            hint="a list is changed in the file only" if isinstance(declared, list) else None,
        )
    return value


def unfit(declared: Any, value: Any) -> str | None:
    """Why a value from an including file does not fit a variable as declared, or None."""
    if isinstance(declared, str) and "${{" in declared:
        return None  # its type is that of what it refers to
    wanted, kind = _kind(declared), _kind(value)
    if kind == wanted or (wanted == "number" and kind == "whole number"):
        return None
    words = {one: one if one == "text" else f"a {one}" for one in (kind, wanted)}
    return f"{show_value(value)} is {words[kind]}, not {words[wanted]}"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "whole number"
    if isinstance(value, float):
        return "number"
    return "list" if isinstance(value, list) else "text"


def show_value(value: Any) -> str:
    """A variable within a text: as YAML writes it, without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def cycle_in(graph: Mapping[str, Sequence[str]]) -> list[str] | None:
    """The names of one cycle, each using the next, or None."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # graphlib lists predecessors first and repeats the first name at the end.
        return list(reversed(error.args[1]))[:-1]
    return None
