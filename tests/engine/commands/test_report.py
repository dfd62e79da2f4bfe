"""`runbook report`: where the page goes, and what it never overwrites."""

from __future__ import annotations

from pathlib import Path

import pytest

from runbooks.engine.commands import report
from runbooks.engine.model.diagnostic import RunbookError
from tests.engine.commands.calling import runbook
from tests.engine.history.journals import add_two


@pytest.fixture
def runs(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("RUNBOOK_RUNS", str(tmp_path / "runs"))
    add_two(tmp_path / "runs")
    return tmp_path / "runs"


def test_it_is_written_into_the_runs_folder(runs: Path, capsys) -> None:
    assert runbook("report", "early") == 0
    file = runs / "early" / "report.html"
    assert capsys.readouterr().out == f"{file}: written\n"
    assert file.read_text().startswith("<!doctype html>")
    assert file.stat().st_mode & 0o777 == 0o600
    # Its own report is replaced unasked, and nothing else is left behind.
    assert runbook("report", "early") == 0
    assert sorted(one.name for one in file.parent.iterdir()) == [
        "head",
        "journal.jsonl",
        "report.html",
    ]


def test_a_report_keeps_the_mode_that_somebody_gave_it(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "r.html"
    runbook("report", "early", "-o", str(file))
    file.chmod(0o644)
    runbook("report", "last", "-o", str(file))
    assert file.stat().st_mode & 0o777 == 0o644
    assert "late" in file.read_text()


def test_it_can_be_printed(runs: Path, capsys) -> None:
    assert runbook("report", "early", "-o", "-") == 0
    out = capsys.readouterr().out
    assert out.startswith("<!doctype html>") and out.rstrip().endswith("</html>")
    assert not (runs / "early" / "report.html").exists()


def test_something_else_is_overwritten_only_by_force(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "thesis.html"
    file.write_text("<html>years of work</html>")
    with pytest.raises(RunbookError, match="is there already and is no report"):
        runbook("report", "early", "-o", str(file))
    assert file.read_text() == "<html>years of work</html>"
    assert runbook("report", "early", "-o", str(file), "--force") == 0
    assert "runbook report" in file.read_text()


def test_a_link_stays_a_link(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.html"
    link.symlink_to(tmp_path / "real" / "r.html")
    runbook("report", "early", "-o", str(link))
    assert link.is_symlink() and (tmp_path / "real" / "r.html").is_file()


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_only_a_file_can_be_written(runs: Path, tmp_path: Path, force) -> None:
    with pytest.raises(RunbookError, match="is no regular file"):
        runbook("report", "early", "-o", str(tmp_path), *force)
    with pytest.raises(RunbookError, match="is no regular file"):
        runbook("report", "early", "-o", "/dev/null", *force)
    with pytest.raises(RunbookError, match="cannot be written: No such file"):
        runbook("report", "early", "-o", str(tmp_path / "none" / "r.html"), *force)


def test_a_write_that_fails_leaves_the_old_report(runs: Path, tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "r.html"
    runbook("report", "early", "-o", str(file))
    before = file.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report.os, "fsync", full)
    with pytest.raises(RunbookError, match="No space left on device"):
        runbook("report", "last", "-o", str(file))
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.glob(".r.html*")] == []


def test_a_run_that_is_not_there_writes_nothing(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(RunbookError, match="no run 'x'"):
        runbook("report", "x", "-o", str(tmp_path / "r.html"))
    assert not (tmp_path / "r.html").exists()
