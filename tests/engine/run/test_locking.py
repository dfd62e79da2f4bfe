"""A run and its locks, in a world in memory: taken first, kept for a job, lost for good."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from runbooks.engine.lock.owner import Owner, Process
from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from runbooks.engine.model.host import Origin
from runbooks.engine.run.journal import read_journal
from tests.engine.run.test_session import results, run, session_of
from tests.engine.scripted import WORK, World, setting, step


def told(run_id: str = "run-other", **more) -> str:
    """What a host tells of a lock that a living process holds."""
    owner = Owner.of(Origin(run_id, "bob", "laptop"), "other", 0.0, ("one",))
    return f"newest\t3\nowner\t{owner.encode()}\n" + more.get("rest", "")


def events(journal: Path, kind: str) -> list[dict]:
    return [record for record in read_journal(journal) if record["event"] == kind]


def test_a_locked_host_ends_the_run_before_anything_is_done(tmp_path):
    world = World({"one": {}, "two": {}}, locks={"one": told()})
    session = session_of(world, setting("a"), setting("b", hosts=["two"]), tmp_path=tmp_path)
    with pytest.raises(RunbookError) as caught:
        session.run()
    assert caught.value.code is ExitCode.LOCKED
    assert "by bob on laptop" in caught.value.diagnostics[0].message
    assert not world.log
    # The other host's lock was given back.
    assert ("two", "lock released") in world.locking
    (journal,) = tmp_path.glob("**/journal.jsonl")
    assert events(journal, "end")[0]["exit"] == ExitCode.LOCKED


def test_locks_are_taken_before_anything_is_read_and_given_up_at_the_end(tmp_path):
    world = World({"one": {}, "two": {}})
    seen = []
    ask = world.ask

    def asking(questions):
        seen.append(list(world.locking))
        return ask(questions)

    world.ask = asking
    run(world, setting("a"), setting("b", hosts=["two"]), tmp_path=tmp_path)
    taken = [("one", "lock take"), ("two", "lock take")]
    assert seen[0] == taken
    assert world.locking == [*taken, ("one", "lock released"), ("two", "lock released")]


def test_a_gate_locks_nothing(tmp_path):
    world = World({"one": {"a": "on"}})
    from tests.engine.scripted import flag

    run(world, step("gate", requires=(flag("a", "on"),)), tmp_path=tmp_path)
    assert not world.locking


def test_a_lock_that_is_lost_meanwhile_stops_every_further_change(tmp_path):
    world = World({"one": {}})
    world.before = lambda host, argv: world.taken.update(one=told("run-new"))
    report = run(world, setting("a"), setting("b", needs=["a"]), tmp_path=tmp_path)
    assert results(report) == {"a": "ran", "b": "locked"}
    assert report.code is ExitCode.LOCKED
    assert [argv for _, argv in world.log] == [("set", "a", "on")]
    assert not report.outcomes["b", "one"].acted
    assert "by bob on laptop" in report.outcomes["b", "one"].reason
    assert [event["action"] for event in events(report.journal, "lock")] == ["taken", "lost"]


def test_a_host_that_comes_back_is_locked_before_it_is_changed(tmp_path):
    world = World({"one": {}, "two": {}}, down={"two"})
    world.before = lambda host, argv: world.down.clear()
    report = run(world, setting("a"), setting("b", needs=["a"], hosts=["two"]), tmp_path=tmp_path)
    assert report.code is ExitCode.DONE
    assert world.locking.index(("two", "lock take")) > world.locking.index(("one", "lock take"))


def test_a_host_that_comes_back_locked_is_left_alone(tmp_path):
    world = World({"one": {}, "two": {}}, down={"two"}, locks={"two": told()})
    world.before = lambda host, argv: world.down.clear()
    report = run(world, setting("a"), setting("b", needs=["a"], hosts=["two"]), tmp_path=tmp_path)
    assert results(report) == {"a": "ran", "b": "locked"}
    assert [host for host, _ in world.log] == ["one"]


def test_a_run_that_is_left_leaves_its_lock_to_the_job(tmp_path):
    world = World({"one": {}})
    work = step("work", do=(WORK, {"name": "work"}))
    session = session_of(world, work, tmp_path=tmp_path)
    world.before = lambda host, argv: session.leave.set() if argv[0] == "set" else None

    class Endless(type(WORK)):
        def _wait(self, args):
            from runbooks.engine.model.operation import Wait

            while True:
                yield Wait(3600)

    assert work.do is not None
    endless = replace(work, do=replace(work.do, operation=Endless()))
    session = session_of(world, endless, tmp_path=tmp_path)
    report = session.run()
    assert results(report) == {"work": "interrupted"}
    assert world.locking[-1] == ("one", "lock left")
    assert events(report.journal, "end")[0]["left"] == {"one": "the job of work on one lives"}


def test_the_owner_of_a_lock_names_this_very_process():
    owner = Owner.of(Origin("run", "alice", "here"), "book", 12.7, ("one",))
    again = Owner.decode(owner.encode())
    assert again.process == Process.current() and again.since == 13
    assert json.loads(owner.encode())["process"] == asdict(owner.process)
    for damaged in ("", "{}", "[1]", '{"run": 1}', owner.encode()[:-5]):
        with pytest.raises(ValueError):
            Owner.decode(damaged)


def test_steps_that_a_crash_interrupted_are_named_and_read_again(tmp_path):
    world = World({"one": {}})

    class Crash(BaseException):
        pass

    def crash(host, argv):
        world.flags["one"]["a"] = "on"
        raise Crash

    world.before = crash
    session = session_of(world, setting("a"), setting("b", needs=["a"]), tmp_path=tmp_path)
    emit = session.bus.emit

    def emitting(kind, **data):
        # A controller that is killed records nothing more.
        if kind != "end":
            emit(kind, **data)

    session.bus.emit = emitting
    with pytest.raises(Crash):
        session.run()
    world.before = None
    report = run(world, setting("a"), setting("b", needs=["a"]), tmp_path=tmp_path)
    assert results(report) == {"a": "satisfied", "b": "ran"}
    (note,) = events(report.journal, "note")
    assert (note["step"], note["host"]) == ("a", "one")
    assert "had begun set and did not record how that ended" in note["text"]
    again = run(world, setting("a"), setting("b", needs=["a"]), tmp_path=tmp_path)
    assert not events(again.journal, "note")


def test_a_step_that_failed_is_told_to_a_command_and_the_run_goes_on(tmp_path):
    from runbooks.engine.model.runbook import Notify

    notify = Notify(("failed", "finished"), ("sh", "-c", f"cat > {tmp_path}/told-$$"))
    world = World({"one": {}}, deaf={("set", "a", "on")})
    report = run(
        world,
        setting("a", notify=notify),
        setting("b", notify=notify),
        setting("c", notify=Notify(("failed",), ("false",))),
        tmp_path=tmp_path,
    )
    assert results(report) == {"a": "failed", "b": "ran", "c": "ran"}
    said = [json.loads(file.read_text()) for file in tmp_path.glob("told-*")]
    assert sorted((one["step"], one["event"]) for one in said) == [
        ("a", "failed"),
        ("b", "finished"),
    ]
    assert said[0]["run"] == report.run
