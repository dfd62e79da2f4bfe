"""Cancelling a job: all its processes end, no other one does, and it is on record who did it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.operations.job_cancel import cancel_job
from deploy.operations.job_folder import spec_digest
from deploy.operations.job_members import kill_script, left_script, term_script
from runbooks.engine.model.host import Context, Origin
from runbooks.engine.model.operation import Command, OperationFailed, Progress
from runbooks.engine.model.probe import Shell
from tests.deploy.operations.job_machine import (
    BOOT,
    JOB,
    SHELLS,
    alive,
    attach,
    claim,
    folder,
    job_machine,
    judged,
    kill,
    preview,
    start,
    stat,
    supervisor,
    until,
)
from tests.deploy.operations.local_machine import LocalMachine
from tests.deploy.operations.test_preview_is_read_only import changing_words

# A family: a child, a grandchild, one in a session of its own, one that left its parents too.
FAMILY = """
echo $$ >> pids
sh -c 'echo $$ >> pids; sleep 300 & echo $! >> pids; wait' &
setsid sh -c 'echo $$ >> pids; exec sleep 300' &
(setsid sh -c 'echo $$ >> pids; exec sleep 300' &)
wait
"""
# The same deaf to TERM, children included.
DEAF = f"trap '' TERM\n{FAMILY}"


@pytest.fixture(params=SHELLS)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalMachine]:
    with job_machine(tmp_path, request.param) as machine:
        yield machine


def by_alice(machine: LocalMachine) -> Context:
    return replace(machine.context, origin=Origin("run-7", "alice", "desk"))


def family(machine: LocalMachine, script: str) -> list[int]:
    """Start it, and wait until all five are there."""
    start(machine, "sh", "-c", script)
    file = machine.folder / "home" / "pids"
    until(lambda: file.exists() and len(file.read_text().split()) == 5)
    pids = [int(word) for word in file.read_text().split()]
    assert all(map(alive, pids))
    return pids


def test_everything_ends_with_term(machine: LocalMachine) -> None:
    other = subprocess.Popen(["sleep", "300"])
    pids = family(machine, FAMILY)
    said = machine.run(cancel_job(by_alice(machine)))
    assert said.endswith("exit 143 (signal 15), cancelled by alice")
    assert not any(map(alive, pids))
    assert other.poll() is None
    other.kill()
    other.wait()
    state = judged(machine)
    assert (state.state, state.exit, state.reason) == ("ended", 143, "cancelled by alice")
    commands = [action for action in machine.seen if isinstance(action, Command)]
    assert [command.label for command in commands[1:]] == ["job cancel one: TERM"]
    assert "(the last one: exit 143 (signal 15), cancelled by alice;" in preview(machine, "true")
    with pytest.raises(OperationFailed, match=r"143.*cancelled by alice"):
        attach(machine, "sh", "-c", FAMILY)


def test_what_is_deaf_to_term_is_killed(machine: LocalMachine) -> None:
    pids = family(machine, DEAF)
    said = machine.run(cancel_job(by_alice(machine), grace=2))
    assert said == "the job is cancelled after 2s: exit 137 (signal 9), cancelled by alice"
    assert not any(map(alive, pids))
    assert judged(machine).exit == 137, "the supervisor lived to write it"
    shown = [action.text for action in machine.seen if isinstance(action, Progress)]
    assert len(shown) == 2
    assert shown[0] == "TERM was sent to 5 processes; 6 processes left, KILL in 2s"
    commands = [action for action in machine.seen if isinstance(action, Command)]
    assert [command.label for command in commands[1:]] == [
        "job cancel one: TERM",
        "job cancel one: KILL",
    ]


def test_a_job_without_its_supervisor_is_cancelled_too(machine: LocalMachine) -> None:
    pids = family(machine, FAMILY)
    watcher = supervisor(machine)
    kill(watcher)
    until(lambda: not alive(watcher))
    said = machine.run(cancel_job(by_alice(machine)))
    assert not any(map(alive, pids))
    assert "it was cancelled by alice" in said
    assert judged(machine).state == "lost"


def test_a_program_that_ends_well_at_term_is_cancelled_all_the_same(
    machine: LocalMachine,
) -> None:
    argv = ("sh", "-c", "trap 'exit 0' TERM; touch ready; while :; do sleep 0.05; done")
    start(machine, *argv)
    until((machine.folder / "home" / "ready").exists)
    assert machine.run(cancel_job(machine.context)).endswith("exit 0, cancelled by an operator")
    with pytest.raises(OperationFailed, match=r"exit 0 after.*cancelled by an operator"):
        attach(machine, *argv)
    assert "the last one: exit 0, cancelled" in preview(machine, "true")


def test_nothing_to_cancel(machine: LocalMachine) -> None:
    with pytest.raises(OperationFailed, match="no job lives: none of this step was ever started"):
        machine.run(JOB.cancel(machine.context))
    start(machine, "sh", "-c", "exit 4")
    until(lambda: judged(machine).state == "ended")
    with pytest.raises(OperationFailed, match=r"the last one is over \(exit 4\)"):
        machine.run(JOB.cancel(machine.context))
    assert not (folder(machine) / "1" / "cancelled").exists()
    # It ended between the look and the signal.
    done = machine.perform(Command(script=term_script(machine.runbook, machine.step, 1, "alice")))
    assert (done.exit, done.stderr.strip()) == (3, "no job lives")
    assert not (folder(machine) / "1" / "cancelled").exists()


@pytest.mark.parametrize("field", ["start", "boot"])
def test_a_reused_pid_is_never_signalled(machine: LocalMachine, field: str) -> None:
    """Program and supervisor have gone; their numbers are another's, with children of its own."""
    other = subprocess.Popen(["sh", "-c", "sleep 300 & wait"], start_new_session=True)
    until(lambda: Path(f"/proc/{other.pid}/task/{other.pid}/children").read_text().strip())
    born = int(stat(other.pid)[19])
    boot = BOOT.read_text().strip()
    if field == "boot":
        claim(machine, other.pid, str(born), boot="00000000-0000-4000-8000-000000000000")
    else:
        claim(machine, other.pid, str(born - 1), boot=boot)
    name = (machine.runbook, machine.step, 1)
    assert machine.perform(Shell("left", left_script(*name))).text == "left\t\n"
    assert machine.perform(Command(script=term_script(*name, "alice"))).exit == 3
    assert machine.perform(Command(script=kill_script(*name))).text == "sent\t0\n"
    assert other.poll() is None
    os.killpg(other.pid, 9)
    other.wait()


def test_the_first_to_cancel_is_on_record(machine: LocalMachine) -> None:
    start(machine, "sleep", "300")
    (folder(machine) / "1" / "cancelled").write_text("1700000000 bob\n")
    assert "cancelled by bob" in machine.run(cancel_job(by_alice(machine)))


def test_a_name_is_only_a_name(machine: LocalMachine) -> None:
    start(machine, "sleep", "300")
    context = replace(machine.context, origin=Origin("r", "al'ice $(touch x)\nrm", "c"))
    machine.run(cancel_job(context))
    assert judged(machine).reason == "cancelled by al'ice $(touch x) rm"
    assert not (machine.folder / "home" / "x").exists()


def test_a_look_at_processes_changes_nothing(machine: LocalMachine) -> None:
    assert changing_words(left_script("a", "b", 1)) == []


def test_what_cannot_be_ended_is_named(machine: LocalMachine) -> None:
    """A process that no signal ends, as in state D: here the KILL does not reach it."""
    start(machine, "sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")
    pid = judged(machine).pid

    class Numb(type(machine)):  # type: ignore[misc]
        def perform(self, action: Any) -> Any:
            if isinstance(action, Command) and "KILL" in action.label:
                action = replace(action, script="printf 'sent\\t1\\n'")
            return super().perform(action)

    numb = Numb(machine.folder, path=machine.path, shell=machine.shell)
    with pytest.raises(OperationFailed, match=rf"could not be ended: .*{pid} \(state [SR]\)"):
        numb.run(cancel_job(machine.context, grace=1))
    assert judged(machine).state == "running"


def test_the_spec_of_a_cancelled_job_starts_anew(machine: LocalMachine) -> None:
    start(machine, "sleep", "300")
    machine.run(cancel_job(machine.context))
    assert start(machine, "true")["run"] == "2"
    assert judged(machine, 1).digest == spec_digest(["sleep", "300"], None)
