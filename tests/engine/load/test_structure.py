"""Faults of shape: one error each, with a place and what to write."""

from __future__ import annotations

import pytest

from tests.engine.load.support import HEAD, STEP, fault, faults, load, said, step_with

PURGE = """\
  purge:
    needs: []
    hosts: [llm-two]
    requires: [{tree: {path: "data:old", open_files: 0}}]
    do: {delete: {paths: ["data:old"]}}
    irreversible: {loses: old states, restore: none}
    ensures: [{path: {path: "data:old", is: absent}}]
"""


@pytest.mark.parametrize(
    ("line", "words", "place"),
    [
        # A scalar or flow value at fault: the value.
        ("timeout: 72:00:00", "'72:00:00' is not a duration; write 72h", (7, 14)),
        ("timeout: 90", "90s, 90m or 90h", (7, 14)),
        ("timeout: 1.5h", "'1.5h' is not a duration", (7, 14)),
        ("timeout: [1h]", "not a duration", (7, 14)),
        ('transient: "false"', "'false' is not a boolean; write false", (7, 16)),
        ("transient: yes", "write true", (7, 16)),
        ("transient: no", "'no' is not a boolean; write false", (7, 16)),
        ("estimate: {writes: {data: 3500}}", "3500 GiB", (7, 31)),
        ("estimate: {writes: {data: 3.5 G}}", "not a size", (7, 31)),
        ("estimate: {}", "estimate is empty", (7, 15)),
        ("estimate: {from: extractor}", "unknown from 'extractor'", (7, 22)),
        ("retry: {times: -1}", "too small", (7, 20)),
        ("retry: {times: 1.0}", "not a whole number", (7, 20)),
        ("retry: {times: 1, when: [failed]}", "'failed' is none of: unreachable, timeout", (7, 30)),
        ("retry: {times: 1, backoff: 0.5}", "below 1", (7, 32)),
        ("requires: []", "requires is empty", (7, 15)),
        ("requires: {path: {path: /x, is: file}}", "requires is a mapping", (7, 15)),
        ("requires: [path]", "item 1 of requires is the value 'path'", (7, 16)),
        ("requires: [{}]", "item 1 of requires is empty", (7, 16)),
        ("requires: [{host: kpro6}]", "names a host but no fact", (7, 16)),
        ("requires: [{path: {path: /x, is: fil}}]", "'fil' is none of: file, directory", (7, 38)),
        ("requires: [{path: {path: x/y, is: file}}]", "'x/y' is not a path", (7, 30)),
        ("requires: [{path: {path: /x, is: 5}}]", "5 is none of", (7, 38)),
        ("requires: [{row_count: {path: 'data:x', eq: '5'}}]", "'5' is not a whole number", (7, 49)),
        ("requires: [{git: {repo: 'data:g', commit: 1234567}}]", 'put it in quotes: "1234567"', (7, 47)),
        ("about: 5", "5 is not text", (7, 12)),
        ("watch: {late: 80}", "not a duration", (7, 19)),
        # Nothing at all: the key.
        ("requires:", "requires has no value", (7, 5)),
        ("timeout:", "timeout has no value", (7, 5)),
        ("undo: {command: }", "command has no value", (7, 12)),
        # Unknown keys: the key.
        ("timeot: 1h", "did you mean 'timeout'?", (7, 5)),
        ("Timeout: 1h", "did you mean 'timeout'?", (7, 5)),
        ("foo: 1", "unknown step key 'foo'", (7, 5)),
        ("watch: {lat: 1h}", "did you mean 'late'?", (7, 13)),
        ("requires: [{path: {path: /x, iss: file}}]", "did you mean 'is'?", (7, 34)),
        ("requires: [{delete: {paths: [x]}}]", "is an operation, not a fact", (7, 17)),
        ("command: {argv: [x]}", "write do: {command: …}", (7, 5)),
        ("notify: {when: [failed], command: [x], to: me}", "unknown key 'to'", (7, 44)),
        # Operators that do not fit.
        ("requires: [{path: {path: /x, lt: file}}]", "'lt' does not fit fact 'path'", (7, 34)),
        ("requires: [{gpu_processes: {eq: 0}}]", "'eq' does not fit", (7, 33)),
        ("requires: [{disk_free: {root: data, matches: x}}]", "'matches' does not fit", (7, 41)),
        ("requires: [{git: {repo: /g, within: 2%}}]", "'within' does not fit", (7, 33)),
        # Missing keys: the key that holds the mapping.
        ("requires: [{path: {is: file}}]", "fact 'path' lacks 'path'", (7, 17)),
        ("retry: {wait: 3s}", "retry lacks 'times'", (7, 5)),
        ("undo: {command: {env: {A: b}}}", "operation 'command' lacks 'argv'", (7, 12)),
        ("irreversible: {loses: x, restore: y}", "irreversible but lacks 'requires'", (4, 3)),
        ("requires: [{path: {path: /x, is: file}, git: {repo: /g, clean: true}}]", "one fact per check", (7, 16)),
        ("undo: {command: {argv: [x]}, job: {argv: [x]}}", "one operation per step", (7, 11)),
        ("release: {command: {argv: [x]}}", "release is for transient steps", (7, 5)),
    ],
)  # fmt: skip
def test_one_mistake_one_error(line: str, words: str, place: tuple[int, int]) -> None:
    item = fault(step_with(line))
    assert words in item.message
    assert said(item)[0] == place[0]
    assert said(item) == place


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("runbook: x\n", "the runbook lacks 'steps'", 1),
        (f"steps:\n{STEP}", "the runbook lacks 'runbook'", 1),
        ("runbook: x\nsteps: {}\n", "steps is empty", 2),
        ("runbook: x\nsteps:\n", "steps has no value", 2),
        ("runbook: x\nsteps: []\n", "steps is a list", 2),
        ("runbook: x\nsteps: {a: }\n", "step 'a' has no value", 2),
        ("runbook: x\nsteps: {a b: {}}\n", "'a b' is no name here", 2),
        (f"runbook: x\nstep:\n{STEP}", "did you mean 'steps'?", 2),
        (f"name: x\nsteps:\n{STEP}", "did you mean 'runbook'?", 1),
        (f"runbook: 5\nsteps:\n{STEP}", "5 is not text", 1),
        (f"{HEAD}include: [{{file: y.yaml, as: y}}]\nsteps:\n{STEP}", "did you mean 'runbook'?", 3),
        (f"{HEAD}include: y.yaml\nsteps:\n{STEP}", "include is the value 'y.yaml'", 3),
        (f"{HEAD}include: []\nsteps:\n{STEP}", "include is empty", 3),
        (f"{HEAD}include: [{{runbook: y.yaml}}]\nsteps:\n{STEP}", "item 1 of include lacks 'as'", 3),
        (f"{HEAD}include: [{{runbook: y.yaml, as: a.b}}]\nsteps:\n{STEP}", "'a.b' does not match", 3),
        (f"{HEAD}matrix: nonsense\nsteps:\n{STEP}", "matrix is the value 'nonsense'", 3),
        (f"{HEAD}secrets: {{t: {{}}}}\nsteps:\n{STEP}", "t is empty", 3),
        (f"{HEAD}secrets: {{t: {{env: T, file: f}}}}\nsteps:\n{STEP}", "exactly one", 3),
        (f"{HEAD}secrets: {{t: {{var: T}}}}\nsteps:\n{STEP}", "'var'", 3),
        (f"{HEAD}defaults: {{timeout: 30}}\nsteps:\n{STEP}", "not a duration", 3),
        (f"{HEAD}defaults: {{retry: {{times: x}}}}\nsteps:\n{STEP}", "not a whole number", 3),
        (f"{HEAD}plugins: [no.such.module]\nsteps:\n{STEP}", "cannot be loaded", 3),
        (f"{HEAD}plugins: no.such.module\nsteps:\n{STEP}", "not a list", 3),
        (f"{HEAD}steps:\n" + STEP.replace("hosts: [llm-two]", "hosts: llm-two"), "write ['llm-two']", 6),
        (f"{HEAD}steps:\n" + STEP.replace("    hosts: [llm-two]\n", ""), "step 'a' lacks 'hosts'", 4),
        (f"{HEAD}steps:\n" + STEP.replace("    needs: []\n", ""), "step 'a' lacks 'needs'", 4),
        (f"{HEAD}steps:\n" + STEP.replace("needs: []", "depends_on: []"), "did you mean 'needs'?", 5),
        (f"{HEAD}steps:\n" + STEP.replace("needs: []", "foo: []"), "'needs' is missing here", 5),
        (f"{HEAD}steps:\n" + STEP.replace("do: {command", "do: {comand"), "did you mean 'command'?", 7),
        (f"{HEAD}steps:\n" + STEP.replace("do: {command: {argv: [touch, \"data:x\"]}}", "do: {}"), "do is empty", 7),
        (f"{HEAD}steps:\n" + STEP.replace("do: {command:", "do: {path:"), "is a fact, not an operation", 7),
        (f"{HEAD}steps:\n" + STEP.replace("    ensures", "      ensures").replace("do: {command: {argv: [touch, \"data:x\"]}}", "do:\n      command: {argv: [x]}"), "indent it less", 9),
        (f"{HEAD}steps:\n" + PURGE.replace("    irreversible", "    irreversable"), "irreversible", 9),
    ],
)  # fmt: skip
def test_whole_files(text: str, words: str, line: int) -> None:
    item = fault(text)
    assert words in item.message
    assert said(item)[0] == line


def test_a_block_value_at_fault_stands_at_its_key() -> None:
    text = step_with(
        "requires:",
        "  - path:",
        "      is: file",
        "  - tree:",
        "      path: 'data:x'",
        "      files: many",
    )
    found = faults(text)
    assert [(said(item), item.message) for item in found] == [
        ((8, 9), "fact 'path' lacks 'path'"),
        ((12, 18), "'many' is not a whole number; write for example 37_312"),
    ]


def test_several_mistakes_come_together_in_order() -> None:
    second = STEP.replace("  a:", "  b:").replace("needs: []", "needs: [c]")
    text = (
        f"{HEAD}steps:\n{STEP}{second}"
        + "  d: {needs: [], hosts: [x], do: {command: {argv: []}}}\n"
    )
    messages = [(said(item)[0], item.message.split(";")[0]) for item in faults(text)]
    assert messages == [
        (10, "step 'b' needs 'c', which is no step"),
        (14, "step 'd' has do but lacks 'ensures'"),
        (14, "argv is empty"),
    ]


def test_x_keys_are_for_the_author() -> None:
    text = step_with(
        "x-owner: {anything: [1, 2]}",
        "estimate: {time: 1m, x-why: measured}",
        "requires: [{path: {path: /x, is: file, x-note: '${{ nonsense'}}]",
    ).replace("steps:", "x-team: us\nsteps:")
    assert load(text).steps["a"].estimate is not None


def test_a_step_named_like_the_hatch_is_a_step() -> None:
    assert list(load(f"{HEAD}steps:\n{STEP}".replace("  a:", "  x-a:")).steps) == ["x-a"]
    assert (
        "lacks"
        in fault(
            f"{HEAD}steps:\n  x-a: {{needs: [], hosts: [llm-two], do: {{command: {{argv: [x]}}}}}}\n"
        ).message
    )
