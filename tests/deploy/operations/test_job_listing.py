"""The jobs of a host as any controller sees them: records of what their starters wrote."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.operations.job_listing import _LIST
from deploy.operations.job_progress import resolved
from deploy.operations.job_start import meta_of
from runbooks.engine.model.host import Origin
from runbooks.engine.model.job import JobRecord
from runbooks.engine.model.operation import Command, OperationFailed, Progress
from runbooks.engine.model.probe import Shell, Unknown
from tests.deploy.operations.job_machine import (
    JOB,
    SHELLS,
    folder,
    job_machine,
    judged,
    kill,
    start,
    supervisor,
    until,
)
from tests.deploy.operations.local_machine import LocalMachine, parsed
from tests.deploy.operations.test_preview_is_read_only import changing_words, snapshot

ALICE = Origin("20261201-7", 'alice "the boss"', "desk")


@pytest.fixture(params=SHELLS)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalMachine]:
    with job_machine(tmp_path, request.param) as machine:
        yield machine


def listed(machine: LocalMachine) -> list[JobRecord]:
    return list(machine.run(JOB.jobs(machine.context)))


def begin(machine: LocalMachine, step: str, *argv: str, **more: Any) -> None:
    """What `act` does until the job runs, for alice."""
    machine.step = step
    args = parsed(JOB, {"argv": list(argv), **more})
    steps = JOB.act(args, replace(machine.context, origin=ALICE))
    action: Any = next(steps)
    while True:
        output = machine.perform(action)
        if isinstance(action, Command):
            assert output.exit == 0, output.stderr
            break
        action = steps.send(output)
    steps.close()


def test_no_jobs(machine: LocalMachine) -> None:
    assert listed(machine) == []
    (machine.state / "jobs" / "extract" / "begun-but-never-claimed" / "1").mkdir(parents=True)
    assert listed(machine) == []


def test_every_step_of_every_runbook(machine: LocalMachine) -> None:
    argv = ("sh", "-c", "echo one; echo 'two $x'; exec sleep 300")
    progress = {"file": "data:p r.json"}
    (machine.data / "p r.json").write_text('{"done": 3, "total": 8, "unit": "shards"}')
    begin(machine, "run[a b]", *argv, progress=progress, env={"TOKEN": "s3cr3t"})
    pid, log = judged(machine).pid, Path(judged(machine).log)
    until(lambda: log.exists() and "two" in log.read_text())
    (machine.data / "p r.json").write_text('{"done": 3, "total": 8, "unit": "shards"}')
    machine.runbook = "serve"
    begin(machine, "count", "sh", "-c", "exit 7")
    until(lambda: judged(machine).state == "ended")
    begin(machine, "lost", *argv)
    for one in (supervisor(machine), judged(machine).pid):
        kill(one or 0)
    until(lambda: judged(machine).state == "lost")
    before = snapshot(machine.folder)
    first, second, third = listed(machine)
    assert snapshot(machine.folder) == before
    assert first == JobRecord(
        host="here",
        runbook="extract",
        step="run[a b]",
        number=1,
        state="running",
        command="sh -c 'echo one; echo '\"'\"'two $x'\"'\"'; exec sleep 300'",
        origin=ALICE,
        pid=pid,
        started=first.started,
        now=first.now,
        log=str(log),
        progress=first.progress,
    )
    assert first.alive and first.started is not None and first.started <= first.now
    assert first.progress is not None
    assert (first.progress.done, first.progress.total, first.progress.unit) == (3, 8, "shards")
    assert (second.runbook, second.step, second.state, second.exit) == (
        "serve",
        "count",
        "ended",
        7,
    )
    assert second.ended is not None and second.progress is None and second.pid is None
    assert (third.step, third.state, third.exit) == ("lost", "lost", None)
    assert "left no exit status" in third.reason and not third.alive


def test_a_counted_progress(machine: LocalMachine) -> None:
    shards = machine.data / "*odd"
    shards.mkdir()
    (machine.data / "xodd").mkdir()
    for name in ("a.done", "b c.done", "d.part"):
        (shards / name).touch()
    (machine.data / "xodd" / "no.done").touch()
    begin(machine, "one", "sleep", "300", progress={"count": "data:?odd/*.done", "of": 9})
    (record,) = listed(machine)
    assert record.progress is not None
    assert (record.progress.done, record.progress.total, record.progress.unit) == (3, 9, "files")


def test_a_root_is_never_a_pattern(machine: LocalMachine) -> None:
    progress = {"count": "data:a*", "of": 1}
    assert resolved(progress, machine.context.host) == {
        "count": [f"{machine.data}/", "a*"],
        "of": 1,
    }
    assert resolved({"count": "/x*", "of": 1}, machine.context.host) == {
        "count": ["", "/x*"],
        "of": 1,
    }


def test_the_newest_run_is_listed(machine: LocalMachine) -> None:
    for code in (1, 2):
        begin(machine, "one", "sh", "-c", f"exit {code}")
        until(lambda: judged(machine).state == "ended")
    (record,) = listed(machine)
    assert (record.number, record.exit) == (2, 2)


def test_a_damaged_folder_is_unknown_with_its_name(machine: LocalMachine) -> None:
    """It may be that of a live job: it is neither left out nor dead."""
    begin(machine, "one", "true")
    begin(machine, "two", "true")
    until(lambda: all(record.state == "ended" for record in listed(machine)))
    (folder(machine) / "1" / "exit").write_text("x\n")
    with pytest.raises(Unknown, match=rf"the job in {folder(machine)}: .*remove the folder"):
        listed(machine)
    (folder(machine) / "1" / "exit").write_text("0\n")
    (folder(machine) / "1" / "meta.json").write_text("{")
    damaged = listed(machine)[1]
    assert (damaged.state, damaged.origin) == ("ended", None)
    assert damaged.reason == f"{folder(machine)}/1/meta.json cannot be read"


@pytest.mark.skipif(os.geteuid() != 0, reason="drops its privileges")
def test_a_forbidden_folder_is_unknown(tmp_path: Path) -> None:
    with job_machine(tmp_path) as machine:
        start(machine, "true")
        for place in (folder(machine), folder(machine).parent, machine.state / "jobs"):
            for path in (folder(machine), folder(machine).parent, machine.state / "jobs"):
                path.chmod(0o755)
            place.chmod(0o700)
            machine.folder.chmod(0o755)
            machine.state.chmod(0o755)
            script = next(iter_scripts(machine))
            done = subprocess.run(
                ["setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", script],
                env=machine.environment(),
                capture_output=True,
                text=True,
            )
            assert "ermission denied" in done.stdout + done.stderr
            assert done.returncode != 0 or "damaged\t" in done.stdout


def iter_scripts(machine: LocalMachine) -> Iterator[str]:
    question = next(JOB.jobs(machine.context))
    assert isinstance(question, Shell)
    yield question.script


def test_the_list_holds_no_changing_words() -> None:
    assert changing_words(_LIST) == []


def test_following_needs_no_arguments(machine: LocalMachine) -> None:
    gate = machine.folder / "gate"
    (machine.data / "p.json").write_text('{"done": 0, "total": 2}')
    script = f"until [ -e {gate} ]; do sleep 0.05; done; exit 5"
    begin(machine, "one", "sh", "-c", script, progress={"file": "data:p.json"}, resumable=True)
    until((folder(machine) / "1" / "spec").exists)
    (machine.data / "p.json").write_text('{"done": 1, "total": 2}')
    seen: list[Progress] = []

    def before(action: Any) -> None:
        if isinstance(action, Progress):
            seen.append(action)
            gate.touch()

    machine.before = before
    machine.seen.clear()
    with pytest.raises(OperationFailed, match="the job ended with exit 5 after"):
        machine.run(JOB.follow(machine.context))
    assert (seen[0].done, seen[0].total) == (1, 2)
    assert not any(isinstance(action, Command) for action in machine.seen)
    machine.step = "other"
    with pytest.raises(OperationFailed, match="no job of this step was ever started here"):
        machine.run(JOB.follow(machine.context))


def test_meta_holds_what_others_need_and_no_environment(machine: LocalMachine) -> None:
    meta = meta_of(
        replace(machine.context, origin=ALICE),
        ["a", "b 'c' \"d\" \\ \u00e9\n"],
        "/x y",
        resumable=True,
        progress={"file": "/p"},
    )
    start(machine, "sleep", "300", meta=meta, env={"TOKEN": "s3cr3t"})
    assert judged(machine).origin == ALICE
    until((folder(machine) / "1" / "spec").exists)
    found = judged(machine).meta
    assert found == {"unit": "", **meta}
    text = (folder(machine) / "1" / "meta.json").read_text()
    assert "s3cr3t" not in text
    assert sorted(path.name for path in (folder(machine) / "1").iterdir()) == [
        "log",
        "meta.json",
        "spec",
    ]
