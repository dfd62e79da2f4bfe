"""`runbook drift` and `runbook plan -o/--from/--only` on a host that answers by script."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from runbooks.engine.commands import drift as drift_command
from runbooks.engine.commands import plan as plan_command
from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from runbooks.engine.plan.saved import load_saved

RUNBOOK = """\
runbook: small
about: Two files.
steps:
  a:
    needs: []
    hosts: [one]
    do: {command: {argv: [touch, "data:a"]}}
    ensures: [path: {path: "data:a", is: file}]
  b:
    needs: [a]
    hosts: [one]
    do: {command: {argv: [touch, "data:b"]}}
    ensures: [path: {path: "data:b", is: file}]
"""
INVENTORY = """\
from pathlib import Path
from runbooks.engine.adapter.fake import fake_data as _fake_data
_here = Path(__file__).parent
_roots = {"data": {"path": "/data", "owner": "one", "filesystem": "tank"}}
ones = [("@fake/one", {"roots": _roots, **_fake_data(_here / "answers.yaml", "one")})]
"""
PRESENT = "is\\tpresent\\nstat\\t81a4\\t{size}\\t{mode}\\t0\\t0\\troot\\troot\\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNBOOK_RUNS", str(tmp_path / "runs"))
    (tmp_path / "small.yaml").write_text(RUNBOOK)
    (tmp_path / "hosts.py").write_text(INVENTORY)
    answer(tmp_path)
    return tmp_path


def answer(folder: Path, mode: str = "644", checkpoints: str | None = None) -> None:
    """What the host says: both files, of this mode, and its checkpoints if any."""
    lines = ["one:"]
    for name in ("a", "b"):
        text = PRESENT.format(size=3, mode=mode)
        lines.append(f"  '# path data:{name}': \"{text}\"")
    if checkpoints is not None:
        lines.append(f"  '# checkpoints small': {json.dumps(checkpoints)}")
    (folder / "answers.yaml").write_text("\n".join(lines) + "\n")


def recorded(mode: str) -> str:
    values = {"is": "file", "mode": mode}
    facts = [{"subject": "path data:a", "on": "one", "values": values}]
    line = {"v": 1, "step": "a", "host": "one", "at": 1.0, "run": "run-1", "facts": facts}
    return json.dumps(line)


def call(command, *words: str) -> int:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return command.run(parser.parse_args(["small.yaml", "-i", "hosts.py", *words]))


def test_without_checkpoints_nothing_has_drifted(folder: Path, capsys) -> None:
    assert call(drift_command) == ExitCode.DONE
    assert capsys.readouterr().out == (
        "Drift of small: 0 drifted, 0 unknown; 0 checkpoints compared.\n"
    )


def test_drift_prints_the_field_and_exits_10(folder: Path, capsys) -> None:
    answer(folder, checkpoints=recorded("0644"))
    assert call(drift_command) == ExitCode.DONE
    answer(folder, mode="600", checkpoints=recorded("0644"))
    capsys.readouterr()
    assert call(drift_command) == ExitCode.PENDING
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("one  path data:a  mode  0644 → 0600   since checkpoint of run run-1, ")
    assert first.endswith(" ago, outside this runbook  (a)")
    assert last == "Drift of small: 1 drifted, 0 unknown; 1 checkpoint compared."


def test_the_exit_code_is_of_the_printed_rows(folder: Path, capsys) -> None:
    answer(folder, mode="600", checkpoints=recorded("0644"))
    assert call(drift_command, "--json") == ExitCode.PENDING
    (record,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert list(record)[:2] == ["v", "event"]
    assert (record["field"], record["was"], record["now"]) == ("mode", "0644", "0600")
    answer(folder, checkpoints="nonsense")
    assert call(drift_command) == ExitCode.FAILED
    assert "unknown: line 1 is no checkpoint: it is damaged" in capsys.readouterr().out


def test_a_plan_is_saved_and_says_how_it_is_run(folder: Path, capsys) -> None:
    assert call(plan_command, "-o", "plan.json", "--only", "b") == ExitCode.DONE
    assert "Saved as plan.json: runbook run --plan plan.json" in capsys.readouterr().out
    saved = load_saved(folder / "plan.json", folder / "runs")
    assert (saved.runbook, saved.scope.words) == ("small", "--only b")
    assert [row.status for row in saved.rows] == ["satisfied", "satisfied"]


def test_the_json_of_a_saved_plan_is_one_line(folder: Path, capsys) -> None:
    call(plan_command, "-o", "plan.json", "--json")
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["scope"] == {"limit": None, "selected": None, "words": ""}


def test_a_file_that_is_no_plan_is_told_before_anything_is_read(folder: Path, capsys) -> None:
    with pytest.raises(RunbookError, match="is no plan"):
        call(plan_command, "-o", "small.yaml")
    assert capsys.readouterr().out == ""
    assert (folder / "small.yaml").read_text() == RUNBOOK


def test_steps_that_are_not_there_are_usage(folder: Path) -> None:
    with pytest.raises(RunbookError, match="'bb' is no step of small") as caught:
        call(plan_command, "--from", "bb")
    assert caught.value.code is ExitCode.USAGE


def test_drift_takes_no_selection_of_steps(folder: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        call(drift_command, "--only", "a")
    assert "--only" in capsys.readouterr().err
