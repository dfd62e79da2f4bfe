"""Whether a journal proves itself."""

from __future__ import annotations

import json
from pathlib import Path

from runbooks.engine.history.runs import read_run
from runbooks.engine.history.verify import journal_faults
from runbooks.engine.run.journal import COPIED
from tests.engine.history.journals import add_two, outcome, record, started, write


def faults(path: Path) -> list[tuple[int, str]]:
    return journal_faults(read_run(path.parent))


def test_whole_journals_have_no_faults_ended_or_not(tmp_path: Path) -> None:
    add_two(tmp_path)
    assert not journal_faults(read_run(tmp_path / "early"))
    assert not journal_faults(read_run(tmp_path / "late"))


def test_an_altered_line_is_found(tmp_path: Path) -> None:
    path = write(tmp_path, "x", started("x"), outcome(1, "a", "failed"), record("end", 2, exit=6))
    path.write_bytes(path.read_bytes().replace(b'"failed"', b'"ran"'))
    assert [line for line, _ in faults(path)] == [3]


def test_a_damaged_line_is_told_once(tmp_path: Path) -> None:
    path = write(tmp_path, "x", started("x"), outcome(1, "a"), record("end", 2, exit=0))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"{oops\n" + lines[2])
    assert [line for line, _ in faults(path)] == [2, 3]


def test_a_line_nested_beyond_measure_is_a_fault_and_no_crash(tmp_path: Path) -> None:
    path = write(tmp_path, "x", started("x"))
    with open(path, "ab") as stream:
        stream.write(b"[" * 100_000 + b"\n")
    assert faults(path)


def test_a_journal_without_a_chain_is_not_taken_for_whole(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    path = tmp_path / "x" / "journal.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (started("x"), record("end", 1))))
    assert [line for line, _ in faults(path)] == [1]
    assert "has no chain" in faults(path)[0][1]


def test_a_controller_killed_while_it_gave_up_its_locks_left_no_head(tmp_path: Path) -> None:
    path = write(tmp_path, "x", started("x"), record("end", 2, exit=0), closed=False)
    assert not faults(path)


def test_a_copy_from_hosts_has_gaps_and_no_head(tmp_path: Path) -> None:
    records = [started("x"), outcome(1, "a"), outcome(2, "b", host="two"), record("end", 3, exit=0)]
    path = write(tmp_path, "x", *records, closed=False)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1] + lines[3])
    assert faults(path)
    path.with_name(COPIED).write_text("one\n")
    assert not faults(path)
    path.write_bytes(lines[0].replace(b"alice", b"mally") + lines[1] + lines[3])
    assert [line for line, _ in faults(path)] == [2]
