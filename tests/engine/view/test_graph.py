"""The graph of steps: every step and edge once, names that cannot break the drawing."""

from __future__ import annotations

import re

from runbooks.engine.view.graph import mermaid, text_graph
from tests.engine.load.support import EXTRACT, load, load_file, stubs

ODD = """\
runbook: odd
steps:
  end: {needs: [a.b], hosts: [llm-two], requires: [{path: {path: /x, is: file}}]}
  a.b:
    needs: []
    hosts: [llm-two, kpro6]
    transient: true
    do: {command: {argv: [x]}}
    ensures: [{gpu_processes: {orphans: 0}}]
"""


def test_mermaid_has_every_step_and_edge() -> None:
    book = load_file(EXTRACT, stubs())
    lines = mermaid(book).splitlines()
    assert lines[0] == "flowchart TD"
    assert sum("-->" in line for line in lines) == sum(len(s.needs) for s in book.steps.values())
    for name in book.steps:
        assert sum(f'"{name}<br/>' in line for line in lines) == 1
    assert any(line.startswith('  s0{{"situation<br/>llm-two<br/>gate"}}:::gate') for line in lines)
    assert any("transient" in line and line.endswith(":::transient") for line in lines)
    assert {line.split()[1] for line in lines if "classDef" in line} == {
        "gate",
        "irreversible",
        "transient",
    }


def test_ids_are_not_names() -> None:
    # `end` is a word of Mermaid: as an id it would break the drawing.
    for line in mermaid(load(ODD)).splitlines()[1:]:
        assert re.match(r"  (s\d+\W|s\d+ --> s\d+$|classDef )", line), line


def test_text_is_one_line_a_step_in_order() -> None:
    lines = text_graph(load(ODD)).splitlines()
    assert lines[0].split() == ["a.b", "llm-two,", "kpro6", "command", "transient"]
    assert lines[1].split() == ["end", "llm-two", "gate", "after", "a.b"]
