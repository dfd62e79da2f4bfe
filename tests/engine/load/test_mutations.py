"""Mutated runbooks, by the thousand: a runbook or a RunbookError with places, nothing else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runbooks.engine.load import load_source, parse_source
from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from runbooks.engine.view.diagnostics import render_plain
from tests.engine.load.support import CASES, EXTRACT, HOSTS, PROJECT, stubs

# What no committed runbook has.
JOINED = b"""\
runbook: joined
vars: {shards: [0, 1], rows: 5}
secrets: {t: {env: T}}
defaults: {notify: {when: [failed], webhook: "${{ secrets.t }}"}}
matrix: {shard: "${{ vars.shards }}", lang: [en, de]}
include:
  - {runbook: runbooks/extract.yaml, as: data, vars: {samples: "${{ vars.rows }}"}, needs: [first]}
  - {runbook: runbooks/extract.yaml, as: more, needs: [data]}
steps:
  first: {needs: [], hosts: [llm-two], requires: [{path: {path: /x, is: file}}]}
  a:
    needs: [data.merge, first]
    hosts: [llm-two]
    do: {command: {argv: [touch, "data:${{ matrix.shard }}-${{ matrix.lang }}"]}}
    ensures: [{path: {path: "data:${{ matrix.shard }}", is: file}}]
    notify: {when: [late, finished], command: [tell, "${{ matrix.lang }}"]}
  b:
    needs: [a, "a[shard=1,lang=en]"]
    hosts: [llm-two]
    do: {command: {argv: [touch, "data:${{ matrix.shard }}"]}}
    ensures: [{path: {path: "data:${{ matrix.shard }}", is: file}}]
"""
SEEDS = [
    JOINED,
    JOINED,
    *(file.read_bytes() for file in (EXTRACT, *sorted(CASES.glob("[0-9]*.yaml")))),
]
FILE = Path("mutated.yaml")
# What breaks YAML, a reference, a type, or a name, put where it is not expected.
SPLINTERS = [
    b"{", b"}", b"[", b"]", b":", b": ", b"- ", b"\n", b"\r", b"\t", b" ", b"#", b"&a ", b"*a",
    b"!x ", b"!!str ", b"'", b'"', b"|\n", b">-\n", b"?", b"<<: ", b"---\n", b"...\n", b"%YAML 1.2\n",
    b"${{ vars.samples }}", b"${{ vars.", b"{{ x }}", b"${{ secrets.t }}", b"${{ root.data }}",
    b"${{ estimate.bytes }}", b"\xff", b"\x00", b"\xef\xbb\xbf", "é🐟".encode(), b"null", b"true", b"-1",
    b"1e999", b"9" * 30, b".inf", b"data:", b"..", b"x-", b"in: [1]", b"within: 2%", b"matches: '('",
    b"${{ matrix.shard }}", b"matrix: {s: [0]}\n", b"include: []\n", b"[shard=0]", b"as: ", b"data.", b"webhook: x",
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def at_the_root() -> Iterator[None]:
    """Includes are relative to the file."""
    with chdir(PROJECT):
        yield


def judge(raw: bytes) -> None:
    try:
        book = load_source(parse_source(raw, FILE), stubs(), HOSTS)
    except RunbookError as error:
        assert error.diagnostics and error.code is ExitCode.INVALID
        lines = raw.decode(errors="replace").count("\n") + raw.count(b"\r") + 1
        for item in error.diagnostics:
            assert item.place is not None, item
            if item.place.file == FILE:
                assert 1 <= item.place.line <= lines, item
            assert item.place.column >= 1, item
            assert item.message.strip() and "Traceback" not in item.message
        assert len(set(error.diagnostics)) == len(error.diagnostics)
        assert render_plain(error.diagnostics)
    else:
        assert set(book.order) == set(book.steps) and len(book.digest) == 64


@st.composite
def torn(draw: st.DrawFn) -> bytes:
    """Bytes cut out, doubled, swapped, or splinters put in."""
    raw = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        end = min(len(raw), at + draw(st.integers(0, 40)))
        match draw(st.integers(0, 4)):
            case 0:
                del raw[at:end]
            case 1:
                raw[at:at] = draw(st.sampled_from(SPLINTERS))
            case 2:
                raw[at:end] = draw(st.sampled_from(SPLINTERS))
            case 3:
                raw[at:at] = raw[at:end]
            case _:
                raw[at:end] = draw(st.binary(max_size=4))
    return bytes(raw)


@st.composite
def rearranged(draw: st.DrawFn) -> bytes:
    """Whole lines dropped, doubled, moved, or indented otherwise."""
    lines = draw(st.sampled_from(SEEDS)).split(b"\n")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        other = draw(st.integers(0, len(lines) - 1))
        match draw(st.integers(0, 4)):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines.insert(other, lines[at])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at] = b"  " + lines[at]
            case _:
                lines[at] = lines[at].removeprefix(b"  ")
    return b"\n".join(lines)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.sampled_from(
        ["", "x", "72h", "1 GiB", "2%", "data:x", "data:", "/x", "llm-two", "gpu", "file", "a", "extract",
         "${{ vars.samples }}", "${{ secrets.t }}", "${{ root.data }}", "${{ estimate.bytes }}", "${{ matrix.shard }}", "data.merge"]
    ),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["path", "disk_free", "eq", "ge", "host", "x-a", "argv", "times", "a"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def written(value: object) -> str:
    """A tree as YAML in flow style, by hand: yaml.dump would quote our faults away."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


@st.composite
def regrown(draw: st.DrawFn) -> bytes:
    """One value of the tree replaced by another, well-formed one."""
    tree = parse_source(draw(st.sampled_from([JOINED, EXTRACT.read_bytes()])), FILE).tree
    node, depth = tree, draw(st.integers(0, 6))
    key = None
    for _ in range(depth + 1):
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = draw(st.sampled_from(keys))
        if not isinstance(node[key], (dict, list)) or not node[key] or _ == depth:
            break
        node = node[key]
    node[key] = draw(VALUES)
    return written(tree).encode()


@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(torn(), rearranged(), regrown()))
def test_two_thousand_mutations(raw: bytes) -> None:
    judge(raw)


def test_the_joined_runbook_is_sound() -> None:
    """Else its mutations would test little."""
    book = load_source(parse_source(JOINED, FILE), stubs(), HOSTS)
    assert len(book.steps) == 1 + 4 + 2 + 14
    assert set(book.steps["b[shard=0]"].needs) == {
        "a[lang=en,shard=0]",
        "a[lang=de,shard=0]",
        "a[lang=en,shard=1]",
    }


def test_random_bytes() -> None:
    chance = random.Random(20_261_201)
    for size in (0, 1, 2, 5, 50, 500):
        for _ in range(40):
            judge(chance.randbytes(size))
