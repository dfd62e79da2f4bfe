"""YAML as runbooks read it: scalars, places, and everything that is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from runbooks.engine.load import source as source_module
from runbooks.engine.load.source import MAX_BYTES, MAX_DEPTH, parse_source, read_source
from runbooks.engine.model.diagnostic import ExitCode, RunbookError

FILE = Path("t.yaml")


def tree(text: str | bytes):
    return parse_source(text.encode() if isinstance(text, str) else text, FILE).tree


def refused(text: str | bytes) -> tuple[str, int, int]:
    with pytest.raises(RunbookError) as caught:
        tree(text)
    assert len(caught.value.diagnostics) == 1, caught.value.diagnostics
    item = caught.value.diagnostics[0]
    assert item.place is not None
    return (
        item.message + (f" | {item.hint}" if item.hint else ""),
        item.place.line,
        item.place.column,
    )


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("True", "True"),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("Null", "Null"),
        ("0644", "0644"),
        ("0o644", "0o644"),
        ("0x1F", "0x1F"),
        ("72:00:00", "72:00:00"),
        ("22:22", "22:22"),
        ("87_800_000", 87_800_000),
        ("87__8", "87__8"),
        ("87_", "87_"),
        ("3.10", 3.1),
        ("-1.5", -1.5),
        ("1.5e3", 1500.0),
        ("1e5", "1e5"),
        ("12e34567", "12e34567"),
        ("0012345", "0012345"),
        ("+5", "+5"),
        ("-5", -5),
        (".5", ".5"),
        ("5.", "5."),
        ("2026-09-22", "2026-09-22"),
        ("1" * 40, "1" * 40),
        ('"12"', "12"),
        ("'true'", "true"),
        ("x #b", "x"),
        ("x#b", "x#b"),
    ],
)
def test_plain_scalars_are_yaml_1_2_core(written: str, value: object) -> None:
    found = tree(f"a: {written}\n")["a"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "words", "line", "column"),
    [
        ("", "empty", 1, 1),
        ("# only a comment\n", "empty", 1, 1),
        ("---\n", "empty", 1, 1),
        ("- a\n", "a list", 1, 1),
        ("just text\n", "a single value", 1, 1),
        ("a: 1\n---\nb: 2\n", "second document", 2, 1),
        ("a: 1\nb: 2\na: 3\n", "'a' stands twice in one mapping; first on line 1", 3, 1),
        ("x: {a: 1, a: 2}\n", "stands twice", 1, 11),
        ('a: 1\n"a": 2\n', "stands twice", 2, 1),
        ("a: &x 1\nb: *x\n", "alias '*x'", 2, 4),
        ("b: {<<: {a: 1}}\n", "merge key", 1, 5),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "merge key", 3, 3),
        ("1: a\n", "not text; put it in quotes", 1, 1),
        ("true: a\n", "not text", 1, 1),
        ("null: a\n", "not text", 1, 1),
        ("? [a]\n: b\n", "list or mapping", 1, 3),
        ("a: !!python/object:os.system x\n", "tag '!!python/object:os.system'", 1, 4),
        ("a: !foo x\n", "tag '!foo'", 1, 4),
        ("a: !!str 1\n", "tag '!!str'", 1, 4),
        ("a: !foo {b: 1}\n", "tag", 1, 4),
        ("a: .nan\n", ".nan", 1, 4),
        ("a: -.INF\n", "-.INF", 1, 4),
        ("a: {{ x }}\n", "${{", 1, 4),
        ("a: {{ x }}/foo\n", "${{", 1, 4),
        ("a: [b, {{ x }}]\n", "${{", 1, 8),
        ("a: [${{ vars.x }}]\n", 'quote it: "${{ vars.x }}"', 1, 5),
        ("a: {b: ${{ vars.x }}}\n", "quote it", 1, 8),
        ("a: [b {{ x }}]\n", "${{", 1, 7),
        ("a:\n\tb: 1\n", "tab", 2, 1),
        ("a: [1\nb: 2\n", "not YAML", 2, 2),
        ("a: b: c\n", "': '", 1, 5),
        ("a: 'x\n", "inside quotes", 2, 1),
        ("a: x\x1by\n", "U+001B", 1, 5),
        ("a: x\x00y\n", "U+0000", 1, 5),
        ("a: x\u202ey\n", "U+202E", 1, 5),
        ('a: "x\\0y"\n', "NUL", 1, 4),
        (b"a: b\nc: \xff\n", "byte 0xff is not UTF-8", 2, 4),
        ("é: b\n".encode("latin-1"), "not UTF-8", 1, 1),
        (b"\xef\xbb\xbfa: 1\n", "byte order mark", 1, 1),
        ("a: 1\n".encode("utf-16"), "UTF-16", 1, 1),
        ("${{ vars.x }}: 1\n", "key holds", 1, 1),
        ("a: " + "[" * 100 + "]" * 100 + "\n", f"more than {MAX_DEPTH} deep", 1, 43),
        ("a: " + "[" * 200_000, "deep", 1, 1003),
        ("a: 1\n" + "#" * MAX_BYTES, "larger than 1024 KiB", 1, 1),
        ("%YAML 3.0\n---\na: 1\n", "not YAML", 1, 1),
    ],
)  # fmt: skip
def test_refused_with_a_place(text: str | bytes, words: str, line: int, column: int) -> None:
    message, at_line, at_column = refused(text)
    assert words in message
    assert (at_line, at_column) == (line, column)


def test_an_anchor_that_nobody_uses_is_harmless() -> None:
    assert tree("a: &x {b: 1}\nc: &y 2\n") == {"a": {"b": 1}, "c": 2}


def test_a_duplicate_names_both_lines() -> None:
    with pytest.raises(RunbookError) as caught:
        tree("a: 1\nb: 2\na: 3\n")
    related = caught.value.diagnostics[0].related
    assert [place.line for place, _ in related] == [1]


def test_several_faults_come_together_in_order() -> None:
    with pytest.raises(RunbookError) as caught:
        tree("a: &x 1\nb: *x\nc: !t 1\na: 2\n")
    assert [item.place.line for item in caught.value.diagnostics if item.place] == [2, 3, 4]


def test_faults_below_a_duplicate_are_not_told() -> None:
    assert "stands twice" in refused("a: &x 1\nb: 2\nb: {c: *x, d: !t 3, d: 4, 5: 6}\n")[0]


def test_columns_count_characters_after_multi_byte_text() -> None:
    places = parse_source('"ключ 🐟": [é, 🐟🐟, x]\n'.encode(), FILE).places
    assert [places.value(("ключ 🐟", index)).column for index in range(3)] == [12, 15, 19]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_count_alike(end: str) -> None:
    text = end.join(["a:", "  - x", "  - b: |", "      two", "      lines", "    c: 1", ""])
    source = parse_source(text.encode(), FILE)
    assert source.tree == {"a": ["x", {"b": "two\nlines\n", "c": 1}]}
    assert source.places.value(("a", 1, "c")).line == 6
    assert source.places.key(("a", 1, "b")).line == 3


def test_block_values_stand_at_their_key_and_flow_values_at_themselves() -> None:
    places = parse_source(b"a:\n  b:\n  - c: 1\n    d:\ne: [1]\n", FILE).places
    assert places.value(("a",)).line == 1
    assert places.value(("a", "b")).line == 2
    assert places.value(("a", "b", 0)).line == 3
    assert (places.value(("a", "b", 0, "d")).line, places.value(("e",)).column) == (4, 4)
    # A path that is not there gives the nearest that is.
    assert places.value(("a", "b", 0, "x", "y")).line == 3


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.yaml", Path("a\0b")):
        with pytest.raises(RunbookError) as caught:
            read_source(path)
        assert caught.value.code is ExitCode.USAGE
        assert "cannot be read" in str(caught.value)


def test_the_pure_python_parser_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[3] / "runbooks" / "extract.yaml").read_bytes()
    fast = parse_source(text, FILE)
    monkeypatch.setattr(source_module, "_Loader", yaml.SafeLoader)
    slow = parse_source(text, FILE)
    assert slow.tree == fast.tree
    assert slow.places.values == fast.places.values
    assert slow.places.keys == fast.places.keys
    deep = b"a: " + b"[" * (sys.getrecursionlimit() * 2)
    with pytest.raises(RunbookError, match="deep"):
        parse_source(deep, FILE)
