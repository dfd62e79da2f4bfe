"""Jobs over SSH and under the kernel's out-of-memory killer, on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.operations.job_cancel import cancel_job
from runbooks.engine.adapter import runtime
from runbooks.engine.adapter.fleet import PyinfraFleet
from runbooks.engine.adapter.inventory import make_fleet
from runbooks.engine.fleet import Unreachable
from runbooks.engine.model.host import Context, Origin
from runbooks.engine.model.operation import Acting, Command, OperationFailed, Progress, Wait
from runbooks.engine.model.probe import Output, Shell
from tests.deploy.operations.job_machine import (
    JOB,
    kill,
    processes_below,
    until,
)
from tests.deploy.operations.local_machine import LocalMachine, parsed
from tests.e2e.loopback import Server, host_data

pytestmark = pytest.mark.e2e

OOM = "the kernel's out-of-memory killer"
V1 = Path("/sys/fs/cgroup/memory")
V2 = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


def make_cgroup(name: str, limit: int) -> tuple[Path, str]:
    """A memory cgroup of either version, or an empty path and why there is none."""
    if os.geteuid() != 0:
        return Path(), "only root can make a cgroup"
    for base in V2:
        control = base / "cgroup.subtree_control"
        if control.exists() and "memory" in control.read_text().split():
            group = base / name
            group.mkdir()
            (group / "memory.max").write_text(str(limit))
            if (group / "memory.swap.max").exists():
                (group / "memory.swap.max").write_text("0")
            return group, ""
    if (V1 / "memory.limit_in_bytes").exists():
        group = V1 / name
        try:
            group.mkdir()
            (group / "memory.limit_in_bytes").write_text(str(limit))
        except OSError as error:
            return Path(), f"no memory cgroup can be made: {error}"
        return group, ""
    return Path(), "no memory controller is mounted"


class ConfinedMachine(LocalMachine):
    """This machine, with every command in a cgroup of little memory."""

    group: Path

    def _run(
        self, words: list[str], env: Mapping[str, str], cwd: str | None, stdin: bytes | None
    ) -> Output:
        enter = ["sh", "-c", f'echo $$ > {self.group}/cgroup.procs && exec "$@"', "sh"]
        return super()._run([*enter, *words], env, cwd, stdin)


@pytest.fixture
def confined(tmp_path: Path) -> Iterator[ConfinedMachine]:
    group, reason = make_cgroup(f"eagle3-test-{os.getpid()}", 64 * 2**20)
    if reason:
        pytest.skip(f"LOUD: {reason}")
    machine = ConfinedMachine(tmp_path)
    machine.group = group
    yield machine
    for pid in processes_below(tmp_path):
        kill(pid)
    until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


# Doubles a text in the shell's own memory, so that no other process is larger.
HUNGRY = ("sh", "-c", 'x=0123456789abcdef; while :; do x="$x$x"; done')


def test_killed_by_oom(confined: ConfinedMachine) -> None:
    args = parsed(JOB, {"argv": list(HUNGRY)})
    with pytest.raises(
        OperationFailed, match=r"exit 137 \(signal 9\) after .*: probably"
    ) as failed:
        confined.run(JOB.act(args, confined.context))
    assert f"{OOM}, which killed 1 process of its cgroup in that time" in str(failed.value)
    (record,) = confined.run(JOB.jobs(confined.context))
    assert (record.state, record.exit) == ("ended", 137)
    assert OOM in record.reason


def test_a_child_killed_by_oom(confined: ConfinedMachine) -> None:
    """The program says 3; the kernel's counter says why."""
    script = f"sh -c '{HUNGRY[2]}'; exit 3"
    args = parsed(JOB, {"argv": ["sh", "-c", script]})
    with pytest.raises(OperationFailed, match=rf"exit 3 after .*: {OOM} killed 1 process of its"):
        confined.run(JOB.act(args, confined.context))


def test_a_kill_is_no_oom(confined: ConfinedMachine) -> None:
    args = parsed(JOB, {"argv": ["sh", "-c", "kill -9 $$"]})
    with pytest.raises(OperationFailed) as failed:
        confined.run(JOB.act(args, confined.context))
    assert "exit 137 (signal 9)" in str(failed.value) and OOM not in str(failed.value)


class PretendingMachine(LocalMachine):
    """This machine with a cgroup of version 2 whose counters a program can write itself."""

    def _run(
        self, words: list[str], env: Mapping[str, str], cwd: str | None, stdin: bytes | None
    ) -> Output:
        pretend = """mount -t tmpfs tmpfs /sys/fs/cgroup || exit 1
group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
mkdir -p "$group" && printf 'oom 0\noom_kill 7\noom_group_kill 9\n' > "$group/memory.events"
GROUP=$group; export GROUP
exec "$@"
"""
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", pretend, "sh"]
        return super()._run([*enter, *words], env, cwd, stdin)


@pytest.mark.skipif(os.geteuid() != 0, reason="LOUD: only root can make a namespace of mounts")
@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ("oom 1\\noom_kill 10\\noom_group_kill 9\\n", "which killed 3 processes of its cgroup"),
        ("oom 1\\noom_kill 7\\noom_group_kill 50\\n", ""),
    ],
)
def test_the_counter_of_cgroup_version_2(tmp_path: Path, events: str, reason: str) -> None:
    """Where the kernel's own is of version 1, at least its format is read."""
    machine = PretendingMachine(tmp_path)
    script = f"printf '{events}' > \"$GROUP/memory.events\"; kill -9 $$"
    with pytest.raises(OperationFailed) as failed:
        machine.run(JOB.act(parsed(JOB, {"argv": ["sh", "-c", script]}), machine.context))
    assert "exit 137" in str(failed.value)
    assert (f"probably killed by {OOM}, {reason}" if reason else "exit 137") in str(failed.value)
    assert bool(reason) == ("its cgroup" in str(failed.value))


@dataclass
class Remote:
    """A host over SSH, and how an operation's actions are performed on it."""

    fleet: PyinfraFleet
    context: Context
    progress: list[str]

    def run(self, acting: Acting) -> str:
        """As the engine does: a lost connection is thrown into the operation."""
        output: Any = None
        while True:
            try:
                if isinstance(output, Unreachable):
                    action = acting.throw(output)
                else:
                    action = acting.send(output)
            except StopIteration as stop:
                return str(stop.value)
            output = self.one(action)

    def one(self, action: Any) -> Output | Unreachable:
        match action:
            case Shell():
                return self.fleet.ask([("near", action)])[0]
            case Command():
                return self.fleet.perform("near", action)
            case Wait(seconds=seconds):
                time.sleep(min(seconds, 0.3))
            case Progress(text=text):
                self.progress.append(text)
        return Output(0)


@pytest.fixture
def remote(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    runtime.patch()
    data = host_data(server) | {"state": str(tmp_path / "state")}
    (tmp_path / "hosts.py").write_text(f"machines = {[('near', data)]!r}\n")
    monkeypatch.chdir(tmp_path)
    fleet = make_fleet("hosts.py")
    assert fleet.connect(["near"]) == {}
    origin = Origin("run-7", "alice", "desk")
    context = Context(fleet.hosts["near"], fleet.hosts, tmp_path, "extract", "one", origin)
    yield Remote(fleet, context, [])
    for pid in processes_below(tmp_path):
        kill(pid)


def test_a_job_outlives_its_connection(remote: Remote, server: Server, tmp_path: Path) -> None:
    """Cut while it is watched: the controller connects anew, and sees its end."""
    gate, pids = tmp_path / "gate", tmp_path / "pids"
    script = f"echo $$ >> {pids}; until [ -e {gate} ]; do sleep 0.1; done; exit 0"
    acting = JOB.act(parsed(JOB, {"argv": ["sh", "-c", script]}), remote.context)
    cut, output = False, None
    while True:
        try:
            action = (
                acting.throw(output) if isinstance(output, Unreachable) else acting.send(output)
            )
        except StopIteration as stop:
            said = str(stop.value)
            break
        if isinstance(action, Progress) and not cut:
            cut = True
            until(pids.exists)
            server.cut()
        output = remote.one(action)
        if cut:
            gate.touch()
    assert said.startswith("the job ended with exit 0 after")
    assert len(pids.read_text().split()) == 1, "started once"


def test_another_controller_sees_follows_and_cancels(remote: Remote, tmp_path: Path) -> None:
    script = f"(setsid sleep 300 & echo $! > {tmp_path}/pid); sleep 300"
    steps = JOB.act(parsed(JOB, {"argv": ["sh", "-c", script]}), remote.context)
    action = steps.send(None)
    while not isinstance(action, Progress):
        action = steps.send(remote.one(action))
    steps.close()  # this controller is gone
    remote.fleet.connect(["near"])
    (record,) = _jobs(remote)
    assert (record.state, record.host, record.origin) == ("running", "near", remote.context.origin)
    until((tmp_path / "pid").exists)
    said = remote.run(cancel_job(remote.context))
    assert said.endswith("exit 143 (signal 15), cancelled by alice")
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists())
    with pytest.raises(OperationFailed, match=r"143.*cancelled by alice"):
        remote.run(JOB.follow(remote.context))


def _jobs(remote: Remote) -> Any:
    asking = JOB.jobs(remote.context)
    output: Any = None
    while True:
        try:
            question = asking.send(output)
        except StopIteration as stop:
            return stop.value
        output = remote.one(question)
