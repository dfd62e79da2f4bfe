"""The index: always what the journals say, whatever happened to it."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from runbooks.engine.history import consult as consulting
from runbooks.engine.history import index as indexing
from runbooks.engine.history.consult import INDEX, consult
from runbooks.engine.history.runs import read_run
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.runbook import Secret
from tests.engine.history.journals import (
    add_two,
    intent,
    outcome,
    record,
    started,
    write,
)
from tests.engine.run.test_session import session_of
from tests.engine.scripted import World, setting


def rows(runs: Path, **options):
    return consult(runs, lambda index: index.rows(), **options)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    add_two(tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
def read(monkeypatch) -> list[str]:
    """The journals that the index opens."""
    opened: list[str] = []

    def counted(folder):
        opened.append(folder.name)
        return read_run(folder)

    monkeypatch.setattr(indexing, "read_run", counted)
    return opened


def test_runs_are_listed_newest_first_with_what_they_did(runs: Path) -> None:
    late, early = rows(runs)
    assert (early.run, early.ended, early.exit, early.changed, early.failed) == (
        "early",
        True,
        0,
        1,
        0,
    )
    assert (late.run, late.ended, late.exit, late.changed) == ("late", False, None, 2)
    assert [(one.step, one.host, one.operation) for one in late.interrupted] == [
        ("b", "two", "job")
    ]
    assert early.hosts == ("one", "two") and early.last - early.begun == 5


def test_only_changed_journals_are_read_again(runs: Path, read: list[str]) -> None:
    rows(runs)
    assert sorted(read) == ["early", "late"]
    read.clear()
    assert len(rows(runs)) == 2 and read == []
    with open(runs / "late" / "journal.jsonl", "a") as stream:
        stream.write('{"v": 1, "event": "end", "at": 1796090600, "exit": 130}\n')
    write(runs, "new", started("new", 300))
    assert [(row.run, row.exit) for row in rows(runs)] == [
        ("new", None),
        ("late", 130),
        ("early", 0),
    ]
    assert sorted(read) == ["late", "new"]


def test_a_run_that_is_gone_is_forgotten(runs: Path) -> None:
    rows(runs)
    shutil.rmtree(runs / "late")
    assert [row.run for row in rows(runs)] == ["early"]
    with closing(sqlite3.connect(runs / INDEX)) as database:
        for table in ("runs", "steps", "intents"):
            found = database.execute(f"SELECT DISTINCT run FROM {table}").fetchall()
            assert found == [("early",)]


def test_rebuilding_reads_everything(runs: Path, read: list[str]) -> None:
    before = rows(runs)
    read.clear()
    assert rows(runs, rebuild=True) == before
    assert sorted(read) == ["early", "late"]


def _garbage(file: Path) -> None:
    file.write_bytes(b"this is no database " * 400)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


def _scrambled(file: Path) -> None:
    data = bytearray(file.read_bytes())
    for at in range(4096, len(data)):
        data[at] ^= 0x5A
    file.write_bytes(data)


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _older(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.executescript("DROP TABLE intents; PRAGMA user_version = 0;")


def _other_tables(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.executescript("DROP TABLE intents; DROP TABLE runs; CREATE TABLE runs (run TEXT)")


def _wrong_values(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE runs SET hosts = '[oops'")


def _foreign_journal(file: Path) -> None:
    file.write_bytes(b"no database")
    file.with_name(f"{INDEX}-journal").write_bytes(os.urandom(2000))


@pytest.mark.parametrize(
    "harm",
    [
        _garbage,
        _cut,
        _scrambled,
        _empty,
        _older,
        _other_tables,
        _wrong_values,
        _foreign_journal,
    ],
)
def test_a_damaged_or_other_index_is_made_anew_silently(runs: Path, capfd, harm) -> None:
    before = rows(runs)
    harm(runs / INDEX)
    assert rows(runs) == before
    with closing(sqlite3.connect(runs / INDEX)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("PRAGMA user_version").fetchone() == (indexing.SCHEMA,)
        assert database.execute("SELECT COUNT(*) FROM runs").fetchone() == (2,)
    assert capfd.readouterr() == ("", "")


def test_only_its_owner_may_read_it(runs: Path) -> None:
    before = os.umask(0)
    try:
        rows(runs)
        assert (runs / INDEX).stat().st_mode & 0o777 == 0o600
        (runs / INDEX).chmod(0o644)
        rows(runs)
        assert (runs / INDEX).stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def test_a_folder_that_may_only_be_read_still_answers(runs: Path, monkeypatch) -> None:
    really = os.open

    def refused(path, flags, *mode, **more):
        if Path(path).name == INDEX:
            raise OSError(errno.EROFS, "Read-only file system")
        return really(path, flags, *mode, **more)

    monkeypatch.setattr(os, "open", refused)
    assert [row.run for row in rows(runs)] == ["late", "early"]
    assert not (runs / INDEX).exists()


def test_an_index_that_another_program_holds_is_left_alone(runs: Path, monkeypatch) -> None:
    rows(runs)
    write(runs, "new", started("new", 300))
    monkeypatch.setattr(consulting, "_PATIENCE", 0.0)
    inode = (runs / INDEX).stat().st_ino
    with closing(sqlite3.connect(runs / INDEX, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert [row.run for row in rows(runs)] == ["new", "late", "early"]
        other.execute("ROLLBACK")
        assert (runs / INDEX).stat().st_ino == inode
        assert other.execute("SELECT COUNT(*) FROM runs").fetchone() == (2,)


def test_who_does_not_get_the_folders_lock_answers_without_the_index(
    runs: Path, monkeypatch
) -> None:
    monkeypatch.setattr(consulting, "_PATIENCE", 0.0)
    handle = os.open(runs, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert len(rows(runs)) == 2
    assert not (runs / INDEX).exists()
    os.close(handle)
    assert len(rows(runs)) == 2
    assert (runs / INDEX).exists()


@pytest.mark.parametrize("content", ["precious", ""])
def test_a_link_in_the_place_of_the_index_is_not_followed(
    runs: Path, tmp_path: Path, content: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text(content)
    victim.chmod(0o644)
    (runs / INDEX).symlink_to(victim)
    assert len(rows(runs)) == 2
    assert victim.read_text() == content
    assert victim.stat().st_mode & 0o777 == 0o644


def _consult_often(runs: Path, rebuild: bool, results) -> None:
    for _ in range(10):
        results.put([row.run for row in rows(runs, rebuild=rebuild)])


def test_several_processes_use_it_at_once(runs: Path) -> None:
    forking = multiprocessing.get_context("spawn")
    results = forking.Queue()
    workers = [
        forking.Process(target=_consult_often, args=(runs, rebuild, results))
        for rebuild in (False, True, False, True)
    ]
    for worker in workers:
        worker.start()
    answers = [results.get(timeout=120) for _ in range(40)]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    assert answers == [["late", "early"]] * 40
    with closing(sqlite3.connect(runs / INDEX)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("SELECT COUNT(*) FROM steps").fetchone() == (4,)


def test_no_runs_folder_is_no_runs_and_none_is_made(tmp_path: Path) -> None:
    assert rows(tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


def test_a_file_as_the_runs_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunbookError, match="cannot be read"):
        rows(tmp_path / "file")


def test_what_is_no_run_is_passed_over(runs: Path) -> None:
    (runs / "notes.txt").touch()
    (runs / "empty").mkdir()
    (runs / ".hidden").mkdir()
    assert len(rows(runs)) == 2


def test_an_unreadable_journal_is_listed_with_its_reason(runs: Path) -> None:
    (runs / "odd" / "journal.jsonl").mkdir(parents=True)
    assert rows(runs)[-1].run == "odd"
    assert "cannot be read" in rows(runs)[-1].problem


def test_a_damaged_line_is_told(runs: Path) -> None:
    with open(runs / "early" / "journal.jsonl", "ab") as stream:
        stream.write(b"oops\n")
    assert [row.problem for row in rows(runs)] == ["", "1 damaged line"]


def test_stray_bytes_of_a_host_are_kept_out_of_harms_way(tmp_path: Path) -> None:
    odd = "name \udc80"
    write(tmp_path, "x", started("x", operator=odd), intent(1, "a", summary=odd), outcome(2, "a"))
    assert rows(tmp_path)[0].operator == "name \\udc80"


def test_no_secret_comes_into_the_index(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TOKEN", "hunter2-hunter2")
    session = session_of(
        World({"one": {}}),
        setting("a", to="${{ secrets.token }}"),
        tmp_path=tmp_path,
        secrets={"token": Secret("token", env="TOKEN")},
    )
    session.run()
    assert rows(tmp_path / "runs")[0].changed == 1
    assert b"hunter2" not in (tmp_path / "runs" / INDEX).read_bytes()


def test_a_living_run_is_told_from_a_killed_one(tmp_path: Path) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    write(tmp_path, "x", started("x", pid=os.getpid(), boot=boot), closed=False)
    write(tmp_path, "y", started("y", 9, pid=os.getpid(), boot="earlier"), closed=False)
    assert [(row.run, row.lives) for row in rows(tmp_path)] == [("y", False), ("x", True)]


def test_limit_and_runbook_choose(runs: Path) -> None:
    write(runs, "other", started("other", 50, runbook="serve"), record("end", 60, exit=6))

    def ask(*words):
        return consult(runs, lambda index: [row.run for row in index.rows(*words)])

    assert ask() == ["late", "other", "early"]
    assert ask("extract") == ["late", "early"]
    assert ask("extract", 1) == ["late"]
    assert consult(runs, lambda index: index.runbooks()) == ["extract", "serve"]
    assert consult(runs, lambda index: (index.count(), index.count("serve"))) == (3, 1)


def test_a_copy_of_another_controllers_run_names_its_hosts(runs: Path) -> None:
    (runs / "late" / "copied-from").write_text("one\ntwo\n")
    assert [(row.run, row.copied) for row in rows(runs)] == [
        ("late", ("one", "two")),
        ("early", ()),
    ]
