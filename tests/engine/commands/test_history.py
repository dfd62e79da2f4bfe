"""`runbook history`: the list, and whether journals are still what was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runbooks.engine.history.consult import INDEX
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.host import Host
from runbooks.engine.model.operation import Command
from runbooks.engine.run.journal import Journal
from runbooks.engine.run.mirror import Mirror
from tests.engine.commands.calling import runbook
from tests.engine.history.journals import add_two, intent, record, started, write
from tests.engine.lock.shell_fleet import ShellFleet


@pytest.fixture
def runs(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("RUNBOOK_RUNS", str(tmp_path / "runs"))
    add_two(tmp_path / "runs")
    return tmp_path / "runs"


def test_the_list_says_who_ran_what_and_how_it_ended(runs: Path, capsys) -> None:
    assert runbook("history") == 0
    head, late, left, early = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["run", "runbook", "begun"]
    assert late.startswith(" ? late ") and "unfinished" in late and "alice@laptop" in late
    assert left.strip().startswith("interrupted: b on two, begun 20")
    assert left.endswith(": job (work)")
    assert early.startswith(" = early") and "done (0)" in early and "5s" in early
    assert early.index("done") == late.index("unfinished") == head.index("result")


def test_json_is_one_object_a_run(runs: Path, capsys) -> None:
    assert runbook("history", "--json") == 0
    late, early = map(json.loads, capsys.readouterr().out.splitlines())
    assert list(late)[:2] == ["v", "event"]
    assert (late["result"], late["exit"], late["ended"]) == ("unfinished", None, None)
    assert [one["step"] for one in late["interrupted"]] == ["b"]
    assert (early["exit"], early["changed"], early["failed"], early["seconds"]) == (0, 1, 0, 5.0)


def test_what_is_left_out_is_counted(runs: Path, capsys) -> None:
    runbook("history", "--limit", "1")
    out = capsys.readouterr().out
    assert "early" not in out
    assert out.splitlines()[-1].strip() == "… 1 older: --limit 2"


def test_one_runbook_and_a_misspelt_one(runs: Path, capsys) -> None:
    write(runs, "other", started("other", runbook="serve"))
    runbook("history", "--runbook", "serve", "--json")
    assert [json.loads(line)["run"] for line in capsys.readouterr().out.splitlines()] == ["other"]
    with pytest.raises(RunbookError) as caught:
        runbook("history", "--runbook", "extrct")
    assert caught.value.diagnostics[0].hint == "did you mean 'extract'?"


def test_no_runs_is_said(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("RUNBOOK_RUNS", str(tmp_path / "none"))
    assert runbook("history") == 0
    assert capsys.readouterr().out == f"no runs in {tmp_path / 'none'}\n"


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_a_limit_is_a_number_of_runs(runs: Path, capsys, limit: str) -> None:
    with pytest.raises(SystemExit) as caught:
        runbook("history", f"--limit={limit}")
    assert caught.value.code == 2
    assert f"'{limit}' is no number of runs" in capsys.readouterr().err


def alter(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"satisfied"', b'"ran"'))


def test_verify_names_the_line(runs: Path, capsys) -> None:
    assert runbook("history", "--verify") == 0
    out = capsys.readouterr().out
    assert out.startswith("2 journals verified: 2 whole, 0 broken; 1 without an end")
    path = runs / "early" / "journal.jsonl"
    alter(path)
    assert runbook("history", "--verify") == 6
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{path}:6 does not follow from the line before it")
    assert "1 whole, 1 broken" in last


def test_verify_one_run_by_the_beginning_of_its_id(runs: Path, capsys) -> None:
    alter(runs / "early" / "journal.jsonl")
    assert runbook("history", "--verify", "la") == 0
    assert runbook("history", "--verify", "ea") == 6
    with pytest.raises(RunbookError, match="no run 'x'"):
        runbook("history", "--verify", "x")


def test_verify_does_not_believe_the_index(runs: Path, capsys) -> None:
    """A file whose size and time are as before was altered all the same."""
    import os

    runbook("history")
    path = runs / "early" / "journal.jsonl"
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b'"alice"', b'"mally"'))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert runbook("history", "--verify", "early") == 6


def test_verify_as_json(runs: Path, capsys) -> None:
    alter(runs / "early" / "journal.jsonl")
    assert runbook("history", "--verify", "--json") == 6
    fault, total = map(json.loads, capsys.readouterr().out.splitlines())
    assert (fault["event"], fault["run"], fault["line"]) == ("fault", "early", 6)
    assert (total["event"], total["runs"], total["broken"]) == ("verified", 2, 1)


def test_a_journal_that_cannot_be_read_is_not_verified(runs: Path, capsys) -> None:
    (runs / "odd" / "journal.jsonl").mkdir(parents=True)
    assert runbook("history", "--verify") == 6
    assert "odd/journal.jsonl: error: the journal cannot be read" in capsys.readouterr().err


def test_rebuild_replaces_the_index(runs: Path, capsys) -> None:
    runbook("history")
    before = (runs / INDEX).stat().st_ino, capsys.readouterr().out
    kept = (runs / INDEX).open("rb")  # so that its inode is not used again
    assert runbook("history", "--rebuild") == 0
    after = (runs / INDEX).stat().st_ino, capsys.readouterr().out
    kept.close()
    assert after[0] != before[0] and after[1] == before[1]


def test_what_a_host_or_an_operator_is_called_does_not_drive_the_terminal(
    runs: Path, capsys
) -> None:
    evil = started("evil", 500, operator="\x1b[2Jbob\nx", hosts=["\u202eone"])
    write(runs, "evil", evil, record("end", 501, exit=99))
    runbook("history")
    line = capsys.readouterr().out.splitlines()[1]
    assert "\\x1b[2Jbob\\nx@laptop" in line and "\\x202eone" in line
    assert line.startswith(" ! evil") and "ended (99)" in line


def test_runs_of_another_controller_come_from_the_hosts(
    runs: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    fleet = ShellFleet(tmp_path / "hosts", {"one": Host("one"), "two": Host("two")})
    mirror = Mirror("theirs", "extract", ("one", "two"))
    journal = Journal(tmp_path / "elsewhere" / "theirs", mirror.copy)
    for item in (started("theirs", 500, operator="bob"), intent(501, "a")):
        journal.take(item)
    with mirror.sending("one") as words:
        fleet.perform("one", Command(script=":"), words)
    journal.close()
    monkeypatch.setattr("runbooks.engine.adapter.inventory.make_fleet", lambda name: fleet)
    assert runbook("history", "--from-hosts") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "bob@laptop" in lines[1] and "unfinished" in lines[1]
    assert lines[2].strip() == "copied from one: other hosts know more"
    assert lines[3].strip().startswith("without an outcome: a on one")
    assert runbook("history", "--verify", "theirs") == 0


def test_a_host_that_does_not_answer_is_named(
    runs: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    hosts = {"one": Host("one"), "two": Host("two")}
    fleet = ShellFleet(tmp_path / "hosts", hosts, down={"two"})
    monkeypatch.setattr("runbooks.engine.adapter.inventory.make_fleet", lambda name: fleet)
    assert runbook("history", "--from-hosts") == 4
    told = capsys.readouterr()
    assert "two: error: what it knows of past runs is unknown: no route to host" in told.err
    assert " = early" in told.out
