"""`include`: names, needs, variables and secrets across files, and mistakes with their places."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runbooks.engine.load import load_runbook
from runbooks.engine.load.include import MOST_DEEP
from runbooks.engine.load.variables import parse_variables
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError
from runbooks.engine.model.runbook import Runbook
from tests.engine.load import declarations
from tests.engine.load.command import runbook as command
from tests.engine.load.support import EXTRACT, HOSTS, PROJECT, load_file, stubs
from tests.engine.load.test_matrix import step


class Files:
    """Runbooks in a folder; each is written from its lines between `runbook:` and `steps:`."""

    def __init__(self, folder: Path):
        self.folder = folder

    def write(self, name: str, head: str, *steps: str) -> Path:
        path = self.folder / f"{name}.yaml"
        body = ("steps:\n" + "".join(steps)) if steps else ""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"runbook: {path.stem}\n{head}{body}")
        return path

    def load(self, name: str = "top", *variables: str) -> Runbook:
        file = self.folder / f"{name}.yaml"
        return load_runbook(file, stubs(), HOSTS, parse_variables(variables))

    def faults(self, name: str = "top", *variables: str) -> list[Diagnostic]:
        with pytest.raises(RunbookError) as caught:
            self.load(name, *variables)
        return list(caught.value.diagnostics)

    def fault(self, name: str = "top", *variables: str) -> Diagnostic:
        found = self.faults(name, *variables)
        assert len(found) == 1, [(str(item.place), item.message) for item in found]
        return found[0]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def at(item: Diagnostic) -> tuple[str, int, int]:
    assert item.place is not None
    return item.place.file.name, item.place.line, item.place.column


def needs(book: Runbook) -> dict[str, list[str]]:
    return {name: sorted(one.needs) for name, one in book.steps.items()}


def include(*entries: str) -> str:
    return "include:\n" + "".join(f"  - {entry}\n" for entry in entries)


DATA = "{runbook: data.yaml, as: data}"


def test_steps_get_the_name_of_the_include(files: Files) -> None:
    files.write(
        "data", "", step("generate"), step("merge", "", "generate"), step("count", "", "generate")
    )
    files.write(
        "top",
        include("{runbook: data.yaml, as: data, needs: [situation]}"),
        step("situation"),
        step("extract", "", "data"),
        step("peek", "", "data.generate"),
    )  # fmt: skip
    book = files.load()
    assert needs(book) == {
        "data.generate": ["situation"],
        "data.merge": ["data.generate"],
        "data.count": ["data.generate"],
        "situation": [],
        "extract": ["data.count", "data.merge"],
        "peek": ["data.generate"],
    }
    assert book.order == (
        "situation",
        "data.generate",
        "data.merge",
        "data.count",
        "extract",
        "peek",
    )
    assert all(one.id == name for name, one in book.steps.items())
    assert book.name == "top" and book.file == files.folder / "top.yaml"
    merge = book.steps["data.merge"]
    assert merge.place.file == files.folder / "data.yaml" and merge.place.line == 8


def test_a_runbook_may_be_of_includes_alone(files: Files) -> None:
    files.write("data", "", step("a"))
    files.write("top", include(DATA, "{runbook: data.yaml, as: more, needs: [data]}"))
    assert needs(files.load()) == {"data.a": [], "more.a": ["data.a"]}


def test_includes_within_includes_and_other_folders(files: Files) -> None:
    files.write("parts/inner", "vars: {n: 1}\n", step("a", "${{ vars.n }}"))
    files.write(
        "parts/data", include("{runbook: inner.yaml, as: in, vars: {n: 2}}"), step("b", "", "in.a")
    )
    files.write("top", include("{runbook: parts/data.yaml, as: data}"), step("c", "", "data.in"), step("d", "", "data.in.a, data.b"))  # fmt: skip
    book = files.load()
    assert needs(book) == {
        "data.in.a": [],
        "data.b": ["data.in.a"],
        "c": ["data.in.a"],
        "d": ["data.b", "data.in.a"],
    }
    assert book.variables == {"data.in.n": 2}
    assert files.load("top", "data.in.n=7").variables == {"data.in.n": 7}


def test_each_file_has_its_own_variables_and_defaults(files: Files) -> None:
    files.write("data", "vars: {n: 1, text: t, many: [a]}\ndefaults: {timeout: 5m}\n", step("a", "${{ vars.n }}${{ vars.text }}"))  # fmt: skip
    files.write(
        "top",
        "vars: {n: 3}\ndefaults: {timeout: 9m, retry: {times: 2}}\n"
        + include("{runbook: data.yaml, as: data, vars: {text: 'x${{ vars.n }}'}}", "{runbook: data.yaml, as: again, vars: {n: 4}}"),
        step("a", "${{ vars.n }}"),
    )  # fmt: skip
    book = files.load()
    argv = {name: one.do.args["argv"][1] for name, one in book.steps.items() if one.do}
    assert argv == {"data.a": "data:a1x3", "again.a": "data:a4t", "a": "data:a3"}
    assert {name: (one.timeout, one.retry.times) for name, one in book.steps.items()} == {
        "data.a": (300, 0),
        "again.a": (300, 0),
        "a": (540, 2),
    }
    assert book.variables["n"] == 3 and book.variables["again.n"] == 4
    # The command line wins.
    book = files.load("top", "n=5", "data.n=6", "data.text=7")
    argv = {name: one.do.args["argv"][1] for name, one in book.steps.items() if one.do}
    assert argv == {"data.a": "data:a67", "again.a": "data:a4t", "a": "data:a5"}


def test_a_root_may_be_given(files: Files) -> None:
    files.write(
        "data", "vars: {where: /x}\n", step("a").replace("[touch", '["${{ vars.where }}", touch')
    )
    files.write(
        "top", include("{runbook: data.yaml, as: data, vars: {where: '${{ root.data }}/y'}}")
    )
    act = files.load().steps["data.a"].do
    assert act is not None and act.args["argv"][0] == "${{ root.data }}/y"


def test_a_variable_that_uses_another_takes_any_type(files: Files) -> None:
    files.write("data", "vars: {n: 1, m: '${{ vars.n }}'}\n", step("a", "${{ vars.m }}"))
    files.write("top", include("{runbook: data.yaml, as: data, vars: {m: 5}}"))
    assert files.load().variables == {"data.n": 1, "data.m": 5}


def test_a_matrix_belongs_to_its_file(files: Files) -> None:
    matrix = "matrix: {s: [0, 1]}\n"
    uses = "-${{ matrix.s }}"
    files.write("data", matrix, step("a", uses), step("b", uses, "a"))
    files.write("top", matrix + include(DATA), step("c", uses, "data.a"), step("d", "", '"data.b[s=1]"'), step("e", "", "data"))  # fmt: skip
    found = needs(files.load())
    assert found["data.b[s=1]"] == ["data.a[s=1]"]
    # An axis of the same name in another file is another axis.
    assert found["c[s=0]"] == ["data.a[s=0]", "data.a[s=1]"]
    assert found["d"] == ["data.b[s=1]"]
    assert found["e"] == ["data.b[s=0]", "data.b[s=1]"]


def test_instances_are_limited_over_all_files(files: Files) -> None:
    values = ", ".join(map(str, range(600)))
    files.write("data", f"matrix: {{s: [{values}]}}\n", step("a", "-${{ matrix.s }}"))
    files.write("top", include(DATA, "{runbook: data.yaml, as: more}"))
    item = files.fault()
    assert "the matrix makes 600 steps; at most 400 may be" in item.message
    assert at(item) == ("data.yaml", 2, 1)


def test_secrets_of_both_files_are_read(files: Files) -> None:
    files.write("data", "secrets: {t: {env: T}, u: {env: U}}\n", step("a"))
    files.write("top", "secrets: {t: {env: T}, v: {file: f}}\n" + include(DATA), step("b"))
    book = files.load()
    assert sorted(book.secrets) == ["t", "u", "v"] and book.secrets["u"].env == "U"
    files.write("top", include(DATA) + "secrets: {t: {env: OTHER}}\n", step("b"))
    item = files.fault()
    assert (
        "two secrets are called 't': data.yaml declares another one than top.yaml" in item.message
    )
    assert at(item) == ("top.yaml", 3, 15)
    assert [(place.file.name, place.line) for place, _ in item.related] == [("top.yaml", 4), ("data.yaml", 2)]  # fmt: skip


def test_included_files_may_not_differ_in_a_secret(files: Files) -> None:
    files.write("data", "secrets: {t: {env: T}}\n", step("a"))
    files.write("other", "secrets: {t: {env: U}}\n", step("a"))
    files.write("top", include(DATA, "{runbook: other.yaml, as: other}"))
    assert at(files.fault()) == ("top.yaml", 4, 15)


def test_a_file_is_judged_by_its_own_plugins(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is valid only beside another file's plugins would not be valid alone."""
    (files.folder / "more_facts.py").write_text(
        "from tests.engine.load.declarations import fact, lasting, need\n"
        "from runbooks.engine.model.values import HostPath, Text\n"
        "def register(registry):\n"
        "    registry.add_fact(fact('mood', 'is', path=need(HostPath()), is_=lasting(Text())))\n"
    )
    monkeypatch.syspath_prepend(str(files.folder))
    gate = "  g: {needs: [], hosts: [llm-two], requires: [{mood: {path: /x, is: good}}]}\n"
    files.write("data", "plugins: ['more_facts:register']\n", gate)
    files.write("top", include(DATA), step("b"))
    registry = declarations.registry()
    book = load_runbook(files.folder / "top.yaml", registry, HOSTS)
    assert book.steps["data.g"].requires[0].fact.name == "mood"
    assert "mood" in registry.facts
    files.write("top", include(DATA), gate)
    with pytest.raises(RunbookError, match="unknown fact 'mood'"):
        load_runbook(files.folder / "top.yaml", declarations.registry(), HOSTS)
    files.write("data", "", gate)
    files.write("top", include(DATA) + "plugins: ['more_facts:register']\n", gate)
    with pytest.raises(RunbookError, match="unknown fact 'mood'") as caught:
        load_runbook(files.folder / "top.yaml", declarations.registry(), HOSTS)
    assert at(caught.value.diagnostics[0])[0] == "data.yaml"


def test_an_included_step_is_what_it_is_alone(files: Files) -> None:
    """Transient, release, undo, irreversible, estimate and all: only its name is another."""
    files.write("top", include(f"{{runbook: {EXTRACT}, as: x, needs: [first]}}"), step("first"))
    alone, book = load_file(EXTRACT, stubs()), files.load()
    assert len(book.steps) == len(alone.steps) + 1 == 8
    for name, one in alone.steps.items():
        needs = tuple(f"x.{other}" for other in one.needs) or ("first",)
        assert book.steps[f"x.{name}"] == replace(one, id=f"x.{name}", needs=needs)
    assert book.dependents("x.serve-extract") == {"x.extract"}
    assert book.consulted == alone.consulted


# Mistakes.


@pytest.mark.parametrize(
    ("entry", "words", "column"),
    [
        ("{runbook: dat.yaml, as: data}", "no such file", 15),
        ("{runbook: ., as: data}", "no such file", 15),
        ("{runbook: top.yaml, as: me}", "cycle: ", 15),
        ("{runbook: data.yaml, as: data, vars: {m: 1}}", "data.yaml declares no variable 'm'", 43),
        ("{runbook: data.yaml, as: data, vars: {txt: x}}", "declares no variable 'txt'; did you mean 'text'?", 43),
        ("{runbook: data.yaml, as: data, vars: {n: x}}", "x is text, not a whole number", 46),
        ("{runbook: data.yaml, as: data, vars: {n: 1.5}}", "1.5 is a number, not a whole number", 46),
        ("{runbook: data.yaml, as: data, vars: {text: 5}}", "5 is a whole number, not text", 49),
        ("{runbook: data.yaml, as: data, vars: {n: [1]}}", "is a list, not a whole number", 46),
        ("{runbook: data.yaml, as: data, vars: {n: {a: 1}}}", "n is a mapping", 46),
        ("{runbook: data.yaml, as: data, vars: {n: '${{ vars.k }}'}}", "unknown variable 'k'", 47),
        ("{runbook: data.yaml, as: data, vars: {n: '${{ secrets.k }}'}}", "unknown secret 'k'", 47),
        ("{runbook: data.yaml, as: data, vars: {n: '${{ estimate.bytes }}'}}", "stands in steps only", 47),
        ("{runbook: data.yaml, as: data, vars: {n: '${{ matrix.k }}'}}", "stands in steps only", 47),
        ("{runbook: data.yaml, as: data, needs: [on]}", "include 'data' needs 'on', which is no step; did you mean 'own'?", 44),
        ("{runbook: data.yaml, as: data, needs: [data.a]}", "needs 'data.a', which is no step", 44),
        ("{runbook: data.yaml, as: data, needs: [own, own]}", "'own' stands twice", 49),
        ("{runbook: data.yaml, as: data, needs: own}", "'own' is not a list; write ['own']", 43),
        ("{runbook: data.yaml, as: own}", "step 'own' is also the name of an include", 0),
        ("{runbook: data.yaml, as: data, hosts: [llm-two]}", "unknown key 'hosts'", 36),
    ],
)  # fmt: skip
def test_mistakes_of_an_entry(files: Files, entry: str, words: str, column: int) -> None:
    files.write("data", "vars: {n: 1, text: t}\n", step("a", "${{ vars.n }}${{ vars.text }}"))
    files.write("top", include(entry), step("own"))
    item = files.fault()
    assert words in item.message, item.message
    assert at(item) == (("top.yaml", 3, column) if column else ("top.yaml", 5, 3))


@pytest.mark.parametrize(
    ("steps", "words", "place"),
    [
        ([step("a", "", "data.b")], "needs 'data.b', which is no step; did you mean 'data.a'?", (6, 13)),
        ([step("a", "", "dat")], "did you mean 'data'?", (6, 13)),
        ([step("data.x")], "step 'data.x' begins with 'data.'", (5, 3)),
    ],
)  # fmt: skip
def test_mistakes_of_own_steps(
    files: Files, steps: list[str], words: str, place: tuple[int, int]
) -> None:
    files.write("data", "", step("a"))
    files.write("top", include(DATA), *steps)
    item = files.fault()
    assert words in item.message and at(item) == ("top.yaml", *place)


def test_two_includes_of_one_name(files: Files) -> None:
    files.write("data", "", step("a"))
    files.write("top", include(DATA, DATA), step("b", "", "data"))
    item = files.fault()
    assert item.message == "two includes are called 'data'" and at(item) == ("top.yaml", 4, 30)


def test_an_include_waits_for_those_above_it(files: Files) -> None:
    files.write("data", "", step("a"))
    files.write(
        "top",
        include(
            "{runbook: data.yaml, as: data, needs: [more.a]}", "{runbook: data.yaml, as: more}"
        ),
    )
    item = files.fault()
    assert "needs 'more.a'" in item.message and "put it above" in str(item.hint)
    assert at(item) == ("top.yaml", 3, 44)


def test_a_mistake_in_an_included_file_has_its_place_there(files: Files) -> None:
    files.write("inner", "", step("a", more="    timeout: 90\n"), step("b", "", "c"))
    files.write("data", include("{runbook: inner.yaml, as: in}"), step("x", "", "in.a, in.nobody"))
    files.write(
        "top", include(DATA, "{runbook: data.yaml, as: more}"), step("b", "", "data.in.b, more")
    )
    found = files.faults()
    assert [at(item) for item in found] == [("inner.yaml", 8, 14), ("inner.yaml", 10, 13)]
    assert [(place.file.name, place.line, text) for place, text in found[0].related] == [
        ("data.yaml", 3, "included as 'in'"),
        ("top.yaml", 3, "included as 'data'"),
    ]


def test_mistakes_of_both_files_are_told_together(files: Files) -> None:
    files.write("data", "", step("a", more="    timeout: 90\n"))
    files.write("top", include(DATA), step("b", more="    timeout: 91\n"))
    assert [at(item) for item in files.faults()] == [("top.yaml", 10, 14), ("data.yaml", 8, 14)]


def test_a_file_that_is_no_yaml(files: Files) -> None:
    (files.folder / "data.yaml").write_text("runbook: data\nsteps: {a: &x {}, b: *x}\n")
    files.write("top", include(DATA), step("b", "", "data"))
    item = files.fault()
    assert "alias '*x' is not allowed" in item.message and at(item) == ("data.yaml", 2, 22)


def test_a_misspelt_include_is_the_only_error(files: Files) -> None:
    files.write("data", "", step("a"))
    path = files.write("top", include(DATA), step("b", "", "data.a"))
    path.write_text(path.read_text().replace("include:", "inclde:"))
    item = files.fault()
    assert "did you mean 'include'?" in item.message and at(item) == ("top.yaml", 2, 1)


def test_neither_steps_nor_includes(files: Files) -> None:
    files.write("top", "about: nothing\n")
    assert "lacks 'steps'" in files.fault().message


def test_files_that_include_each_other(files: Files) -> None:
    files.write("top", include("{runbook: data.yaml, as: data}"), step("a"))
    files.write("data", include("{runbook: inner.yaml, as: in}"), step("a"))
    files.write("inner", include("{runbook: ./data.yaml, as: again}"), step("a"))
    item = files.fault()
    data, inner = files.folder / "data.yaml", files.folder / "inner.yaml"
    assert item.message == f"runbooks include each other in a cycle: {data} → {inner} → {data}"
    assert at(item) == ("inner.yaml", 3, 15)


def test_includes_have_a_depth_and_a_number(files: Files) -> None:
    def chain(length: int) -> None:
        files.write(f"f{length}", "", step("a"))
        for index in range(length):
            files.write(f"f{index}", include(f"{{runbook: f{index + 1}.yaml, as: x}}"), step("a"))

    chain(MOST_DEEP)
    assert len(files.load("f0").steps) == MOST_DEEP + 1
    chain(MOST_DEEP + 1)
    item = files.fault("f0")
    assert f"more than {MOST_DEEP} deep" in item.message and at(item)[0] == f"f{MOST_DEEP}.yaml"
    for index in range(6):
        files.write(f"w{index}", include(*(f"{{runbook: w{index + 1}.yaml, as: x{one}}}" for one in range(5))))  # fmt: skip
    files.write("w6", "", step("a"))
    assert all(item.message == "too many files are included" for item in files.faults("w0"))


@pytest.mark.parametrize(
    ("own", "wait", "turn"),
    [
        ("data.b", "own", "own → data.b → data.a → own"),
        ("data", "own", "own → data.b → data.a → own"),
    ],
)
def test_a_cycle_through_an_include(files: Files, own: str, wait: str, turn: str) -> None:
    files.write("data", "", step("a"), step("b", "", "a"))
    files.write(
        "top",
        include(f"{{runbook: data.yaml, as: data, needs: [{wait}]}}"),
        step("own", "", own),
    )
    item = files.fault()
    assert at(item) == ("top.yaml", 3, 44)
    # Told from the entry that stands first in the file.
    names = turn.split(" → ")[:-1]
    start = names.index("data.a")
    turned = [*names[start:], *names[:start], "data.a"]
    assert item.message == f"steps wait for each other in a cycle: {' → '.join(turned)}"


# The command line.


@pytest.mark.parametrize(
    ("given", "words", "hint"),
    [
        ("data.sampels=1", "declares no variable 'data.sampels'", "did you mean 'data.samples'?"),
        ("dat.samples=1", "declares no variable 'dat.samples'", "did you mean 'data.samples'?"),
        ("samples=1", "declares no variable 'samples'", "did you mean 'data.samples'?"),
        ("zzz=1", "declares no variable 'zzz'", "known: data.in.rows, data.samples, own"),
        ("data.samples=x", "'x' is not a whole number", None),
        ("data.in.rows=x", "'x' is not a whole number", None),
    ],
)
def test_variables_of_included_files_on_the_command_line(
    files: Files, given: str, words: str, hint: str | None
) -> None:
    files.write("inner", "vars: {rows: 1}\n", step("a", "${{ vars.rows }}"))
    files.write(
        "data", "vars: {samples: 1}\n" + include("{runbook: inner.yaml, as: in}"), step("a")
    )
    files.write("top", "vars: {own: 1}\n" + include(DATA), step("a"))
    with pytest.raises(RunbookError) as caught:
        files.load("top", given)
    (item,) = caught.value.diagnostics
    assert caught.value.code is ExitCode.USAGE and item.where == f"-v {given}"
    assert words in item.message and item.hint == hint


def test_an_unreadable_include_is_the_error_not_its_variable(files: Files) -> None:
    files.write("top", include(DATA), step("a"))
    assert "no such file" in files.fault("top", "data.samples=1").message


@pytest.mark.parametrize("word", ["data.=1", ".samples=1", "data..n=1", "1.n=1", "data.n"])
def test_words_that_set_no_variable(word: str) -> None:
    with pytest.raises(RunbookError, match="sets no variable"):
        parse_variables([word])


# The digest.


def test_the_digest_covers_what_is_included(files: Files) -> None:
    def digest(
        top: str = include(DATA), data: str = "vars: {n: 1}\n", more: str = "", *given: str
    ) -> str:
        files.write("data", data, step("a", "${{ vars.n }}", more=more))
        files.write("top", top, step("b"), step("c"))
        return files.load("top", *given).digest

    one = digest()
    assert digest(more="    about: why\n") == one
    assert digest(data="about: x\nvars: {n: 1, unused: 3}\n") == one
    assert digest(more="    timeout: 1h\n") != one
    assert digest(data="vars: {n: 2}\n") != one
    assert digest(include("{runbook: data.yaml, as: data, vars: {n: 2}}")) == digest(data="vars: {n: 2}\n")  # fmt: skip
    assert digest(include(DATA), "vars: {n: 1}\n", "", "data.n=2") == digest(data="vars: {n: 2}\n")
    assert digest(include("{runbook: data.yaml, as: other}")) != one
    waits = digest(include("{runbook: data.yaml, as: data, needs: [b, c]}"))
    assert waits != one
    assert digest(include("{runbook: data.yaml, as: data, needs: [c, b]}")) == waits
    two = [DATA, "{runbook: data.yaml, as: more}"]
    assert digest(include(*two)) == digest(include(*reversed(two)))


def test_validate_names_the_file_at_fault(
    files: Files, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    files.write("data", "", step("a", more="    timeout: 90\n"))
    top = files.write("top", include(DATA), step("b", "", "data"))
    assert command("validate", str(top), stand_ins=True) == 3
    err = capsys.readouterr().err
    assert (
        err.startswith(f"{files.folder / 'data.yaml'}:8:14: error: ") and err.count("error:") == 1
    )
    assert "included as 'data'" in err
    files.write("data", "", step("a"))
    assert command("validate", str(top), stand_ins=True) == 0
    assert "valid: 2 steps" in capsys.readouterr().out
