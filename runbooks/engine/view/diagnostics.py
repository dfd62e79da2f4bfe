"""Diagnostics for people: place, message, hint, and the line itself with a caret below."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from runbooks.engine.model.diagnostic import Diagnostic, Place
from runbooks.engine.run.event import SCHEMA_VERSION
from runbooks.engine.view.text import make_console, printable

__all__ = ["Renderer", "diagnostic_record", "render_plain", "show_diagnostics"]

# Cells of a source line that a frame shows; a longer line is cut around its caret.
FRAME_CELLS = 96
_LONGEST_MESSAGE = 600
_BREAK = re.compile(r"\r\n|\n|\r")


def show_diagnostics(
    diagnostics: Iterable[Diagnostic], *, names: Mapping[Path, str] | None = None
) -> None:
    """Print to standard error, in colour on a terminal."""
    make_console(stderr=True).print(Renderer(names or {}).render(diagnostics))


def render_plain(
    diagnostics: Iterable[Diagnostic], *, names: Mapping[Path, str] | None = None
) -> str:
    """All diagnostics as text without colours."""
    return Renderer(names or {}).render(diagnostics).plain


def diagnostic_record(item: Diagnostic) -> dict[str, Any]:
    """One JSON object for one diagnostic; the schema version comes first."""
    record: dict[str, Any] = {"v": SCHEMA_VERSION, "event": "diagnostic", "message": item.message}
    if item.place:
        record |= _place_record(item.place)
    if item.where:
        record["where"] = item.where
    if item.hint:
        record["hint"] = item.hint
    if item.related:
        record["related"] = [
            _place_record(place) | {"message": text} for place, text in item.related
        ]
    return record | {"exit": int(item.code)}


def _place_record(place: Place) -> dict[str, Any]:
    return {"file": str(place.file), "line": place.line, "column": place.column}


@dataclass
class Renderer:
    """Renders diagnostics; reads each file once for its frames.

    `names` says how the user wrote a file's path, which is how it is printed.
    """

    names: Mapping[Path, str]
    _lines: dict[Path, list[str]] = field(default_factory=dict)

    def render(self, diagnostics: Iterable[Diagnostic]) -> Text:
        return Text("\n").join(self._one(item) for item in diagnostics)

    def _one(self, item: Diagnostic) -> Text:
        text = Text()
        start = self._shown(item.place) if item.place else _line(item.where or "")
        if start:
            text.append(f"{start}: ", style="bold")
        text.append("error: ", style="bold red")
        text.append(_line(item.message), style="bold")
        if item.hint:
            text.append("\n  hint: ", style="cyan")
            text.append(_line(item.hint))
        if item.place:
            text.append_text(self._frame(item.place))
        for place, note in item.related:
            where = f"line {place.line}"
            if item.place is None or place.file != item.place.file:
                where = f"{self._name(place.file)}, {where}"
            text.append("\n  note: ", style="cyan")
            text.append(f"{where}: {_line(note)}")
            text.append_text(self._frame(place, before=False))
        return text

    def _shown(self, place: Place) -> str:
        return f"{self._name(place.file)}:{place.line}:{place.column}"

    def _name(self, file: Path) -> str:
        return _line(self.names.get(file, str(file)))

    def _frame(self, place: Place, *, before: bool = True) -> Text:
        """The line before, the line, and a caret; nothing where the file cannot be read."""
        lines = self._read(place.file)
        frame = Text()
        if not 1 <= place.line <= len(lines):
            return frame
        gutter = len(str(place.line))
        if before and place.line > 1 and lines[place.line - 2].strip():
            shown, _ = _cut(lines[place.line - 2], 1)
            frame.append(f"\n  {place.line - 1:>{gutter}} | {shown}", style="dim")
        shown, offset = _cut(lines[place.line - 1], place.column)
        frame.append(f"\n  {place.line:>{gutter}} | ", style="dim")
        frame.append(shown)
        frame.append(f"\n  {'':>{gutter}} | ", style="dim")
        frame.append(" " * offset + "^", style="bold red")
        return frame

    def _read(self, file: Path) -> list[str]:
        if file not in self._lines:
            try:
                text = file.read_bytes().decode(errors="replace")
            except (OSError, ValueError):
                self._lines[file] = []
            else:
                self._lines[file] = _BREAK.split(text)
        return self._lines[file]


def _line(text: str) -> str:
    """One printable line, cut in its middle where it is very long."""
    shown = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    if len(shown) > _LONGEST_MESSAGE:
        half = _LONGEST_MESSAGE // 2
        shown = f"{shown[:half]} … {shown[-half:]}"
    return shown


def _cut(line: str, column: int) -> tuple[str, int]:
    """A line as shown within FRAME_CELLS, and the cells before the caret."""
    # Only the neighbourhood counts: lines may be a megabyte long.
    start = max(0, column - 1 - FRAME_CELLS)
    cells = [_cell(char) for char in line[start : column - 1 + FRAME_CELLS]]
    caret = min(column - 1 - start, len(cells))
    left = caret
    room = FRAME_CELLS * 2 // 3
    while left and (room := room - cell_len(cells[left - 1])) >= 0:
        left -= 1
    right = caret
    room = FRAME_CELLS - sum(map(cell_len, cells[left:caret]))
    while right < len(cells) and (room := room - cell_len(cells[right])) >= 0:
        right += 1
    cut_left = start + left > 0
    cut_right = start + right < len(line)
    shown = "".join(cells[left:right])
    offset = sum(map(cell_len, cells[left:caret])) + (1 if cut_left else 0)
    return f"{'…' if cut_left else ''}{shown}{'…' if cut_right else ''}", offset


def _cell(char: str) -> str:
    return "  " if char == "\t" else printable(char)
