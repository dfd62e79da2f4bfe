"""What became of a job, whatever became of it: each word is true of the processes and files."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.operations.job_folder import job_state
from runbooks.engine.model.operation import OperationFailed
from runbooks.engine.model.probe import Unknown
from tests.deploy.operations.job_machine import (
    BOOT,
    SHELLS,
    alive,
    attach,
    claim,
    folder,
    job_machine,
    judged,
    kill,
    preview,
    run,
    start,
    stat,
    supervisor,
    until,
)
from tests.deploy.operations.local_machine import LocalMachine

SLEEP = ("sleep", "300")
OTHER_BOOT = "00000000-0000-4000-8000-000000000000"
OOM = "the kernel's out-of-memory killer"


@pytest.fixture(params=SHELLS)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalMachine]:
    with job_machine(tmp_path, request.param) as machine:
        yield machine


@pytest.mark.parametrize(
    ("killed", "code", "reason"),
    [
        ("unit 1", 137, f"killed by {OOM}"),
        ("unit 3", 1, f"{OOM} killed 3 processes of it"),
        ("cgroup 1", 137, f"probably killed by {OOM}, which killed 1 process of its cgroup"),
        ("cgroup 2", 1, f"{OOM} killed 2 processes of its cgroup in that time"),
        ("host 1", 137, f"probably killed by {OOM}, which killed 1 process of this host"),
        # Somebody else's process, as far as anybody knows; and an end that needs no reason.
        ("host 1", 1, ""),
        ("unit 1", 0, ""),
        ("garbage", 137, ""),
    ],
)
def test_killed_by_oom(tmp_path: Path, killed: str, code: int, reason: str) -> None:
    """How the counters are worded; tests/e2e/test_jobs.py makes the kernel do it."""
    with job_machine(tmp_path) as machine:
        claim(machine, os.getpid(), "1", dead_supervisor=True)
        (folder(machine) / "1" / "killed").write_text(f"{killed}\n")
        (folder(machine) / "1" / "exit").write_text(f"{code}\n")
        state = judged(machine)
        assert (state.state, state.exit) == ("ended", code)
        assert state.reason.startswith(reason) and bool(state.reason) == bool(reason)


def test_killed_by_kill_is_no_oom(machine: LocalMachine) -> None:
    start(machine, *SLEEP)
    kill(judged(machine).pid or 0)
    until(lambda: judged(machine).state != "running")
    state = judged(machine)
    assert (state.state, state.exit, state.reason) == ("ended", 137, "")
    with pytest.raises(OperationFailed, match=r"exit 137 \(signal 9\) after"):
        attach(machine, *SLEEP)


def test_a_unit_that_was_killed_with_its_supervisor_says_why() -> None:
    text = (
        "now\t9\nrun\t1\nboot\tb\nclaim\t7:1:b:6:1:d:1-1\nstarted\t1\nprogram\t \n"
        "supervisor\t \nunit\tx.service {} system\nresult\tResult=oom-kill InvocationID=aa \n"
    )
    assert job_state(text.format("aa")).reason.endswith(f"killed by {OOM}")
    assert OOM not in job_state(text.format("bb")).reason, "another invocation of the unit"
    assert job_state(text.format("bb")).state == "lost"


def test_killed_by_term(machine: LocalMachine) -> None:
    start(machine, *SLEEP)
    kill(judged(machine).pid or 0, signal.SIGTERM)
    until(lambda: judged(machine).state != "running")
    state = judged(machine)
    assert (state.state, state.exit, state.how) == ("ended", 143, "exit 143 (signal 15)")
    assert "the last one: exit 143 (signal 15); this one begins anew" in preview(machine, "true")


def test_finished_while_nobody_looked(machine: LocalMachine) -> None:
    argv = ("sh", "-c", "exit 3")
    start(machine, *argv)
    until((folder(machine) / "1" / "exit").exists)
    state = judged(machine)
    assert (state.state, state.exit, state.run) == ("ended", 3, 1)
    assert state.ended is not None and state.started is not None and state.ended >= state.started
    with pytest.raises(OperationFailed, match="the job ended with exit 3 after"):
        attach(machine, *argv)
    assert judged(machine).run == 1, "looking starts nothing"


def test_a_zombie_is_dead(machine: LocalMachine) -> None:
    """A program that nobody reaps: /proc/PID exists and says Z."""
    zombie = subprocess.Popen(["true"])
    until(lambda: stat(zombie.pid)[0] == "Z")
    claim(machine, zombie.pid, stat(zombie.pid)[19], dead_supervisor=True)
    assert judged(machine).state == "lost"
    assert start(machine, "true")["run"] == "2"
    zombie.wait()


def test_a_reused_pid_is_not_the_job(machine: LocalMachine) -> None:
    """The process is there, and younger than the job's."""
    other = subprocess.Popen(SLEEP)
    claim(machine, other.pid, str(int(stat(other.pid)[19]) - 1), dead_supervisor=True)
    state = judged(machine)
    assert alive(other.pid)
    assert state.state == "lost"
    assert state.reason == f"process {other.pid} is gone and left no exit status"
    other.kill()
    other.wait()


def test_a_reboot_loses_the_job(machine: LocalMachine) -> None:
    """Even where pid and start time fit a process of now."""
    claim(machine, os.getpid(), stat(os.getpid())[19], boot=OTHER_BOOT)
    state = judged(machine)
    assert (state.state, state.reason) == ("lost", "the host rebooted")
    with pytest.raises(OperationFailed, match="lost: the host rebooted"):
        attach(machine, "true")
    assert start(machine, "true")["run"] == "2"


def test_the_exit_file_is_the_truth(machine: LocalMachine) -> None:
    """It wins over a live process of the same number, and over a reboot."""
    for boot in (None, OTHER_BOOT):
        claim(machine, os.getpid(), stat(os.getpid())[19], boot=boot)
        assert judged(machine).state == ("lost" if boot else "running")
        place = folder(machine) / "1"
        (place / "exit").write_text("0\n")
        assert (judged(machine).state, judged(machine).exit) == ("ended", 0)
        (place / "exit").write_text("gar bage\n")
        with pytest.raises(Unknown):
            judged(machine)
        (place / "exit").unlink()
        place.rmdir()
        (folder(machine) / "1.claim").unlink()


def test_a_half_written_exit_file_is_none(machine: LocalMachine) -> None:
    claim(machine, os.getpid(), "1", dead_supervisor=True)
    (folder(machine) / "1" / ".exit").write_text("0\n")
    assert judged(machine).state == "lost"


def test_supervisor_killed_the_program_still_lives(machine: LocalMachine) -> None:
    start(machine, *SLEEP)
    pid = judged(machine).pid or 0
    kill(supervisor(machine))
    until(lambda: not judged(machine).supervised)
    state = judged(machine)
    assert (state.state, state.pid) == ("running", pid)
    assert start(machine, *SLEEP) == {"run": "1", "ours": "no"}
    kill(pid)
    until(lambda: judged(machine).state == "lost")
    assert "left no exit status" in judged(machine).reason


def test_both_killed(machine: LocalMachine) -> None:
    argv = ("sh", "-c", "echo working; sleep 300")
    start(machine, *argv)
    until(lambda: judged(machine).log_size > 0)
    kill(supervisor(machine))
    kill(judged(machine).pid or 0)
    until(lambda: judged(machine).state == "lost")
    assert judged(machine).exit is None
    assert "the last one: process" in preview(machine, "true")
    assert "continues" in preview(machine, "true", resumable=True)
    for resumable, next_ in (
        (True, "run again to start it anew; it continues"),
        (False, "run again to start it from the beginning"),
    ):
        with pytest.raises(OperationFailed) as failed:
            attach(machine, *argv, resumable=resumable)
        assert f"its log is {judged(machine).log}\nworking\n" in str(failed.value)
        assert str(failed.value).endswith(next_)
    assert "exit 0" in run(machine, "true")


def test_a_damaged_meta_changes_no_state(machine: LocalMachine) -> None:
    """It is for people and other controllers; claim and exit file are the truth."""
    claim(machine, os.getpid(), stat(os.getpid())[19], boot=BOOT.read_text().strip())
    for text in ('{"unit": ', "[1]", ""):
        (folder(machine) / "1" / "meta.json").write_text(text)
        assert (judged(machine).state, judged(machine).meta) == ("running", None)
    (folder(machine) / "1" / "meta.json").unlink()
    assert judged(machine).meta == {}
