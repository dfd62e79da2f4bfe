"""The tools that are compared, each doing the same work on one host.

One step reads a folder (what it needs) and a file (what it makes), runs `touch` where the file
is not there, and reads the file again. Steps follow each other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.measuring import compiled
from tests.e2e.loopback import Server, host_data

__all__ = ["ANSIBLE", "CONTENDERS", "Contender", "Job", "install_ansible", "runbook_text"]

PROJECT = Path(__file__).resolve().parents[2]
WORKLOAD = Path(__file__).resolve().parent / "workload"
ANSIBLE = "ansible-core>=2.19,<2.20"
_BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Job:
    """One run: its own empty folder, the host's work folder in it, the number of steps."""

    folder: Path
    work: Path
    steps: int
    server: Server
    ansible: Path


@dataclass(frozen=True, slots=True)
class Contender:
    """`prepare` writes what the tool reads into the job's folder, and gives its argv."""

    about: str
    prepare: Callable[[Job], list[str]]

    def environment(self, job: Job) -> Mapping[str, str]:
        return compiled(job.folder.parent / "byte-code") | {
            "BENCHMARK_WORK": str(job.work),
            "BENCHMARK_STEPS": str(job.steps),
            "RUNBOOK_RUNS": str(job.folder / "runs"),
            "ANSIBLE_CONFIG": str(job.folder / "ansible.cfg"),
        }


def runbook_text(steps: int, work: str, host: str, *, transient: int = 0) -> str:
    """The runbook of `steps` steps in one chain; of every `transient` of them the first is a
    transient step (0: none is)."""
    parts = ["runbook: bench", "about: One command for each step.", "steps:"]
    for number in range(steps):
        made = f"{work}/{number:04}"
        needs = f"s{number - 1:04}" if number else ""
        parts += [
            f"  s{number:04}:",
            f"    needs: [{needs}]",
            f"    hosts: [{host}]",
            f"    requires:\n      - path: {{path: {json.dumps(work)}, is: directory}}",
            f"    do: {{command: {{argv: [touch, {json.dumps(made)}]}}}}",
            f"    ensures:\n      - path: {{path: {json.dumps(made)}, is: file}}",
        ]
        if transient and number % transient == 0:
            parts.append("    transient: true")
    return "\n".join(parts) + "\n"


def _inventory(job: Job) -> None:
    data = host_data(job.server) | {"state_dir": str(job.folder / "state")}
    (job.folder / "hosts.py").write_text(f"machines = [('near', {data!r})]\n")


def _engine(job: Job) -> list[str]:
    _inventory(job)
    (job.folder / "bench.yaml").write_text(runbook_text(job.steps, str(job.work), "near"))
    return [str(_BIN / "runbook"), "run", "bench.yaml", "--inventory", "hosts.py", "--yes"]


def _pyinfra(name: str) -> Callable[[Job], list[str]]:
    def prepare(job: Job) -> list[str]:
        _inventory(job)
        (job.folder / name).write_text((WORKLOAD / name).read_text())
        return [str(_BIN / "pyinfra"), "hosts.py", name, "-y"]

    return prepare


def _ansible(job: Job) -> list[str]:
    data = host_data(job.server)
    (job.folder / "hosts.ini").write_text(
        f"near ansible_host={data['ssh_hostname']} ansible_port={data['ssh_port']}"
        f" ansible_user={data['ssh_user']} ansible_ssh_private_key_file={data['ssh_key']}"
        f" ansible_python_interpreter={sys.executable}\n"
    )
    # A path of a control socket may hold 108 bytes.
    (job.folder / "ansible.cfg").write_text(
        "[defaults]\nhost_key_checking = False\ninterpreter_python = " + sys.executable + "\n"
        f"local_tmp = {job.folder}/local\nhome = {job.folder}/home\n"
        "[ssh_connection]\npipelining = True\n"
        f"ssh_args = -o ControlMaster=auto -o ControlPersist=60s -F none"
        f" -o UserKnownHostsFile={job.folder}/known_hosts\n"
        "control_path_dir = " + f"/tmp/eagle3-bench-{os.getpid()}\n"
    )
    tasks = []
    for number in range(job.steps):
        made = f"{job.work}/{number:04}"
        tasks += [
            {"stat": {"path": str(job.work)}, "register": "needed"},
            {"assert": {"that": "needed.stat.exists and needed.stat.isdir", "quiet": True}},
            {"stat": {"path": made}, "register": "before"},
            {"command": {"argv": ["touch", made]}, "when": "not before.stat.exists"},
            {"stat": {"path": made}, "register": "after"},
            {"assert": {"that": "after.stat.exists and after.stat.isreg", "quiet": True}},
        ]
    play = [{"hosts": "near", "gather_facts": False, "tasks": tasks}]
    (job.folder / "play.yaml").write_text(json.dumps(play))  # JSON is YAML
    return [str(job.ansible / "bin" / "ansible-playbook"), "-i", "hosts.ini", "play.yaml"]


def install_ansible(folder: Path) -> Path:
    """A virtual environment of its own, made once."""
    if not (folder / "bin" / "ansible-playbook").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", ANSIBLE], check=True)
    return folder


CONTENDERS = {
    "engine": Contender("runbook run: plan, then the checked run", _engine),
    "plain": Contender("pyinfra -y: the same facts around the same commands", _pyinfra("plain.py")),
    "bare": Contender("pyinfra -y: the same commands, no facts", _pyinfra("bare.py")),
    "ansible": Contender("ansible-playbook: stat, assert, command", _ansible),
}
