"""Large files: one pass, a bounded number of errors, no recursion."""

from __future__ import annotations

import time

import pytest

from runbooks.engine.load.collector import MOST_FAULTS
from runbooks.engine.load.source import MAX_BYTES
from tests.engine.load.support import HEAD, STEP, faults, load


def many(count: int, line: str) -> str:
    return "".join(line.replace("%", str(index)) for index in range(count))


def steps(count: int, needs: str) -> str:
    step = f"  s%: {{needs: [{needs}], hosts: [llm-two], requires: [{{path: {{path: /x, is: file}}}}]}}\n"
    return f"{HEAD}steps:\n" + many(count, step)


STEP_TEXT = f"{HEAD}steps:\n{STEP}"
BIG = 1_000_000

FILES = {
    "unknown keys": STEP_TEXT + many(10_000, "    k%: 1\n"),
    "unknown needs": steps(2_000, "nobody%"),
    "self needs": steps(2_000, "s%"),
    "one long cycle": steps(2_000, "s%").replace("[s0]", "[s1999]", 1),
    "aliases": "a: &a [1]\n" + many(10_000, "b%: *a\n"),
    "duplicates": "a: 1\n" * 100_000,
    "one bad variable everywhere": STEP_TEXT.replace("steps:", "vars: {x: '${{ vars.x }}'}\nsteps:").replace(
        "touch", "touch" + many(10_000, ', "${{ vars.x }}"')
    ),
    "unknown variables": STEP_TEXT.replace("touch", "touch" + many(8_000, ', "${{ vars.x% }}"')),
    "unclosed blanks": STEP_TEXT.replace("touch", "'${{ vars.x" + " " * BIG + "'"),
    "a long key": STEP_TEXT + f"    {'k' * 1000}: 1\n",
    "variables in a cycle each": STEP_TEXT.replace("steps:", "vars:\n" + many(5_000, "  v%: '${{ vars.v% }}'\n") + "steps:"),
    "wrong items": STEP_TEXT.replace("touch", "touch" + ", 1" * 40_000),
    "wrong checks": STEP_TEXT + "    requires: [" + "{pat: {}}, " * 10_000 + "]\n",
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_bad_files_end_soon(name: str) -> None:
    text = FILES[name]
    assert len(text) < MAX_BYTES + 100_000
    begun = time.monotonic()
    found = faults(text)
    assert 1 <= len(found) <= MOST_FAULTS
    assert time.monotonic() - begun < 10


def test_good_files_end_soon() -> None:
    begun = time.monotonic()
    assert len(load(steps(2_000, "")).steps) == 2000
    for word in ("a" * BIG + " {{ b }} {{.Names}}", "{{ " + "a" * BIG, "{{ a" * 200_000):
        assert load(STEP_TEXT.replace("touch", f"'{word}'")).steps["a"].do is not None
    assert time.monotonic() - begun < 10
