"""The step loop, the graph and the journal, on a world in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.model.runbook import Act, Retry, Secret
from runbooks.engine.plan.approval import Approval, approval_of
from runbooks.engine.run.event import Bus
from runbooks.engine.run.journal import read_journal
from runbooks.engine.session import Options, Report, Session
from tests.engine.scripted import (
    DENIED,
    DROP,
    SET,
    WORK,
    World,
    flag,
    registry,
    runbook,
    setting,
    step,
)


class Recorder:
    def __init__(self):
        self.records = []

    def take(self, record):
        self.records.append(record)


def session_of(world: World, *steps, tmp_path: Path, secrets=None, **options) -> Session:
    book = runbook(*steps)
    if secrets:
        object.__setattr__(book, "secrets", secrets)
    made = Options(project=tmp_path, runs=tmp_path / "runs", **options)
    return Session(book, registry(), world, Bus([]), made, pause=lambda seconds: None)


def run(world: World, *steps, tmp_path: Path, **options) -> Report:
    return session_of(world, *steps, tmp_path=tmp_path, **options).run()


def results(report: Report) -> dict[str, str]:
    return {step: outcome.result.value for (step, _), outcome in report.outcomes.items()}


def test_a_second_run_changes_nothing_and_says_so(tmp_path: Path) -> None:
    world = World({"one": {}})
    steps = (setting("a"), setting("b", needs=["a"]))
    first = run(world, *steps, tmp_path=tmp_path)
    assert results(first) == {"a": "ran", "b": "ran"}
    done = list(world.log)
    second = run(world, *steps, tmp_path=tmp_path)
    assert results(second) == {"a": "satisfied", "b": "satisfied"}
    assert world.log == done
    assert second.code is ExitCode.DONE


@pytest.mark.parametrize("text", ["on", "absent"])
def test_unknown_ensures_stop_without_an_act(tmp_path: Path, text: str) -> None:
    world = World({"one": {"a": DENIED}})
    report = run(world, setting("a", to=text), tmp_path=tmp_path)
    assert results(report) == {"a": "unknown"}
    assert (report.code, world.log) == (ExitCode.FAILED, [])


def test_requires_are_read_right_before_the_act(tmp_path: Path) -> None:
    """pyinfra#387: planning on stale facts."""
    world = World({"one": {"t": "there"}})
    drop = step("drop", do=(SET, {"name": "t", "to": "gone"}), ensures=(flag("t", "gone"),))
    gate = step("gate", needs=["drop"], requires=(flag("t", "gone"),))
    assert results(run(world, drop, gate, tmp_path=tmp_path)) == {"drop": "ran", "gate": "held"}


def test_requires_that_do_not_hold_touch_nothing(tmp_path: Path) -> None:
    world = World({"one": {}})
    report = run(world, setting("a", requires=(flag("x", "on"),)), tmp_path=tmp_path)
    assert (report.code, world.log) == (ExitCode.PRECONDITION, [])


def test_an_act_that_reports_success_but_changes_nothing_fails(tmp_path: Path) -> None:
    world = World({"one": {}}, deaf={("set", "a", "on")})
    report = run(world, setting("a"), tmp_path=tmp_path)
    assert report.code is ExitCode.FAILED
    assert "after it acted: flag a: absent, want on" in report.outcomes["a", "one"].reason


def test_a_failed_step_stops_its_dependants_on_every_host_and_nothing_else(tmp_path: Path) -> None:
    world = World({"one": {}, "two": {}}, deaf={("set", "a", "on")})
    report = run(
        world,
        setting("a", hosts=["one"]),
        setting("b", needs=["a"], hosts=["two"]),
        setting("c", hosts=["two"]),
        tmp_path=tmp_path,
    )
    assert results(report) == {"a": "failed", "b": "skipped", "c": "ran"}
    assert "needs a, which ended as 'failed' on one" in report.outcomes["b", "two"].reason


def test_needs_waits_for_a_step_on_all_its_hosts(tmp_path: Path) -> None:
    world = World({"one": {}, "two": {}})
    run(
        world,
        setting("a", hosts=["one", "two"]),
        setting("b", needs=["a"], hosts=["one"]),
        tmp_path=tmp_path,
    )
    assert [argv[1] for _, argv in world.log] == ["a", "a", "b"]


def test_steps_on_different_hosts_run_side_by_side(tmp_path: Path) -> None:
    import threading

    meet = threading.Barrier(2, timeout=10)
    world = World({"one": {}, "two": {}}, before=lambda host, argv: meet.wait())
    report = run(world, setting("a", hosts=["one"]), setting("b", hosts=["two"]), tmp_path=tmp_path)
    assert results(report) == {"a": "ran", "b": "ran"}


def drop_step(**more):
    return step("purge", do=(DROP, {"name": "old"}), ensures=(flag("new", "on"),), **more)


def test_without_an_approval_nothing_is_deleted(tmp_path: Path) -> None:
    world = World({"one": {"old": "x" * 1000}})
    report = run(world, drop_step(), tmp_path=tmp_path)
    assert (report.code, world.log) == (ExitCode.APPROVAL, [])
    assert "--approve purge=1000-" in report.outcomes["purge", "one"].reason


@pytest.mark.parametrize(("grown", "acts"), [(1000, True), (1009, True), (1020, False)])
def test_an_approval_covers_what_was_measured_within_a_percent(
    tmp_path: Path, grown: int, acts: bool
) -> None:
    world = World({"one": {"old": "x" * 1000}})
    plan = session_of(world, drop_step(), tmp_path=tmp_path).plan()
    bytes_, _, hash_ = plan.rows[0].approval.partition("-")
    approvals = {("purge", "one"): (Approval(int(bytes_), hash_),)}
    world.flags["one"]["old"] = "x" * grown
    report = run(world, drop_step(), tmp_path=tmp_path, approvals=approvals)
    assert bool(world.log) is acts
    if not acts:
        assert report.code is ExitCode.APPROVAL


def test_an_approval_for_another_host_does_not_pass(tmp_path: Path) -> None:
    from runbooks.engine.model.operation import Preview

    other = approval_of("purge", "two", Preview(frees={"data": 4}, identity="flag old"))
    world = World({"one": {"old": "xxxx"}})
    report = run(world, drop_step(), tmp_path=tmp_path, approvals={("purge", "one"): (other,)})
    assert (report.code, world.log) == (ExitCode.APPROVAL, [])


def test_a_transient_step_runs_for_its_dependent_and_is_released_after(tmp_path: Path) -> None:
    def steps():
        serve = setting(
            "serve", transient=True, release=Act(SET, {"name": "serve", "to": "stopped"})
        )
        return serve, setting("extract", needs=["serve"])

    world = World({"one": {}})
    report = run(world, *steps(), tmp_path=tmp_path)
    assert results(report) == {"serve": "ran", "extract": "ran", "serve:release": "released"}
    assert world.flags["one"] == {"serve": "stopped", "extract": "on"}
    again = run(world, *steps(), tmp_path=tmp_path)
    assert results(again) == {"serve": "not wanted", "extract": "satisfied"}
    assert again.changed == 0


def test_a_transient_step_is_left_alone_under_a_live_job(tmp_path: Path) -> None:
    world = World({"one": {"job-extract": "1", "serve": "slow"}})
    serve = setting("serve", transient=True)
    extract = step("extract", needs=["serve"], do=(WORK, {"name": "extract"}))
    report = run(world, serve, extract, tmp_path=tmp_path)
    assert results(report) == {"serve": "left as it is", "extract": "ran"}
    assert world.log == [("one", ("finish", "extract"))]


def test_a_live_job_is_attached_to_and_not_started_twice(tmp_path: Path) -> None:
    world = World({"one": {"job-w": "1"}})
    report = run(world, step("w", do=(WORK, {"name": "w"})), tmp_path=tmp_path)
    assert results(report) == {"w": "ran"}
    assert ("one", ("set", "job-w", "1")) not in world.log


def test_an_unreachable_host_is_tried_again_when_the_step_says_so(tmp_path: Path) -> None:
    world = World({"one": {}}, down={"one"})
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            world.down.clear()

    retry = Retry(times=3, wait=30, backoff=2.0, when=("unreachable",))
    session = session_of(world, setting("a", retry=retry), tmp_path=tmp_path)
    session._pause = sleep
    report = session.run()
    assert results(report) == {"a": "ran"}
    assert waits == [30, 60]


def test_a_stop_starts_no_further_step(tmp_path: Path) -> None:
    world = World({"one": {}})
    session = session_of(world, setting("a"), setting("b", needs=["a"]), tmp_path=tmp_path)
    world.before = lambda host, argv: session.stop.set()
    report = session.run()
    assert results(report) == {"a": "ran", "b": "interrupted"}
    assert report.code is ExitCode.INTERRUPTED


def test_the_journal_holds_the_intent_before_the_command(tmp_path: Path) -> None:
    world = World({"one": {}})
    journals: list[list[str]] = []

    def look(host, argv):
        (path,) = (tmp_path / "runs").glob("*/journal.jsonl")
        journals.append([record["event"] for record in read_journal(path)])

    world.before = look
    report = run(world, setting("a"), tmp_path=tmp_path)
    assert journals[0][-1] == "intent"
    events = [record["event"] for record in read_journal(report.journal)]
    assert events[0] == "run" and events[-2:] == ["outcome", "end"]
    facts = [record for record in read_journal(report.journal) if record["event"] == "facts"]
    assert facts[0]["checks"][0]["read"] == "absent"
    assert facts[0]["checks"][0]["wanted"] == "on"


def test_a_secret_reaches_the_command_and_no_sink(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TOKEN", "hunter2-hunter2")
    world = World({"one": {}})
    recorder = Recorder()
    act = step(
        "a",
        do=(SET, {"name": "a", "to": "${{ secrets.token }}"}),
        ensures=(flag("a", "hunter2-hunter2"),),
    )
    session = session_of(
        world, act, tmp_path=tmp_path, secrets={"token": Secret("token", env="TOKEN")}
    )
    session.bus.add(recorder)
    report = session.run()
    assert world.flags["one"]["a"] == "hunter2-hunter2"
    assert "hunter2" not in report.journal.read_text()
    assert "hunter2" not in json.dumps(recorder.records)
    assert report.code is ExitCode.DONE


def test_a_missing_secret_is_named_before_anything_runs(tmp_path: Path, monkeypatch) -> None:
    from runbooks.engine.model.diagnostic import RunbookError

    monkeypatch.delenv("TOKEN", raising=False)
    world = World({"one": {}})
    session = session_of(
        world, setting("a"), tmp_path=tmp_path, secrets={"token": Secret("token", env="TOKEN")}
    )
    with pytest.raises(RunbookError, match="TOKEN, which is not set"):
        session.run()
    assert world.log == []
