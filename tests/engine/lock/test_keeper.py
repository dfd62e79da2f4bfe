"""Locks on real shells: one run at a time, takeovers by proof, no act after a takeover."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from dataclasses import replace

import pytest

from runbooks.engine.fleet import Fenced
from runbooks.engine.lock.keeper import Keeper, Locked, read_locks
from runbooks.engine.lock.owner import Owner, Process
from runbooks.engine.lock.script import LockState, release_script, take_script
from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from runbooks.engine.model.host import Host, Origin
from runbooks.engine.model.job import JobRecord
from runbooks.engine.model.operation import Command
from tests.engine.lock.shell_fleet import ShellFleet

SHELLS = [("sh",), ("bash",)]
if shutil.which("busybox"):
    SHELLS.append(("busybox", "sh"))


@pytest.fixture(params=SHELLS, ids=" ".join)
def fleet(request, tmp_path) -> ShellFleet:
    hosts = {name: Host(name) for name in ("one", "two")}
    hosts["guest"] = Host("guest", guest_of="two")
    return ShellFleet(tmp_path, hosts, request.param)


def keeper(fleet, run="run-a", *, protects=None, jobs=None, **origin) -> Keeper:
    given = {"operator": "alice", "controller": os.uname().nodename} | origin
    return Keeper(
        fleet,
        Origin(run, **given),
        "extract",
        protects or {"one": ("one",)},
        lambda hosts: {host: (jobs or {}).get(host, []) for host in hosts},
        lambda *event: events.append(event),
        lambda: 1_000_000.0,
    )


events: list[tuple] = []


@pytest.fixture(autouse=True)
def no_events():
    events.clear()


def dead_process() -> Process:
    """A process of this machine that has ended."""
    child = subprocess.Popen(["sleep", "60"])
    process = replace(Process.current(), pid=child.pid, start=_start(child.pid))
    child.kill()
    child.wait()
    return process


def _start(pid: int) -> str:
    from runbooks.engine.lock import owner

    return owner._start(str(pid))


def lock_by(fleet, process: Process, host="one", run="run-old", hosts=("one",), **more) -> None:
    owner = Owner(
        run,
        more.get("runbook", "extract"),
        "bob",
        more.get("controller", os.uname().nodename),
        1_000_000 - 7200,
        process,
        hosts,
    )
    assert fleet.perform(host, Command(script=take_script(run, owner))).text.startswith("held")


def touch(fleet, keep: Keeper, name: str, host="one"):
    return fleet.perform(
        host, Command(script=f': > "$EAGLE3_STATE"/{name}; echo done'), keep.fence(host)
    )


def test_a_lock_is_taken_used_and_given_up(fleet):
    mine = keeper(fleet)
    mine.take_all(())
    assert touch(fleet, mine, "mark").text == "done\n"
    assert (fleet.state("one") / "mark").exists()
    mine.release_all({})
    state = read_locks(fleet, ["one"])["one"]
    assert isinstance(state, LockState) and (state.generation, state.ended) == (1, "released")
    other = keeper(fleet, "run-b")
    other.take_all(())
    assert other.held == {"one": 2}
    assert [event[1] for event in events] == ["taken", "taken"]


def test_a_second_operator_is_told_who_and_for_how_long(fleet):
    lock_by(fleet, Process.current())
    with pytest.raises(RunbookError) as caught:
        keeper(fleet).take_all(())
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code is ExitCode.LOCKED
    assert diagnostic.where == "one"
    assert "by bob on" in diagnostic.message and "for 2h" in diagnostic.message
    assert "run run-old of extract" in diagnostic.message
    assert "runbook unlock one" in (diagnostic.hint or "")


def test_what_was_taken_is_given_back_when_another_host_is_refused(fleet):
    lock_by(fleet, Process.current(), host="two")
    with pytest.raises(RunbookError):
        keeper(fleet, protects={"one": ("one",), "two": ("two",)}).take_all(())
    state = read_locks(fleet, ["one"])["one"]
    assert isinstance(state, LockState) and state.ended == "released"


def test_a_dead_owner_is_replaced_by_proof_and_can_act_no_more(fleet):
    lock_by(fleet, dead_process())
    before = keeper(fleet, "run-old")
    before.held["one"] = 1
    mine = keeper(fleet)
    mine.take_all(())
    assert mine.held == {"one": 2}
    assert events[-1][1] == "taken over" and "is gone" in events[-1][3]
    with pytest.raises(Fenced) as caught:
        touch(fleet, before, "late")
    assert not (fleet.state("one") / "late").exists()
    lost = before.refused("one", caught.value.said)
    assert "by alice on" in lost.reason and "changes nothing more" in lost.reason
    with pytest.raises(Locked):
        before.take("one")
    touch(fleet, mine, "mark")


@pytest.mark.parametrize(
    ("change", "proved"),
    [
        ({"boot": "another-boot"}, True),
        ({"boot": "another-boot", "machine": "another-machine"}, False),
        ({"boot": "another-boot", "machine": ""}, False),
        ({"boot": ""}, False),
        ({"namespace": "pid:[1]", "pid": 2**22 + 1}, False),
        ({"pid": 2**22 + 1}, True),
        ({"start": "1"}, True),
        ({}, False),
    ],
)
def test_what_proves_the_death_of_an_owner(change, proved, monkeypatch):
    from runbooks.engine.lock import owner

    text = owner._text

    def machine(path):
        return "this-machine" if path == "/etc/machine-id" else text(path)

    monkeypatch.setattr(owner, "_text", machine)
    process = replace(Process.current(), **change)
    assert (process.death() is not None) is proved


def test_nothing_is_proved_of_another_controller(fleet):
    lock_by(fleet, dead_process(), controller="laptop")
    with pytest.raises(RunbookError, match="nothing here proves the contrary"):
        keeper(fleet).take_all(())


def test_a_lock_released_by_an_operator_fences_its_owner(fleet):
    mine = keeper(fleet)
    mine.take_all(())
    fleet.perform("one", Command(script=release_script(1, "released", "carol")))
    with pytest.raises(Fenced) as caught:
        touch(fleet, mine, "late")
    assert "an operator released it" in mine.refused("one", caught.value.said).reason
    assert not (fleet.state("one") / "late").exists()


def test_a_state_folder_that_was_removed_fences_its_owner(fleet):
    """Generations begin anew there: the same number is another lock."""
    mine = keeper(fleet)
    mine.take_all(())
    shutil.rmtree(fleet.state("one"))
    with pytest.raises(Fenced):
        touch(fleet, mine, "late")
    other = keeper(fleet, "run-b")
    other.take_all(())
    assert other.held == mine.held == {"one": 1}
    with pytest.raises(Fenced):
        touch(fleet, mine, "late")


def record(host: str, runbook: str, state="running") -> JobRecord:
    return JobRecord(host, runbook, "work", 1, state)


def test_a_live_job_keeps_its_lock_from_other_runbooks(fleet):
    lock_by(fleet, dead_process(), hosts=("one", "two"), runbook="train")
    other = keeper(fleet, jobs={"two": [record("two", "train")]})
    with pytest.raises(RunbookError) as caught:
        other.take_all(())
    (diagnostic,) = caught.value.diagnostics
    assert "the job train/work lives on two" in diagnostic.message
    assert "runbook attach train/work" in (diagnostic.hint or "")


def test_the_run_of_the_same_runbook_takes_it_over_and_attaches(fleet):
    lock_by(fleet, dead_process())
    keeper(fleet, jobs={"one": [record("one", "extract")]}).take_all(())


def test_a_job_that_has_ended_keeps_nothing(fleet):
    lock_by(fleet, dead_process(), runbook="train")
    keeper(fleet, jobs={"one": [record("one", "train", "ended")]}).take_all(())


def test_jobs_that_cannot_be_known_keep_the_lock(fleet):
    lock_by(fleet, dead_process())
    with pytest.raises(RunbookError, match="whether a job lives on one is unknown"):
        keeper(fleet, jobs={"one": "permission denied"}).take_all(())


def test_a_lock_left_to_a_job_is_taken_when_the_job_has_ended(fleet):
    first = keeper(fleet, "run-old")
    first.take_all(())
    first.release_all({"one": "the job of work lives"})
    with pytest.raises(RunbookError, match="the job train/work lives"):
        keeper(fleet, jobs={"one": [record("one", "train")]}).take_all(())
    later = keeper(fleet)
    later.take_all(())
    assert later.held == {"one": 2}


def test_a_command_that_still_runs_keeps_the_lock_of_its_dead_run(fleet):
    lock_by(fleet, dead_process())
    old = keeper(fleet, "run-old")
    old.held["one"] = 1
    ready = fleet.state("one") / "ready"
    script = ': > "$EAGLE3_STATE"/ready; while [ -e "$EAGLE3_STATE"/ready ]; do sleep 0.05; done'
    worker = threading.Thread(
        target=fleet.perform, args=("one", Command(script=script), old.fence("one"))
    )
    worker.start()
    while not ready.exists():
        pass
    try:
        with pytest.raises(RunbookError, match="a command of that run still runs on it"):
            keeper(fleet).take_all(())
    finally:
        ready.unlink()
        worker.join()
    keeper(fleet).take_all(())


def test_of_many_takers_one_has_it(fleet):
    holders: list[str] = []

    def take(name: str) -> None:
        mine = keeper(fleet, name)
        try:
            mine.take_all(())
        except RunbookError:
            return
        holders.append(name)

    threads = [threading.Thread(target=take, args=(f"run-{n}",)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(holders) == 1


def test_one_machine_under_two_names_is_locked_once(fleet):
    (fleet.folder / "two").symlink_to(fleet.folder / "one")
    (fleet.folder / "one").mkdir()
    mine = keeper(fleet, protects={"one": ("one",), "two": ("two",)})
    mine.take_all(())
    assert mine.held == {"one": 1, "two": 1}
    touch(fleet, mine, "mark", "two")


def test_a_guest_is_refused_while_its_machine_is_locked(fleet):
    """The guest was down when its machine was locked, so it has no lock of its own."""
    lock_by(fleet, Process.current(), host="two", hosts=("guest", "two"))
    mine = keeper(fleet, protects={"guest": ("guest",)})
    with pytest.raises(RunbookError, match="with two; its controller may live"):
        mine.take_all(())
    state = read_locks(fleet, ["guest"])["guest"]
    assert isinstance(state, LockState) and state.ended == "released"


def test_a_host_that_is_down_is_locked_when_it_is_needed(fleet):
    fleet.down.add("one")
    mine = keeper(fleet)
    mine.take_all({"one"})
    with pytest.raises(Locked, match="does not hold its lock"):
        mine.fence("one")
    fleet.down.clear()
    mine.take("one")
    assert touch(fleet, mine, "mark").exit == 0


def test_a_state_folder_that_cannot_be_written_is_an_error_with_its_place(fleet):
    (fleet.folder / "one").write_text("a file")
    with pytest.raises(RunbookError) as caught:
        keeper(fleet).take_all(())
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.where == "one" and "cannot be locked" in diagnostic.message
    assert diagnostic.code is ExitCode.FAILED


def test_an_unreadable_owner_keeps_its_lock(fleet):
    folder = fleet.state("one") / "locks"
    folder.mkdir(parents=True)
    (folder / "4.lock").symlink_to("{damaged")
    with pytest.raises(RunbookError, match="its owner cannot be read"):
        keeper(fleet).take_all(())


def test_old_locks_are_cleared_away(fleet):
    for number in range(5):
        mine = keeper(fleet, f"run-{number}")
        mine.take_all(())
        mine.release_all({})
    names = sorted(path.name.split(".")[0] for path in (fleet.state("one") / "locks").iterdir())
    assert set(names) == {"4", "5"}


def test_reading_a_lock_changes_nothing(fleet):
    assert read_locks(fleet, ["one"])["one"] == LockState()
    assert not fleet.state("one").exists()
    fleet.down.add("one")
    assert "no route" in str(read_locks(fleet, ["one"])["one"])
