"""Rules that a schema cannot say."""

from __future__ import annotations

import pytest

from tests.engine.load.support import HEAD, STEP, fault, faults, load, said, step_with

DELETE = '{delete: {paths: ["data:old"]}}'
TREE = 'requires: [{tree: {path: "data:old", open_files: 0}}]'
LOST = "irreversible: {loses: x, restore: none}"


@pytest.mark.parametrize(
    ("line", "words", "column"),
    [
        ("timeout: 30m\n    estimate: {time: 72h}", ["30m", "72h"], 14),
        ("requires: [{disk_free: {root: dat, ge: 1 GiB}}]", ["'dat'", "llm-two", "'data'"], 35),
        ("requires: [{path: {path: 'dat:x', is: file}}]", ["'dat'", "'data'"], 30),
        ("requires: [{path: {path: 'data:x/../y', is: file}}]", ["leaves its root"], 30),
        ("requires: [{path: {path: 'data:/x', is: file}}]", ["absolute", "data:x"], 30),
        ("requires: [{nvidia_driver: {loaded: same, as: kpro7}}]", ["'kpro7'", "'kpro6'"], 51),
        ("requires: [{path: {path: 'data:x', is: file}, host: kpro7}]", ["'kpro7'", "'kpro6'"], 57),
        ("requires: [{path: {path: 'data:x', is: file, host: kpro6}}]", ["'host'", "beside"], 50),
        ("requires: [{path: {path: 'data:x', is: file}, host: llm-one}]", ["'data'", "llm-one"], 30),
        ("requires: [{path: {path: 'data:x'}}]", ["compared with nothing"], 17),
        ("requires: [{row_count: {path: 'data:x', eq: 5, ge: 3}}]", ["eq says it all"], 17),
        ("requires: [{row_count: {path: 'data:x', eq: 5, rows: 5}}]", ["same comparison"], 17),
        ("requires: [{row_count: {path: 'data:x', lt: 5, le: 3}}]", ["one bound twice"], 17),
        ("requires: [{row_count: {path: 'data:x', ge: 5, lt: 5}}]", ["contradict"], 17),
        ("requires: [{row_count: {path: 'data:x', ge: 6, le: 5}}]", ["contradict"], 17),
        ("requires: [{row_count: {path: 'data:x', ge: 6, within: 2%}}]", ["within needs an equal"], 52),
        ("requires: [{text_of: {path: /x, matches: '('}}]", ["not a regular expression"], 46),
        ("requires: [{text_of: {path: /x, eq: '${{ estimate.bytes }}'}}]", ["bytes", "text"], 41),
        ("estimate: {writes: {dat: 1 GiB}}", ["'dat'", "'data'"], 25),
        ("estimate: {from: extraction, dataset: 'data:x', target: 'model:y', root: dat}", ["'dat'"], 78),
        ("estimate: {from: extraction, dataset: 'data:x', root: data}", ["lacks 'target'"], 5),
        ("estimate: {time: 1h, root: data}", ["no from"], 26),
        ("undo: {delete: {paths: ['data:x']}}", ["destructive", "undo"], 12),
        ("transient: true\n    release: {delete: {paths: ['data:x']}}", ["destructive", "release"], 15),
    ],
)  # fmt: skip
def test_rules_of_a_step(line: str, words: list[str], column: int) -> None:
    item = fault(step_with(line))
    assert all(word in item.message for word in words), item.message
    assert said(item)[1] == column


@pytest.mark.parametrize(
    ("lines", "missing"),
    [([], "irreversible and requires"), ([TREE], "irreversible"), ([LOST], "requires")],
)
def test_destructive_needs_proof_at_the_operation(lines: list[str], missing: str) -> None:
    item = fault(step_with(*lines, do=DELETE))
    assert item.message == f"delete is destructive: step 'a' lacks {missing}"
    assert said(item) == (7 + len(lines), 10)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("data:", "root itself"),
        ("data:.", "root itself"),
        ("data:./", "root itself"),
        ("data:x/../..", "leaves its root"),
        ("data:${{ vars.sub }}", "root itself"),
        ("data:a/${{ vars.up }}/b", "leaves its root"),
        ("/etc", "not a path below a root"),
        ("etc:x", "root 'etc' is not declared"),
    ],
)
def test_what_may_not_be_deleted(path: str, words: str) -> None:
    text = step_with(TREE, LOST, do=f'{{delete: {{paths: ["{path}"]}}}}')
    text = text.replace("steps:", 'vars: {sub: "", up: ".."}\nsteps:')
    assert words in fault(text).message


def test_an_irreversible_step_is_never_tried_again() -> None:
    text = step_with(TREE, LOST, "retry: {times: 2}", do=DELETE)
    assert "never tried again" in fault(text).message
    default = "defaults: {retry: {times: 2, wait: 1m}}\nsteps:"
    book = load(step_with(TREE, LOST, do=DELETE).replace("steps:", default))
    assert book.steps["a"].retry.times == 0
    assert load(step_with().replace("steps:", default)).steps["a"].retry.wait == 60


def test_a_default_timeout_never_ends_long_work() -> None:
    default = "defaults: {timeout: 30m}\nsteps:"
    job = "{job: {argv: [x]}}"
    line = "estimate: {time: 72h}"
    assert load(step_with(line, do=job).replace("steps:", default)).steps["a"].timeout is None
    item = fault(step_with(line).replace("steps:", default))
    assert "default timeout 30m" in item.message and "72h" in item.message
    assert (
        load(step_with("timeout: 80h", line).replace("steps:", default)).steps["a"].timeout
        == 288000
    )


@pytest.mark.parametrize(
    ("ensures", "words", "column"),
    [
        ("disk_free: {root: data, ge: 1 GiB}", "'disk_free' is volatile", 40),
        ("tree: {path: 'data:x', open_files: 0}", "'open_files' of 'tree' is volatile", 39),
        ("tree: {path: 'data:x', size: 1 GiB, open_files: 0}", "'open_files'", 52),
    ],
)
def test_volatile_fields_are_for_transient_steps(ensures: str, words: str, column: int) -> None:
    text = f"{HEAD}steps:\n{STEP}".replace('path: {path: "data:x", is: file}', ensures)
    item = fault(text)
    assert words in item.message and "transient" in item.message
    assert said(item) == (8, column)
    assert load(text.replace("    needs", "    transient: true\n    needs")).steps["a"].transient
    # The durable fields of the same fact may stand there.
    assert load(text.replace(ensures, "tree: {path: 'data:x', size: 1 GiB}"))


GATE = "{needs: [], hosts: [llm-two], requires: [{path: {path: /x, is: file}}]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{needs: [], hosts: [llm-two]}", "does nothing"),
        (f"{GATE}, ensures: [{{path: {{path: /x, is: file}}}}]}}", "'ensures' would mean nothing"),
        (f"{GATE}, transient: true, watch: {{late: 1h}}}}", "'transient', 'watch'"),
        (f"{GATE}, undo: {{command: {{argv: [x]}}}}}}", "'undo'"),
    ],
)
def test_gates_have_requires_alone(text: str, words: str) -> None:
    assert words in fault(f"{HEAD}steps:\n  g: {text}\n").message
    assert load(f"{HEAD}steps:\n  g: {GATE}, timeout: 1m, about: why}}\n").steps["g"].gate


def chain(**needs: str) -> str:
    return f"{HEAD}steps:\n" + "".join(
        STEP.replace("  a:", f"  {name}:").replace("[]", f"[{others}]", 1)
        for name, others in needs.items()
    )


@pytest.mark.parametrize(
    ("needs", "place", "words"),
    [
        ({"a": "a"}, (5, 13), "a → a"),
        ({"a": "b", "b": "a"}, (5, 13), "a → b → a"),
        ({"a": "", "b": "a, d", "c": "b", "d": "c"}, (10, 16), "b → d → c → b"),
        ({"z": "a", "a": "b", "b": "c", "c": "a"}, (10, 13), "a → b → c → a"),
    ],
)
def test_cycles_are_told_once(needs: dict[str, str], place: tuple[int, int], words: str) -> None:
    item = fault(chain(**needs))
    assert words in item.message and "cycle" in item.message
    assert said(item) == place


def test_two_cycles_are_two_errors() -> None:
    assert len(faults(chain(a="b", b="a", c="d", d="c"))) == 2


def test_needs_that_name_nobody() -> None:
    item = fault(chain(merge="", extract="merg"))
    assert said(item) == (10, 13) and "did you mean 'merge'?" in item.message
    assert "twice" in fault(chain(a="", b="a, a")).message


def test_a_long_chain_is_no_recursion() -> None:
    names = {f"s{i}": f"s{i + 1}" for i in range(1000)}
    book = load(chain(**names, s1000=""))
    assert book.order[0] == "s1000" and book.order[-1] == "s0"
    assert "cycle" in fault(chain(**names, s1000="s0")).message


def test_the_order_keeps_to_the_file() -> None:
    assert load(chain(c="", a="c", b="", d="a, b")).order == ("c", "a", "b", "d")


def test_hosts_and_groups() -> None:
    text = f"{HEAD}steps:\n{STEP}"
    both = text.replace("[llm-two]", "[llm-two, gpu]").replace("data:x", "/x")
    assert load(both).steps["a"].hosts == ("llm-two", "llm-one")
    assert "did you mean 'gpu'?" in fault(text.replace("[llm-two]", "[gpus]")).message
    assert "stands twice" in fault(text.replace("[llm-two]", "[llm-two, llm-two]")).message
    # A root must be declared on every host of the step.
    assert "llm-one" in fault(text.replace("[llm-two]", "[gpu]")).message


def test_a_fact_without_comparison_takes_its_defaults() -> None:
    step = load(step_with("requires: [{dataset: {path: 'data:merged'}}]")).steps["a"]
    check = step.requires[0]
    assert [(want.field, want.value) for want in check.wants] == [("complete", True)]
    assert check.args == {"path": "data:merged", "config": None, "checksums": "recorded"}


def test_comparisons() -> None:
    line = "requires: [{disk_free: {root: data, ge: 1 GiB, lt: 1 TiB}}, {tree: {path: 'data:x', size: 924 GB, files: 3, within: 2%}, host: kpro6}]"
    disk, tree = load(step_with(line)).steps["a"].requires
    assert [(want.operator, want.value) for want in disk.wants] == [("ge", 2**30), ("lt", 2**40)]
    assert [want.within for want in tree.wants] == [0.02, 0.02]
    assert tree.host == "kpro6" and disk.place is not None and disk.place.line == 7


def test_argv_tokens_of_no_root_stay_as_they_are() -> None:
    text = step_with(do='{command: {argv: [ssh, "dat:x", "host:22"]}}')
    assert load(text).steps["a"].do is not None
