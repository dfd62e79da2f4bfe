"""`runbook show`: a run, a step, a host of it, and what is said when there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from tests.engine.commands.calling import runbook
from tests.engine.history.journals import add_two, outcome, started, unit, write


@pytest.fixture
def runs(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("RUNBOOK_RUNS", str(tmp_path / "runs"))
    add_two(tmp_path / "runs")
    return tmp_path / "runs"


def test_a_run_by_id_beginning_or_last(runs: Path, capsys) -> None:
    for given, run in (("early", "early"), ("ear", "early"), ("last", "late")):
        assert runbook("show", given) == 0
        assert capsys.readouterr().out.startswith(f"Run {run}  extract\n")


def test_a_step_on_all_its_hosts_or_on_one(runs: Path, capsys) -> None:
    write(runs, "both", started("both", 900), outcome(901, "a"), outcome(902, "a", host="@local"))
    runbook("show", "both/a")
    out = capsys.readouterr().out
    assert "~ a  one  ran" in out and "~ a  @local  ran" in out
    runbook("show", "both/a@@local")
    out = capsys.readouterr().out
    assert "@local" in out and "one" not in out


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ("early/aa", "run early knows no step 'aa'", "did you mean 'a'?"),
        ("early/", "run early knows no step ''", "known: a, b"),
        ("early/a@two", "step a has no host 'two' in run early", "known: one"),
        ("earli", "no run 'earli' in", "did you mean 'early'?"),
    ],
)
def test_what_is_not_there_is_an_error_with_what_is(runs: Path, given, message, hint) -> None:
    with pytest.raises(RunbookError) as caught:
        runbook("show", given)
    told = caught.value.diagnostics[0]
    assert told.message.startswith(message) and told.hint == hint
    assert caught.value.code is ExitCode.USAGE


def test_json_prints_the_records_as_they_stand(runs: Path, capsys) -> None:
    runbook("show", "early", "--json")
    assert capsys.readouterr().out == (runs / "early" / "journal.jsonl").read_text()
    runbook("show", "early/a@one", "--json")
    records = list(map(json.loads, capsys.readouterr().out.splitlines()))
    assert [record["event"] for record in records] == ["intent", "command", "outcome"]


def test_json_tells_of_damaged_lines_too(runs: Path, capsys) -> None:
    with open(runs / "early" / "journal.jsonl", "ab") as stream:
        stream.write(b"oops\n")
    runbook("show", "early", "--json")
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["event"], last["line"]) == ("damaged", 7)


def test_a_release_is_a_step_of_its_own(runs: Path, capsys) -> None:
    write(runs, "rel", started("rel", 900), unit("outcome", 901, "s:release", result="released"))
    runbook("show", "rel/s:release")
    assert "- s:release  one  released" in capsys.readouterr().out
