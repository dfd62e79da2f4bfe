"""`runbook validate|schema|graph`: exit codes, output, and no traceback for any user's fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.load.command import PROJECT, runbook
from tests.engine.load.support import CASES


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = runbook(*words, stand_ins=True)
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["validat", "extract"], 2, "did you mean 'validate'?"),
        (["frobnicate"], 2, "no subcommand 'frobnicate'; known: "),
        ([], 2, "SUBCOMMAND"),
        (["validate"], 2, "FILE"),
        (["validate", "extrat"], 2, "did you mean 'extract'?"),
        (["validate", "runbooks/extrat.yaml"], 2, "did you mean 'extract.yaml'?"),
        (["validate", "runbooks"], 2, "no runbook 'runbooks'"),
        (["validate", "runbooks/engine"], 2, "is a folder"),
        (["validate", "no/such/file.yaml"], 2, "no such file"),
        (["validate", "extract", "-v", "samples"], 2, "sets no variable"),
        (["validate", "extract", "-v", "samples=many"], 2, "'many' is not a whole number"),
        (["validate", "extract", "-v", "sample=1"], 2, "did you mean 'samples'?"),
        (["validate", "extract", "-v", "samples=1", "-v", "samples=2"], 2, "given twice"),
        (["graph", "extract", "--format", "png"], 2, "invalid choice"),
        (["graph", str(CASES / "12-cycle.yaml")], 3, "cycle"),
    ],
)
def test_faults_of_usage(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    got, out, err = run(capsys, *words)
    assert (got, out) == (code, "")
    assert said in err


def test_variables_are_overridden(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "validate", "extract", "-v", "samples=5")[0] == 0


def test_every_file_is_checked_and_named_as_given(capsys: pytest.CaptureFixture[str]) -> None:
    bad = "./tests/cases/runbooks/06-no-ensures.yaml"
    code, out, err = run(capsys, "validate", bad, "extract", "nosuch")
    assert code == 2
    assert out == "runbooks/extract.yaml: valid: 7 steps on llm-two\n"
    assert err.startswith(f"{bad}:4:3: error: ") and "nosuch: error: " in err


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    bad = "tests/cases/runbooks/01-duplicate-step.yaml"
    code, out, err = run(capsys, "validate", "--json", bad, "extract")
    fault, valid = map(json.loads, out.splitlines())
    assert (code, err) == (3, "")
    assert list(fault)[:2] == ["v", "event"]
    assert (fault["file"], fault["line"], fault["column"], fault["exit"]) == (bad, 9, 3, 3)
    assert fault["related"][0]["line"] == 4
    assert valid["event"] == "valid" and valid["hosts"] == ["llm-two"]


def test_schema_is_printed_written_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "schema")
    assert code == 0 and json.loads(out)["title"] == "Runbook"
    file = str(tmp_path / "s.json")
    assert "cannot be read" in run(capsys, "schema", "--check", "--file", file)[2]
    assert run(capsys, "schema", "--write", "--file", file)[0] == 0
    assert run(capsys, "schema", "--check", "--file", file)[0] == 0
    changed = json.loads(out)
    del changed["$defs"]["fact.path"]["properties"]["is"]
    Path(file).write_text(json.dumps(changed))
    code, _, err = run(capsys, "schema", "--check", "--file", file)
    assert code == 3 and "fact.path" in err and "runbook schema --write" in err
    assert run(capsys, "schema", "--write", "--file", str(tmp_path / "no" / "s.json"))[0] == 2


def test_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "graph", "extract", "--format", "mermaid")[1]
    assert out.startswith("flowchart TD\n")
    assert '[["purge-old<br/>llm-two<br/>delete<br/>irreversible"]]:::irreversible' in out
    assert "  s0 --> s1\n" in out
    lines = run(capsys, "graph", "extract")[1].splitlines()
    assert lines[0].split() == ["situation", "llm-two", "gate"]
    assert lines[3].split() == ["purge-old", "llm-two", "delete", "irreversible", "after", "merge"]
    assert [line.split()[-1] for line in lines[1:]][-1] == "serve-extract"
