"""What the tests of jobs share: a machine whose jobs end with the test, and looks at them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.operations.job import Job
from deploy.operations.job_folder import JobState, job_state, probe, spec_digest
from deploy.operations.job_start import start_script
from runbooks.engine.model.operation import Command
from runbooks.engine.model.probe import Shell
from tests.deploy.operations.local_machine import LocalMachine, parsed

JOB = Job()
SHELLS = ("sh", "bash", "busybox")
BOOT = Path("/proc/sys/kernel/random/boot_id")


@contextmanager
def job_machine(folder: Path, shell: str = "sh") -> Iterator[LocalMachine]:
    """A machine whose `sh` is the named one; its jobs' processes end with it."""
    machine = LocalMachine(folder)
    if shell == "busybox":
        if shutil.which("busybox") is None:
            pytest.skip("LOUD: busybox is not on this machine")
        tools = folder / "busybox"
        tools.mkdir()
        subprocess.run(["busybox", "--install", "-s", str(tools)], check=True)
        # Nothing but busybox is found, as on a small host.
        machine.path = str(tools)
        machine.shell = str(tools / "sh")
    elif shell == "bash":
        tools = folder / "bash"
        tools.mkdir()
        (tools / "sh").symlink_to(str(shutil.which("bash")))
        machine.path = f"{tools}:{machine.path}"
        machine.shell = str(tools / "sh")
    try:
        yield machine
    finally:
        for pid in processes_below(folder):
            kill(pid)


def processes_below(folder: Path) -> list[int]:
    """Every living process that has the folder in its environment or command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in text and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


def judged(machine: LocalMachine, run: int | None = None) -> JobState:
    output = machine.perform(Shell("probe", probe(machine.runbook, machine.step, run)))
    assert output.exit == 0, output.stderr
    return job_state(output.text)


def folder(machine: LocalMachine) -> Path:
    return machine.state / "jobs" / machine.runbook / machine.step


def supervisor(machine: LocalMachine) -> int:
    run = judged(machine).run
    return int(str((folder(machine) / f"{run}.claim").readlink()).split(":")[3])


def start(
    machine: LocalMachine,
    *argv: str,
    env: dict[str, str] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    script = start_script(machine.runbook, machine.step, argv, None, meta)
    output = machine.perform(Command(script=script, env=env or {}))
    assert output.exit == 0, output.stderr
    said = dict(line.split("\t") for line in output.lines)
    return {name: value for name, value in said.items() if value}


def kill(pid: int, sign: signal.Signals = signal.SIGKILL) -> None:
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        return


def until(condition: Callable[[], Any]) -> None:
    """Wait for what another process does; a minute is for a machine under load."""
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come about")


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return stat(pid)[0] not in "ZX"
    except OSError:
        return False


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on: state, parent, …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def run(machine: LocalMachine, *argv: str, **more: Any) -> str:
    args = parsed(JOB, {"argv": list(argv), **more})
    return str(machine.run(JOB.act(args, machine.context)))


def preview(machine: LocalMachine, *argv: str, **more: Any) -> str:
    args = parsed(JOB, {"argv": list(argv), **more})
    return str(machine.run(JOB.preview(args, machine.context)).summary)


def attach(machine: LocalMachine, *argv: str, **more: Any) -> str:
    acting = JOB.attach(parsed(JOB, {"argv": list(argv), **more}), machine.context)
    assert acting is not None
    return str(machine.run(acting))


def claim(
    machine: LocalMachine,
    pid: int,
    born: str,
    *,
    boot: str | None = None,
    dead_supervisor: bool = False,
) -> None:
    """A record of run 1 as another process would have left it."""
    boot = boot or BOOT.read_text().strip()
    watcher = (os.getpid(), "1") if dead_supervisor else (pid, born)
    (folder(machine) / "1").mkdir(parents=True)
    digest = spec_digest(["true"], None)
    text = f"{pid}:{born}:{boot}:{watcher[0]}:{watcher[1]}:{digest}:1-1"
    (folder(machine) / "1.claim").symlink_to(text)
