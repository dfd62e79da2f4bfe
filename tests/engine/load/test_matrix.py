"""`matrix`: which steps there are, what they are called, who waits for whom, and its mistakes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbooks.engine.load.matrix import instance_id, parse_id
from tests.engine.load.command import runbook
from tests.engine.load.support import HEAD, PROJECT, fault, faults, load, said, step_with


def step(name: str, uses: str = "", needs: str = "", more: str = "") -> str:
    """A step on four lines, or more; `uses` is a part of its argv."""
    return (
        f"  {name}:\n"
        f"    needs: [{needs}]\n"
        "    hosts: [llm-two]\n"
        f'    do: {{command: {{argv: [touch, "data:{name}{uses}"]}}}}\n'
        f'    ensures: [{{path: {{path: "data:{name}{uses}", is: file}}}}]\n'
        f"{more}"
    )


def use(*axes: str) -> str:
    return "".join(f"-${{{{ matrix.{axis} }}}}" for axis in axes)


def book(matrix: str, *steps: str) -> str:
    """The matrix stands on line 3, the first step on line 5."""
    return f"{HEAD}matrix: {matrix}\nsteps:\n" + "".join(steps)


def needs(text: str) -> dict[str, list[str]]:
    return {name: sorted(one.needs) for name, one in load(text).steps.items()}


def test_a_step_is_one_for_each_value() -> None:
    found = load(book("{shard: [0, 1, 2]}", step("merge"), step("extract", use("shard"), "merge")))
    assert list(found.steps) == [
        "merge",
        "extract[shard=0]",
        "extract[shard=1]",
        "extract[shard=2]",
    ]
    assert found.order == tuple(found.steps)
    one = found.steps["extract[shard=2]"]
    assert one.id == "extract[shard=2]" and one.needs == ("merge",)
    assert one.do is not None and one.do.args["argv"] == ("touch", "data:extract-2")
    assert one.ensures[0].args["path"] == "data:extract-2"
    assert one.place.line == 10


def test_two_axes_are_every_pair_named_in_the_order_of_their_names() -> None:
    found = load(book("{shard: [0, 1], lang: [en, de]}", step("a", use("shard", "lang"))))
    assert set(found.steps) == {
        "a[lang=en,shard=0]",
        "a[lang=en,shard=1]",
        "a[lang=de,shard=0]",
        "a[lang=de,shard=1]",
    }


def test_a_whole_value_keeps_its_type() -> None:
    text = book(
        "{rows: [5, 6], soon: [true, false], host: [llm-two, llm-one]}",
        step(
            "a",
            "",
            more="    transient: ${{ matrix.soon }}\n"
            "    requires: [{row_count: {path: 'data:x', rows: '${{ matrix.rows }}'}}]\n",
        ),
        step("b", "").replace("[llm-two]", "['${{ matrix.host }}']").replace("data:", "/"),
    )
    steps = load(text).steps
    one = steps["a[rows=6,soon=true]"]
    assert one.transient is True and one.requires[0].wants[0].value == 6
    assert steps["b[host=llm-one]"].hosts == ("llm-one",)


def test_values_may_come_from_a_variable() -> None:
    text = book("{shard: '${{ vars.shards }}'}", step("a", use("shard")))
    text = text.replace("matrix:", "vars: {shards: [7, 8]}\nmatrix:")
    assert list(load(text).steps) == ["a[shard=7]", "a[shard=8]"]


def test_one_value_is_still_an_instance() -> None:
    """Else adding a second value would rename the first."""
    assert list(load(book("{shard: [0]}", step("a", use("shard")))).steps) == ["a[shard=0]"]


def test_variables_and_roots_stand_beside_axes() -> None:
    text = book("{shard: [0]}", step("a", use("shard"))).replace(
        "argv: [touch, ", 'argv: ["${{ vars.v }}${{ matrix.shard }}${{ root.data }}", '
    )
    (one,) = load(text.replace("matrix:", "vars: {v: x}\nmatrix:")).steps.values()
    assert one.do is not None and one.do.args["argv"][0] == "x0${{ root.data }}"


@pytest.mark.parametrize(
    ("steps", "waiting", "awaited"),
    [
        # The instance of the same value on every axis that both are on.
        ([step("a", use("s")), step("b", use("s"), "a")], "b[s=1]", ["a[s=1]"]),
        ([step("a", use("s")), step("b", use("s", "l"), "a")], "b[l=de,s=1]", ["a[s=1]"]),
        # All of them over axes that only the needed step is on.
        ([step("a", use("s", "l")), step("b", use("s"), "a")], "b[s=1]", ["a[l=de,s=1]", "a[l=en,s=1]"]),
        ([step("a", use("s")), step("b", use("l"), "a")], "b[l=de]", ["a[s=0]", "a[s=1]"]),
        ([step("a", use("s")), step("b", "", "a"), step("c", use("l"))], "b", ["a[s=0]", "a[s=1]"]),
        # One by name, its axes in any order.
        ([step("a", use("s")), step("b", use("s"), '"a[s=0]"')], "b[s=1]", ["a[s=0]"]),
        ([step("a", use("s", "l")), step("b", "", '"a[s=0,l=de]"')], "b", ["a[l=de,s=0]"]),
        ([step("a", use("s")), step("b", "", '"a[s=0]", a')], "b", ["a[s=0]", "a[s=1]"]),
        ([step("a", use("s")), step("b", "", '"a[s=${{ matrix.s }}]"')], "b[s=1]", ["a[s=1]"]),
    ],
)  # fmt: skip
def test_who_waits_for_whom(steps: list[str], waiting: str, awaited: list[str]) -> None:
    text = book("{s: [0, 1], l: [en, de]}", *steps)
    if "matrix.l" not in text:
        text += step("z", use("l"))
    assert needs(text)[waiting] == awaited


def test_one_and_true_are_two_values() -> None:
    text = book("{v: [1, true]}", step("a", use("v")), step("b", use("v"), "a"))
    assert needs(text)["b[v=1]"] == ["a[v=1]"]
    assert needs(text)["b[v=true]"] == ["a[v=true]"]


AXIS = step("a", use("s"))


@pytest.mark.parametrize(
    ("matrix", "words", "column"),
    [
        ("{s: []}", "s is empty", 13),
        ("{}", "matrix is empty", 9),
        ("{s: 5}", "s is the value 5", 13),
        ("{s: }", "s has no value", 10),
        ("{s: [1.5]}", "1.5 is a number with a fraction", 14),
        ("{s: [1, 2.0]}", "2.0 is a number with a fraction", 17),
        ("{s: [[1]]}", "item 1 of s is a list", 14),
        ("{s: [{a: 1}]}", "item 1 of s is a mapping", 14),
        ("{s: [1, ]}", None, 0),
        ("{s: [x, y, x]}", "'x' stands twice on axis 's'", 20),
        ('{s: [1, "1"]}', "'1' stands twice", 17),
        ("{s: [a/b]}", "'a/b' cannot be part of a step's id", 14),
        ('{s: ["a,b"]}', "cannot be part of", 14),
        ('{s: ["a]"]}', "cannot be part of", 14),
        ('{s: [""]}', "cannot be part of", 14),
        (f"{{s: [{'x' * 65}]}}", "cannot be part of", 14),
        ("{s b: [1]}", "'s b' is no name here", 10),
        ("{s: [0], t: [0]}", "no step uses axis 't'", 18),
        ("{s: ['${{ secrets.k }}']}", "unknown secret 'k'", 15),
        ("{s: ['${{ root.data }}']}", "${{ root.data }} stands in steps only", 15),
        ("{s: ['${{ matrix.s }}']}", "${{ matrix.s }} stands in steps only", 15),
    ],
)  # fmt: skip
def test_mistakes_of_the_matrix(matrix: str, words: str | None, column: int) -> None:
    text = book(matrix, AXIS if "s:" in matrix else step("a"))
    if words is None:
        assert list(load(text).steps) == ["a[s=1]"]
        return
    item = fault(text)
    assert words in item.message, item.message
    assert said(item) == (3, column)


@pytest.mark.parametrize(
    ("text", "words", "place"),
    [
        (book("{shard: [0]}", step("a", more="    about: ${{ matrix.shrd }}\n")), "did you mean 'shard'?", (10, 12)),
        (step_with("about: ${{ matrix.s }}"), "unknown axis 's': this file has no matrix", (7, 12)),
        (book("{s: [0, 1]}", AXIS).replace("s }}", "s | int }}", 1), "write names only, as in ${{ matrix.s }}", (8, 42)),
        (book("{s: [0, 1]}", AXIS).replace("${{", "{{", 1), "write ${{ matrix.s }}", (8, 42)),
        (book("{s: [0]}", AXIS).replace("about: A", "about: ${{ matrix.s }}"), "stands in steps only", (2, 8)),
        (book("{s: [0]}", AXIS).replace("matrix:", "vars: {v: '${{ matrix.s }}'}\nmatrix:"), "a variable may not use matrix", (3, 12)),
        (book("{s: [0]}", AXIS).replace("matrix:", "secrets: {v: {env: '${{ matrix.s }}'}}\nmatrix:"), "stands in steps only", (3, 21)),
        (book("{s: [0]}", AXIS).replace("matrix:", "defaults: {timeout: '${{ matrix.s }}'}\nmatrix:"), "stands in steps only", (3, 22)),
        # The key itself misspelt: no axis is unknown for that.
        (book("{s: [0]}", AXIS).replace("matrix:", "matrx:"), "did you mean 'matrix'?", (3, 1)),
        (book("{s: [0]}", AXIS).replace("steps:", "step:"), "did you mean 'steps'?", (4, 1)),
        # Names.
        (f"{HEAD}steps:\n{step('a')}".replace("  a:", '  "a[s=0]":'), "'a[s=0]' holds brackets", (4, 3)),
        (book("{s: [0, 1]}", AXIS, step("b", "", '"a[s=2]"')), "which is no step 'a' is a[s=0], a[s=1]", (11, 13)),
        (book("{s: [0, 1]}", AXIS, step("b", "", '"a[t=0]"')), "'a' is a[s=0], a[s=1]", (11, 13)),
        (book("{s: [0, 1]}", AXIS, step("b", use("s"), "aa")), "needs 'aa', which is no step; did you mean 'a'?", (11, 13)),
        (book("{s: [0, 1]}", AXIS, step("b", use("s"), "a, a")), "'a' stands twice in needs", (11, 16)),
    ],
)  # fmt: skip
def test_mistakes_around_the_matrix(text: str, words: str, place: tuple[int, int]) -> None:
    item = fault(text)
    assert words in f"{item.message} {item.hint}", item
    assert said(item) == place


MANY = "{s: [0, 1, 2, 3, 4]}"


@pytest.mark.parametrize(
    ("more", "words", "place"),
    [
        ("    timeout: 90\n", "90s, 90m or 90h", (10, 14)),
        ("    timeot: 1h\n", "did you mean 'timeout'?", (10, 5)),
        ("    requires: [{disk_free: {root: dat, ge: 1 GiB}}]\n", "did you mean 'data'?", (10, 35)),
        ("    requires: [{tree: {path: 'data:x'}}]\n", "compared with nothing", (10, 17)),
        ("    release: {command: {argv: [x]}}\n", "release is for transient steps", (10, 5)),
        ("    estimate: {time: 3h}\n    timeout: 1h\n", "below the estimated time", (11, 14)),
        ("    about: '${{ secrets.t }}'\n", "unknown secret", (10, 13)),
    ],
)
def test_a_mistake_in_a_matrix_step_is_one_error(
    more: str, words: str, place: tuple[int, int]
) -> None:
    item = fault(book(MANY, step("a", use("s"), more=more)))
    assert words in item.message and said(item) == place
    assert "(in a[" not in item.message


def test_a_mistake_of_one_value_says_which() -> None:
    more = "    timeout: ${{ matrix.s }}\n"
    item = fault(book("{s: [1h, 2x, 3x]}", step("a", more=more)))
    assert "'2x' is not a duration" in item.message and item.message.endswith("(in a[s=2x])")
    assert said(item) == (10, 14)
    host = step("a").replace("[llm-two]", '["${{ matrix.s }}"]')
    item = fault(book("{s: [llm-two, llm-on]}", host))
    assert item.message.endswith("did you mean 'llm-one'? (in a[s=llm-on])")


def test_mistakes_of_two_steps_are_two() -> None:
    more = "    timeout: 90\n"
    text = book(MANY, step("a", use("s"), more=more), step("b", use("s"), more=more))
    assert [said(item) for item in faults(text)] == [(10, 14), (16, 14)]


def test_an_axis_at_fault_is_the_only_error_of_its_steps() -> None:
    more = "    timeout: ${{ matrix.s }}\n"
    item = fault(book("{s: [1h, 1h]}", step("a", more=more), step("b", use("s"), "a")))
    assert "stands twice" in item.message


@pytest.mark.parametrize(
    ("steps", "turn", "place"),
    [
        ([step("a", use("s"), "b"), step("b", use("s"), "a")], "a[s=0] → b[s=0] → a[s=0]", (6, 13)),
        ([step("a", use("s"), "a")], "a[s=0] → a[s=0]", (6, 13)),
        ([step("a", use("s"), "b"), step("b", "", "a")], "a[s=0] → b → a[s=0]", (6, 13)),
    ],
)
def test_a_cycle_is_told_once(steps: list[str], turn: str, place: tuple[int, int]) -> None:
    item = fault(book("{s: [0, 1, 2]}", *steps))
    assert re.search(turn.replace("[s=0]", r"\[s=(\d)\]", 1).replace("[s=0]", r"\[s=\1\]"), item.message)  # fmt: skip
    assert said(item) == place


def test_instances_may_wait_in_a_row() -> None:
    """Waiting for another instance of a step is no cycle where the instances are none."""
    text = book("{s: [0, 1]}", AXIS, step("b", "", '"a[s=0]"'), step("c", use("s"), "b"))
    assert needs(text)["c[s=1]"] == ["b"]


def axis_of(count: int) -> str:
    return f"[{', '.join(map(str, range(count)))}]"


def test_there_is_a_limit() -> None:
    text = book(f"{{s: {axis_of(25)}, t: {axis_of(40)}}}", step("a", use("s", "t")))
    assert len(load(text).steps) == 1000
    item = fault(text + step("b", use("s")))
    assert item.message == "the matrix makes 1,025 steps; at most 1,000 may be"
    assert said(item) == (3, 1)
    # Nothing is built to find that out.
    axes = ", ".join(f"x{index}: {axis_of(100)}" for index in range(9))
    item = fault(book(f"{{{axes}}}", step("a", use(*(f"x{index}" for index in range(9))))))
    assert "1,000,000,000,000,000,000 steps" in item.message


VALUES = st.lists(
    st.integers(-99, 999) | st.booleans() | st.from_regex(r"[a-z][a-z0-9_.+-]{0,8}", fullmatch=True),
    min_size=1,
    max_size=6,
    unique_by=lambda value: str(value).lower(),
)  # fmt: skip


def written(values: list) -> str:
    shown = [str(one).lower() if isinstance(one, bool) else one for one in values]
    return ", ".join(f'"{one}"' if isinstance(raw, str) else str(one) for one, raw in zip(shown, values, strict=True))  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(VALUES, VALUES, st.randoms())
def test_ids_are_stable(shards: list, langs: list, chance) -> None:
    """More values add ids and change none; the order of values and axes changes nothing."""

    def made(one: list, two: list, turned: bool = False):
        axes = [f"s: [{written(one)}]", f"l: [{written(two)}]"]
        text = book("{" + ", ".join(axes[::-1] if turned else axes) + "}", step("a", use("s", "l")), step("b", use("s"), "a"))  # fmt: skip
        return load(text)

    whole = made(shards, langs)
    assert len(whole.steps) == len(shards) * len(langs) + len(shards)
    fewer = made(shards[: len(shards) // 2 + 1], langs)
    for name, one in fewer.steps.items():
        other = whole.steps[name]
        assert (one.id, one.do, one.hosts, one.needs) == (other.id, other.do, other.hosts, other.needs)  # fmt: skip
    shuffled = chance.sample(shards, len(shards))
    again = made(shuffled, chance.sample(langs, len(langs)), turned=True)
    assert again.digest == whole.digest and set(again.steps) == set(whole.steps)
    if len(fewer.steps) < len(whole.steps):
        assert fewer.digest != whole.digest


@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_-]{0,5}", fullmatch=True), st.integers(), min_size=1, max_size=4))  # fmt: skip
def test_an_id_can_be_read_back(values: dict[str, int]) -> None:
    text = instance_id("a.b", values)
    assert parse_id(text) == ("a.b", {axis: str(value) for axis, value in values.items()})


@pytest.mark.parametrize(
    "text", ["a", "a[]", "a[b]", "[b=1]", "a[b=1", "a[b=1][c=2]", "a[b=1,b=2]"]
)
def test_what_is_no_instance(text: str) -> None:
    assert parse_id(text) is None


def test_the_digest_is_of_the_steps() -> None:
    one = load(book("{s: [0, 1]}", AXIS)).digest
    assert load(book("{s: [0, 2]}", AXIS)).digest != one
    assert load(book("{s: [0, 1]}", AXIS.replace("${{ matrix.s }}", "${{matrix.s}}"))).digest == one


def test_validate_counts_the_instances(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(PROJECT)
    file = tmp_path / "sharded.yaml"
    file.write_text(
        book("{shard: [0, 1, 2]}", step("merge"), step("extract", use("shard"), "merge"))
    )
    assert runbook("validate", str(file), stand_ins=True) == 0
    assert "valid: 4 steps on llm-two" in capsys.readouterr().out
    assert runbook("graph", str(file), stand_ins=True) == 0
    assert "extract[shard=2]" in capsys.readouterr().out
