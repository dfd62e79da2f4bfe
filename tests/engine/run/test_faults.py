"""Faults on the way: secrets, prompts, closed pipes, broken operations, lost connections."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from runbooks.engine.model.operation import Command, OperationFailed
from runbooks.engine.model.probe import Output
from runbooks.engine.model.runbook import Retry, Secret
from runbooks.engine.plan.approval import approval_of, parse_approvals
from runbooks.engine.plan.scope import Scope
from runbooks.engine.run.journal import read_journal
from runbooks.engine.view.recap import recap_lines
from tests.engine.run.test_session import drop_step, results, run, session_of
from tests.engine.scripted import SET, World, flag, setting, step

SECRET = "hunter2-hunter2-hunter2"


class Talkative(type(SET)):
    """Fails, and quotes what it was given."""

    name = "talkative"

    def act(self, args, context):
        yield Command(argv=("set", args["name"], "x"), stdin=args["to"].encode())
        raise OperationFailed(f"bad token {args['to']}")


def with_operation(one, operation):
    return replace(one, do=replace(one.do, operation=operation))


def test_the_recap_and_the_report_hold_no_secret(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    world = World({"one": {}})
    one = with_operation(setting("a", to="${{ secrets.token }}"), Talkative())
    session = session_of(
        world, one, tmp_path=tmp_path, secrets={"token": Secret("token", env="TOKEN")}
    )
    report = session.run()
    assert report.outcomes["a", "one"].reason == "bad token [secret]"
    text = "\n".join(line.plain for line in recap_lines(report, session.runbook))
    assert SECRET not in text and "[secret]" in text


def test_an_output_is_masked_before_it_is_cut(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    world = World({"one": {}})
    session = session_of(
        world, setting("a"), tmp_path=tmp_path, secrets={"token": Secret("token", env="TOKEN")}
    )
    perform = world.perform

    def loud(host, action, fence=""):
        if not action.argv:
            return perform(host, action, fence)
        perform(host, action)
        return Output(0, stdout=f"{SECRET}{'x' * 3990}".encode())

    world.perform = loud
    journal = session.run().journal.read_text()
    assert "hunter2" not in journal and "ter2" not in journal
    assert "xxx" in journal


def test_requires_and_the_measure_are_read_behind_the_question(tmp_path: Path) -> None:
    """The operator went for lunch with the question open; meanwhile the world moved."""
    world = World({"one": {"old": "x" * 1000, "gate": "open"}})

    def ask(one, host, preview):
        world.flags["one"]["old"] = "y" * 5000
        return approval_of(one.id, host, preview)

    report = run(world, drop_step(), tmp_path=tmp_path, ask_approval=ask)
    assert (report.code, world.log) == (ExitCode.APPROVAL, [])
    assert "more than 1% apart" in report.outcomes["purge", "one"].reason

    def close(one, host, preview):
        world.flags["one"]["gate"] = "closed"
        return approval_of(one.id, host, preview)

    gated = drop_step(requires=(flag("gate", "open"),))
    report = run(world, gated, tmp_path=tmp_path, ask_approval=close)
    assert (report.code, world.log) == (ExitCode.PRECONDITION, [])


def test_a_refused_approval_says_what_would_pass(tmp_path: Path) -> None:
    world = World({"one": {"old": "x" * 1000}})
    other = approval_of(
        "purge",
        "two",
        session_of(world, drop_step(), tmp_path=tmp_path)
        .survey.previews([(drop_step(), "one")])["purge", "one"]
        .value,
    )
    report = run(world, drop_step(), tmp_path=tmp_path, approvals={("purge", "one"): (other,)})
    assert "run with --approve purge=1000-" in report.outcomes["purge", "one"].reason


def test_one_approval_that_fits_is_enough_among_several(tmp_path: Path) -> None:
    """The plan was made twice; the older digest stands behind the newer one."""
    world = World({"one": {"old": "x" * 1000}})
    fits = parse_approvals(
        [f"purge={session_of(world, drop_step(), tmp_path=tmp_path).plan().rows[0].approval}"]
    )["purge"][0]
    older = replace(fits, bytes=10)
    for given in ((fits, older), (older, fits)):
        world.flags["one"]["old"] = "x" * 1000
        world.log.clear()
        run(world, drop_step(), tmp_path=tmp_path, approvals={("purge", "one"): given})
        assert world.log == [("one", ("drop", "old"))]


def test_a_view_that_went_away_ends_nothing(tmp_path: Path) -> None:
    world = World({"one": {}})
    session = session_of(world, setting("a"), setting("b", needs=["a"]), tmp_path=tmp_path)

    class Closed:
        taken = 0

        def take(self, record):
            self.taken += 1
            raise BrokenPipeError

    closed = Closed()
    session.bus.add(closed)
    report = session.run()
    assert results(report) == {"a": "ran", "b": "ran"}
    assert closed.taken == 1
    events = [record["event"] for record in read_journal(report.journal)]
    assert events.count("outcome") == 2 and events[-1] == "end"


def test_without_a_journal_nothing_is_done(tmp_path: Path) -> None:
    """The disk is full: an intent that cannot be recorded is no intent."""
    world = World({"one": {}})
    session = session_of(world, setting("a"), tmp_path=tmp_path)
    record_to = session.bus.record_to

    def full(journal):
        take = journal.take
        journal.take = lambda record: take(record) if record["event"] == "run" else _no_space()
        record_to(journal)

    session.bus.record_to = full
    report = session.run()
    assert (results(report), world.log) == ({"a": "failed"}, [])
    assert "No space left" in report.outcomes["a", "one"].reason


def _no_space():
    raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_no_half_record(tmp_path: Path, monkeypatch) -> None:
    import os

    from runbooks.engine.run.journal import Journal

    journal = Journal(tmp_path / "run")
    journal.take({"v": 1, "event": "run", "n": 1})
    write = os.write

    def full(file, data):
        if len(data) > 20:
            return write(file, data[:20])
        _no_space()

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        journal.take({"v": 1, "event": "outcome", "reason": "x" * 15})
    monkeypatch.undo()
    journal.take({"v": 1, "event": "end", "n": 2})
    journal.close()
    assert [r["event"] for r in read_journal(journal.path)] == ["run", "end"]


def test_a_reason_without_end_is_shortened(tmp_path: Path) -> None:
    class Loud(type(SET)):
        def act(self, args, context):
            raise OperationFailed("x" * 3_000_000)
            yield

    report = run(World({"one": {}}), with_operation(setting("a"), Loud()), tmp_path=tmp_path)
    assert len(report.outcomes["a", "one"].reason) < 5000
    assert report.journal.stat().st_size < 20_000


def test_a_journal_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(RunbookError, match="journal's folder cannot be made"):
        run(World({"one": {}}), setting("a"), tmp_path=tmp_path)


def test_a_fault_in_one_operation_leaves_the_other_hosts_alone(tmp_path: Path) -> None:
    class Broken(type(SET)):
        name = "broken"

        def act(self, args, context):
            yield Command(argv=("set", "x", "y"))
            raise KeyError("nothing")

    world = World({"one": {}, "two": {}})
    report = run(
        world,
        with_operation(setting("a", hosts=["one"]), Broken()),
        setting("b", hosts=["two"]),
        setting("c", needs=["a"], hosts=["two"]),
        tmp_path=tmp_path,
    )
    assert results(report) == {"a": "bug", "b": "ran", "c": "skipped"}
    assert report.code is ExitCode.BUG
    notes = [r for r in read_journal(report.journal) if r["event"] == "note"]
    assert "KeyError" in notes[0]["traceback"]


def test_a_command_that_may_still_run_is_not_started_again(tmp_path: Path) -> None:
    """The connection broke in the middle of it."""
    world = World({"one": {}})
    world.before = lambda host, argv: world.down.add("one")
    perform = world.perform

    def cut(host, action, fence=""):
        if not action.argv:
            return perform(host, action, fence)
        from runbooks.engine.fleet import Unreachable

        perform(host, action)
        raise Unreachable(host, "the connection was cut")

    world.perform = cut
    retry = Retry(times=5, wait=1, when=("unreachable",))
    report = run(world, setting("a", retry=retry), tmp_path=tmp_path)
    assert len(world.log) == 1
    outcome = report.outcomes["a", "one"]
    assert outcome.acted and "after it began to act" in outcome.reason
    assert (report.code, report.changed) == (ExitCode.UNREACHABLE, 1)


def test_a_command_whose_time_ran_out_was_ended_and_is_tried_again(tmp_path: Path) -> None:
    world = World({"one": {"gate": "open"}})
    perform = world.perform

    def slow_once(host, action, fence=""):
        if action.argv and not world.log:
            world.log.append((host, action.argv))
            return Output(124)
        return perform(host, action, fence)

    world.perform = slow_once
    retry = Retry(times=2, wait=1, when=("timeout",))
    one = setting("a", retry=retry, timeout=5, requires=(flag("gate", "open"),))
    report = run(world, one, tmp_path=tmp_path)
    assert (results(report), report.code) == ({"a": "ran"}, ExitCode.DONE)
    assert len(world.log) == 2
    # Before each attempt the requires were read again.
    assert [label for _, label in world.asked].count("flag gate") == 2


def test_a_timeout_ends_the_step_with_its_own_code(tmp_path: Path) -> None:
    world = World({"one": {}})

    perform = world.perform

    def slow(host, action, fence=""):
        if not action.argv:
            return perform(host, action, fence)
        world.log.append((host, action.argv))
        assert action.timeout == 1
        time.sleep(0.05)
        return Output(124)

    world.perform = slow
    report = run(world, setting("a", timeout=1), tmp_path=tmp_path)
    assert (results(report), report.code) == ({"a": "timed out"}, ExitCode.TIMEOUT)
    assert "timeout: 1s" in report.outcomes["a", "one"].reason


def test_a_stop_is_heard_while_a_retry_waits(tmp_path: Path) -> None:
    world = World({"one": {}}, down={"one"})
    retry = Retry(times=5, wait=3600, when=("unreachable",))
    session = session_of(world, setting("a", retry=retry), tmp_path=tmp_path)

    def pause(seconds):
        world.down.clear()
        session.stop.set()

    session._pause = pause
    assert results(session.run()) == {"a": "unreachable"}
    assert world.log == []


def test_abandoning_waits_for_nothing(tmp_path: Path) -> None:
    import threading

    world = World({"one": {}})
    held = threading.Event()
    session = session_of(world, setting("a"), setting("b", needs=["a"]), tmp_path=tmp_path)

    def hang(host, argv):
        session.stop.set()
        session.abandon()
        held.wait(10)

    world.before = hang
    report = session.run()
    held.set()
    assert results(report)["a"] == "interrupted"
    assert "while it acted" in report.outcomes["a", "one"].reason
    assert results(report)["b"] == "interrupted"
    assert report.code is ExitCode.INTERRUPTED


@pytest.mark.parametrize("mode", [0o600])
def test_the_journal_is_for_the_operator_alone(tmp_path: Path, mode: int) -> None:
    report = run(World({"one": {}}), setting("a"), tmp_path=tmp_path)
    assert report.journal.stat().st_mode & 0o777 == mode


def test_a_step_outside_the_limit_never_acts(tmp_path: Path) -> None:
    world = World({"one": {}, "two": {}})
    report = run(
        world,
        setting("a", hosts=["one", "two"]),
        tmp_path=tmp_path,
        scope=Scope(limit=frozenset({"two"})),
    )
    assert [host for host, _ in world.log] == ["two"]
    assert report.outcomes["a", "one"].reason.endswith("; outside --limit")
    assert step("x").gate
