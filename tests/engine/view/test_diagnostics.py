"""How diagnostics look: place first, the line with its caret, nothing that a terminal obeys."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, Place
from runbooks.engine.view.diagnostics import (
    FRAME_CELLS,
    Renderer,
    diagnostic_record,
    render_plain,
)


def rendered(
    tmp_path: Path, text: str | bytes, line: int, column: int, message: str = "bad"
) -> list[str]:
    file = tmp_path / "f.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    shown = render_plain([Diagnostic(message, Place(file, line, column))], names={file: "./f.yaml"})
    return shown.splitlines()


def test_place_message_hint_frame_and_related(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("a: 1\nb: 2\na: 3\n")
    item = Diagnostic(
        "'a' twice", Place(file, 3, 1), hint="keep one", related=((Place(file, 1, 1), "first"),)
    )
    assert render_plain([item], names={file: "f.yaml"}).splitlines() == [
        "f.yaml:3:1: error: 'a' twice",
        "  hint: keep one",
        "  2 | b: 2",
        "  3 | a: 3",
        "    | ^",
        "  note: line 1: first",
        "  1 | a: 1",
        "    | ^",
    ]


def test_without_a_place_the_where_stands_first() -> None:
    item = Diagnostic("is empty", where="-v x=", code=ExitCode.USAGE)
    assert render_plain([item]) == "-v x=: error: is empty"
    assert render_plain([Diagnostic("broken")]) == "error: broken"


@pytest.mark.parametrize(
    ("text", "column", "caret"),
    [
        ("ключ: x", 7, 6),
        ("🐟🐟: x", 5, 6),
        ("e\u0301: x", 5, 3),
        ("\tx: y", 2, 2),
        ("a: \x1b[31mx", 9, 11),
        ("short", 40, 5),
    ],
)
def test_the_caret_stands_below_its_character(
    text: str, column: int, caret: int, tmp_path: Path
) -> None:
    lines = rendered(tmp_path, text, 1, column)
    assert lines[-1] == "    | " + " " * caret + "^"
    assert lines[-2].startswith("  1 | ")


@pytest.mark.parametrize("column", [1, 50, 5_000, 99_990, 100_000])
@pytest.mark.parametrize("char", ["x", "🐟"])
def test_long_lines_are_cut_around_the_caret(char: str, column: int, tmp_path: Path) -> None:
    text = char * (column - 1) + "|" + char * (100_000 - column)
    lines = rendered(tmp_path, text, 1, column)
    shown, caret = lines[-2], lines[-1]
    assert cell_len(shown) <= FRAME_CELLS + 8 and len(caret) <= FRAME_CELLS + 8
    before = caret.index("^")
    cells = 0
    for item in shown:
        if cells == before:
            assert item == "|"
            break
        cells += cell_len(item)
    else:
        raise AssertionError("the caret stands beyond the line")


def test_nothing_that_a_terminal_obeys_comes_through(tmp_path: Path) -> None:
    evil = "\x1b]0;title\x07\x9b2J\u202e\r\n"
    lines = rendered(tmp_path, f"a: {evil}", 1, 4, message=f"bad {evil}")
    assert "\\n" in lines[0]
    assert not set("".join(lines)) & set("\x1b\x07\x9b\u202e\r")


def test_bytes_that_are_no_text_and_files_that_are_gone(tmp_path: Path) -> None:
    assert len(rendered(tmp_path, b"a: \xff\xfe\n", 1, 4)) == 3
    assert len(rendered(tmp_path, "a", 7, 1)) == 1
    gone = Diagnostic("bad", Place(tmp_path / "gone.yaml", 1, 1))
    assert render_plain([gone]).endswith("gone.yaml:1:1: error: bad")


def test_a_very_long_message_is_cut(tmp_path: Path) -> None:
    assert len(rendered(tmp_path, "a", 1, 1, message="x" * 100_000)[0]) < 1000


def test_colour_on_a_terminal_only(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("a: 1\n")
    text = Renderer({}).render([Diagnostic("bad [red]not markup[/]", Place(file, 1, 1))])
    for terminal in (True, False):
        stream = io.StringIO()
        Console(
            file=stream,
            force_terminal=terminal,
            color_system="standard" if terminal else None,
            width=40,
            soft_wrap=True,
        ).print(text)
        assert ("\x1b[" in stream.getvalue()) is terminal
        assert "[red]not markup[/]" in stream.getvalue()


def test_as_json() -> None:
    place = Place(Path("f.yaml"), 3, 5)
    record = diagnostic_record(Diagnostic("bad", place, hint="good", related=((place, "first"),)))
    assert list(record)[:2] == ["v", "event"]
    assert record["file"] == "f.yaml" and (record["line"], record["column"]) == (3, 5)
    assert record["hint"] == "good" and record["exit"] == 3
    assert record["related"][0]["message"] == "first"
