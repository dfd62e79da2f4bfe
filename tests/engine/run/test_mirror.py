"""The hosts' copies of a journal: what travels, what waits, and how it comes back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from runbooks.engine.fleet import Unreachable
from runbooks.engine.history.hosts import copy_from_hosts
from runbooks.engine.model.host import Host
from runbooks.engine.model.operation import Command
from runbooks.engine.run.journal import COPIED, FILE, Journal, chain_faults, read_journal
from runbooks.engine.run.mirror import Mirror
from tests.engine.lock.shell_fleet import ShellFleet


@pytest.fixture(params=[("sh",), ("bash",), ("busybox", "sh")], ids=" ".join)
def fleet(request, tmp_path: Path) -> ShellFleet:
    if shutil.which(request.param[0]) is None:
        pytest.skip(f"{request.param[0]} is not installed")
    return ShellFleet(tmp_path / "hosts", {"one": Host("one"), "two": Host("two")}, request.param)


def journalled(tmp_path: Path, name: str = "run-1") -> tuple[Journal, Mirror]:
    mirror = Mirror(name, "book", ("one", "two"))
    return Journal(tmp_path / "runs" / name, mirror.copy), mirror


def send(fleet: ShellFleet, mirror: Mirror, host: str) -> None:
    with mirror.sending(host) as words:
        assert fleet.perform(host, Command(script="echo done"), f"{words}\n:").text == "done\n"


def record(event: str, **more):
    return {"v": 1, "event": event, "at": 1.5, **more}


def test_lines_travel_with_changes_and_come_back_in_order(fleet, tmp_path):
    journal, mirror = journalled(tmp_path)
    journal.take(record("run", run="run-1", runbook="book"))
    journal.take(record("intent", step="a", host="one", diff="'$(rm -rf /)' \\ \n%s ü \udc80"))
    send(fleet, mirror, "one")
    journal.take(record("outcome", step="a", host="one", result="ran"))
    journal.take(record("outcome", step="b", host="two", result="ran"))
    journal.take(record("end", exit=0))
    send(fleet, mirror, "one")
    send(fleet, mirror, "two")
    journal.close()
    copy = fleet.state("one") / "runs" / "run-1" / FILE
    own = journal.path.read_text().splitlines()
    assert copy.read_text().splitlines() == [own[0], own[1], own[2], own[4]]
    assert copy.stat().st_mode & 0o777 == 0o600

    elsewhere = tmp_path / "elsewhere"
    assert copy_from_hosts(fleet, ["one", "two"], elsewhere) == {}
    assert (elsewhere / "run-1" / FILE).read_bytes() == journal.path.read_bytes()
    assert (elsewhere / "run-1" / COPIED).read_text().split() == ["one", "two"]
    assert not list(chain_faults(elsewhere / "run-1" / FILE))


def test_a_copy_of_one_host_lacks_lines_of_others_and_is_still_chained(fleet, tmp_path):
    journal, mirror = journalled(tmp_path)
    for host in ("one", "two", "two", "one", "one"):
        journal.take(record("note", host=host, text="x"))
    send(fleet, mirror, "one")
    journal.close()
    copy_from_hosts(fleet, ["one"], tmp_path / "other")
    path = tmp_path / "other" / "run-1" / FILE
    assert [item["seq"] for item in read_journal(path)] == [0, 3, 4]
    assert not list(chain_faults(path))
    path.write_text(path.read_text().replace('"x"', '"y"'))
    assert list(chain_faults(path))


def test_what_a_host_did_not_get_waits_on(fleet, tmp_path):
    journal, mirror = journalled(tmp_path)
    journal.take(record("intent", step="a", host="one"))
    mirror.checkpoint("one", "{}")
    fleet.down.add("one")
    with pytest.raises(Unreachable):
        send(fleet, mirror, "one")
    fleet.down.clear()
    send(fleet, mirror, "one")
    journal.close()
    assert len((fleet.state("one") / "runs" / "run-1" / FILE).read_text().splitlines()) == 1
    assert (fleet.state("one") / "checkpoints" / "book.jsonl").read_text().split() == ["{}"]


def test_a_host_that_cannot_write_its_copy_still_gets_the_change(fleet, tmp_path):
    journal, mirror = journalled(tmp_path)
    journal.take(record("run"))
    fleet.state("one").mkdir(parents=True)
    (fleet.state("one") / "runs").write_text("a file")
    send(fleet, mirror, "one")
    journal.close()


def test_old_copies_are_cleared_away(fleet, tmp_path):
    for number in range(100, 155):
        journal, mirror = journalled(tmp_path, f"run-{number}")
        journal.take(record("run"))
        send(fleet, mirror, "one")
        journal.close()
    kept = sorted(path.name for path in (fleet.state("one") / "runs").iterdir())
    assert (len(kept), kept[-1]) == (50, "run-154")


def test_an_own_journal_is_never_replaced_by_a_copy(fleet, tmp_path):
    journal, mirror = journalled(tmp_path)
    journal.take(record("run"))
    send(fleet, mirror, "one")
    journal.take(record("end", exit=0))
    journal.close()
    before = journal.path.read_bytes()
    copy_from_hosts(fleet, ["one"], tmp_path / "runs")
    assert journal.path.read_bytes() == before


def test_what_a_host_tells_cannot_leave_the_folder(fleet, tmp_path):
    class Lying(ShellFleet):
        def ask(self, questions):
            from runbooks.engine.model.probe import Output

            line = json.dumps({"v": 1, "seq": 0, "event": "run"})
            return [Output(0, f"run\t../../out\n{line}\nrun\t.x\n{line}\n".encode())]

    lying = Lying(tmp_path / "hosts", {"one": Host("one")})
    assert copy_from_hosts(lying, ["one"], tmp_path / "deep" / "runs") == {}
    assert not (tmp_path / "deep").exists() and not (tmp_path / "out").exists()


def test_a_silent_host_is_named(fleet, tmp_path):
    fleet.down.add("two")
    assert copy_from_hosts(fleet, ["one", "two"], tmp_path / "x") == {
        "two": "two: no route to host"
    }
