"""The parser's complaints in the words of a runbook's author."""

from __future__ import annotations

from typing import Any

from runbooks.engine.load.places import Places
from runbooks.engine.model.diagnostic import Diagnostic, Place

__all__ = ["BARE_BRACES", "BRACES_HINT", "syntax_diagnostic"]

BARE_BRACES = "'{{' begins no reference; write ${{ vars.x }}"
BRACES_HINT = 'inside { } or [ ] quote it: "${{ vars.x }}"'

_HINTS = {
    "mapping values are not allowed in this context": (
        "': ' stands inside an unquoted value, or the line is indented wrongly",
        "put the value in quotes",
    ),
    "could not find expected ':'": ("a key without ':'", "write 'key: value'"),
    "did not find expected key": (
        "this does not continue the mapping above",
        "is a quote or bracket left open, or the line indented wrongly?",
    ),
    "exceeded maximum nesting depth": ("nested too deep", None),
    "found unexpected end of stream": ("the file ends inside quotes or brackets", None),
}


def syntax_diagnostic(error: Any, places: Places) -> Diagnostic:
    """A YAMLError with its place; errors without a mark stand at the file's first line."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return Diagnostic(f"not YAML: {error}", Place(places.file, 1, 1))
    lines = places.lines
    line = min(mark.line, len(lines) - 1)
    text = lines[line]
    column = min(mark.column, len(text)) if line == mark.line else len(text)
    place = Place(places.file, line + 1, column + 1)
    problem = getattr(error, "problem", None) or str(error)
    if text[column : column + 1] == "\t":
        return Diagnostic("a tab cannot indent or begin a value; write spaces", place)
    if text.startswith("${{", max(column - 1, 0)) or text.startswith("{{", column):
        dollar = text[column - 1 : column] == "$"
        return Diagnostic(
            "an unquoted ${{ … }} stands inside { } or [ ]" if dollar else BARE_BRACES,
            Place(places.file, line + 1, column + (0 if dollar else 1)),
            hint=BRACES_HINT,
        )
    message, hint = _HINTS.get(problem, (problem, None))
    return Diagnostic(
        f"not YAML: {message}", place, hint=hint, related=_context(error, places, place)
    )


def _context(error: Any, places: Places, place: Place) -> tuple[tuple[Place, str], ...]:
    """Where the thing that is left open began."""
    mark = getattr(error, "context_mark", None)
    context = getattr(error, "context", None)
    if mark is None or not context:
        return ()
    begun = Place(places.file, mark.line + 1, mark.column + 1)
    return ((begun, context),) if begun != place else ()
