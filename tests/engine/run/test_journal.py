"""The journal: chained lines, what breaks the chain, a full disk."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.run.journal import FILE, FIRST, Journal, chain_faults, read_journal


def write(folder: Path, count: int = 5) -> Path:
    journal = Journal(folder)
    for number in range(count):
        journal.take({"v": 1, "event": "note", "at": number, "text": f"n{number} ü"})
    journal.close()
    return folder / FILE


def faults(path: Path) -> list[tuple[int, str]]:
    return list(chain_faults(path))


def test_lines_are_numbered_and_chained(tmp_path):
    path = write(tmp_path / "run")
    records = list(read_journal(path))
    assert [record["seq"] for record in records] == [0, 1, 2, 3, 4]
    assert records[0]["prev"] == FIRST
    assert list(records[0])[:3] == ["v", "seq", "prev"]
    assert not faults(path)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("line", range(5))
def test_one_altered_byte_is_found_in_any_line(tmp_path, line):
    path = write(tmp_path / "run")
    lines = path.read_bytes().split(b"\n")
    lines[line] = lines[line].replace(b'"n', b'"m')
    path.write_bytes(b"\n".join(lines))
    # The digest stands in the line behind it; behind the last one stands the head.
    assert [number for number, _ in faults(path)] == [min(line + 2, 5)]


@pytest.mark.parametrize("line", range(5))
def test_a_missing_line_is_found(tmp_path, line):
    path = write(tmp_path / "run")
    lines = path.read_bytes().split(b"\n")
    del lines[line]
    path.write_bytes(b"\n".join(lines))
    assert faults(path)


def test_a_line_in_between_is_found(tmp_path):
    path = write(tmp_path / "run")
    lines = path.read_bytes().split(b"\n")
    lines.insert(2, lines[1])
    path.write_bytes(b"\n".join(lines))
    assert next(number for number, _ in faults(path)) == 3


def test_a_line_that_is_no_json_is_found_and_named(tmp_path):
    path = write(tmp_path / "run")
    lines = path.read_bytes().split(b"\n")
    lines[1] = b"{oops"
    path.write_bytes(b"\n".join(lines))
    assert (2, "is no journal record") in faults(path)
    with pytest.raises(RunbookError) as caught:
        list(read_journal(path))
    assert caught.value.diagnostics[0].where == f"{path}:2"


def test_a_crash_leaves_half_a_line_which_is_no_fault(tmp_path):
    path = write(tmp_path / "run")
    (path.parent / "head").unlink()
    path.write_bytes(path.read_bytes()[:-7])
    assert len(list(read_journal(path))) == 4
    assert not faults(path)


def test_progress_is_not_recorded(tmp_path):
    journal = Journal(tmp_path / "run")
    journal.take({"v": 1, "event": "progress", "at": 0, "text": "x"})
    journal.close()
    assert (tmp_path / "run" / FILE).read_bytes() == b""


def test_copies_get_the_line_as_it_stands(tmp_path):
    copies = []
    journal = Journal(tmp_path / "run", lambda record, line: copies.append(line))
    journal.take({"v": 1, "event": "run", "at": 0})
    journal.close()
    assert [json.loads(line)["event"] for line in copies] == ["run"]
    assert copies[0] + "\n" == (tmp_path / "run" / FILE).read_text()


def test_a_full_disk_is_still_recorded_from_the_reserve(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "run")
    reserve = tmp_path / "run" / "reserve"
    assert reserve.stat().st_blocks * 512 >= 1 << 20
    write_really = os.write

    def write_if_space(handle, data):
        if reserve.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_really(handle, data)

    monkeypatch.setattr(os, "write", write_if_space)
    journal.take({"v": 1, "event": "outcome", "at": 0, "reason": "disk full"})
    journal.take({"v": 1, "event": "end", "at": 0})
    monkeypatch.undo()
    journal.close()
    assert not reserve.exists()
    assert [record["event"] for record in read_journal(journal.path)] == ["outcome", "end"]
    assert not faults(journal.path)


def test_no_half_line_when_even_the_reserve_is_used_up(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "run")
    journal.take({"v": 1, "event": "run", "at": 0})
    real, left = os.write, [10]

    def write_a_little(handle, data):
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = real(handle, bytes(data)[: left[0]])
        left[0] -= count
        return count

    monkeypatch.setattr(os, "write", write_a_little)
    with pytest.raises(OSError):
        journal.take({"v": 1, "event": "note", "at": 0, "text": "long enough"})
    monkeypatch.undo()
    journal.take({"v": 1, "event": "end", "at": 0})
    journal.close()
    assert [record["event"] for record in read_journal(journal.path)] == ["run", "end"]
    assert not faults(journal.path)
