"""Which run is meant, and what the newest one left interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from runbooks.engine.history import index as indexing
from runbooks.engine.history.finding import find_run, unfinished
from runbooks.engine.history.runs import read_run
from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from tests.engine.history.journals import BEGIN, add_two, intent, record, started, write

OLD, NEW, OTHER = "20261201-020543-7928", "20261201-020701-6741", "20261130-235959-0001"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for after, run in enumerate((OTHER, OLD, NEW)):
        write(tmp_path, run, started(run, after))
    return tmp_path


@pytest.mark.parametrize(
    ("given", "run"),
    [("last", NEW), (OLD, OLD), ("20261201-0205", OLD), ("20261130", OTHER), (NEW[:-1], NEW)],
)
def test_a_run_is_found_by_a_beginning_that_only_it_has(runs: Path, given: str, run: str) -> None:
    assert find_run(runs, given) == runs / run


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ("20261201", "2 runs begin with '20261201'", f"one of: {NEW}, {OLD}"),
        ("20261201-020543-7982", "no run '20261201-020543-7982' in", f"did you mean '{OLD}'?"),
        ("lost", "no run 'lost' in", "did you mean 'last'?"),
        ("", "no run '' in", "known: "),
        ("../x", "no run '../x' in", "known: "),
    ],
)
def test_otherwise_the_error_says_what_is_near(runs: Path, given, message, hint) -> None:
    with pytest.raises(RunbookError) as caught:
        find_run(runs, given)
    told = caught.value.diagnostics[0]
    assert told.message.startswith(message) and told.hint.startswith(hint)
    assert caught.value.code is ExitCode.USAGE


def test_an_id_that_begins_another_is_still_itself(tmp_path: Path) -> None:
    write(tmp_path, "run", started("run"))
    write(tmp_path, "run2", started("run2"))
    assert find_run(tmp_path, "run") == tmp_path / "run"


def test_without_runs_the_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunbookError, match=f"no runs in {tmp_path}"):
        find_run(tmp_path, "last")


def test_the_newest_run_without_an_end_names_what_it_left(tmp_path: Path) -> None:
    add_two(tmp_path)
    assert [(one.run, one.step, one.host, one.at) for one in unfinished(tmp_path, "extract")] == [
        ("late", "b", "two", BEGIN + 103)
    ]
    assert unfinished(tmp_path, "serve") == []


def test_an_ended_run_behind_it_settles_the_matter(tmp_path: Path) -> None:
    add_two(tmp_path)
    write(tmp_path, "after", started("after", 200), intent(201, "b"), record("end", 202, exit=130))
    assert unfinished(tmp_path, "extract") == []


def test_ending_a_job_settles_nothing(tmp_path: Path) -> None:
    add_two(tmp_path)
    cancel = started("cancel", 200, door="cancel")
    write(tmp_path, "cancel", cancel, intent(201, "b", host="two"), record("end", 202, exit=0))
    assert [one.run for one in unfinished(tmp_path, "extract")] == ["late"]


def test_the_run_that_asks_is_left_out(tmp_path: Path) -> None:
    add_two(tmp_path)
    write(tmp_path, "me", started("me", 300), closed=False)
    assert unfinished(tmp_path, "extract") == []
    assert len(unfinished(tmp_path, "extract", but="me")) == 1


def test_journals_known_to_the_index_are_not_read(tmp_path: Path, monkeypatch) -> None:
    add_two(tmp_path)
    unfinished(tmp_path, "extract")
    monkeypatch.setattr(indexing, "read_run", lambda folder: pytest.fail(f"read {folder}"))
    assert len(unfinished(tmp_path, "extract")) == 1
    monkeypatch.setattr(indexing, "read_run", read_run)
    assert unfinished(tmp_path / "none", "extract") == []
