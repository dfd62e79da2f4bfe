"""Worlds for tests of whole runbooks: this machine as a host, a folder as its root `data`.

Runbooks run by the real command lines, as processes of their own, so that what is tested is what
an operator gets: exit codes, words, and what lies on the host afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["PROJECT", "Said", "World", "until"]

PROJECT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
# Seconds after which a process hangs: a bound for a fault, never a part of what is tested.
LIMIT = 120


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    def has(self, code: int, *words: str) -> Said:
        """Assert the exit code and that every word was printed, and no traceback."""
        assert self.code == code, f"exit {self.code}, want {code}:\n{self.text}"
        for word in words:
            assert word in self.text, f"{word!r} was not said:\n{self.text}"
        assert "Traceback" not in self.text, self.text
        return self

    def row(self, step: str) -> str:
        """The last line that begins with this step: of a plan, or a run's recap."""
        lines = [line for line in self.text.splitlines() if step in line.split()[:2]]
        assert lines, f"no line of {step}:\n{self.text}"
        return lines[-1]


@dataclass
class World:
    """A folder with an inventory of one host, `local`, whose root `data` is a folder beside it.

    `env` is added to the environment of every command; `project` is the folder it runs in.
    """

    folder: Path
    project: Path = PROJECT
    env: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        root = {"path": str(self.data), "owner": "local", "filesystem": "t"}
        spec = {"roots": {"data": root}, "state_dir": str(self.state)}
        self.inventory.write_text(f"here = [('@local', {spec!r})]\n")

    @property
    def data(self) -> Path:
        """The root of the host."""
        return self.folder / "data"

    @property
    def state(self) -> Path:
        """The state folder of the host: locks, jobs, checkpoints, copies of journals."""
        return self.folder / "state"

    @property
    def runs(self) -> Path:
        """The journals of the controller."""
        return self.folder / "runs"

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory.py"

    def write(self, text: str, name: str = "book") -> Path:
        """A runbook, and the deploy file beside it that pyinfra's own door takes."""
        file = self.folder / f"{name}.yaml"
        file.write_text(text)
        file.with_suffix(".py").write_text((PROJECT / "runbooks" / "extract.py").read_text())
        return file

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `runbook` or `pyinfra` (the first word) and let it run."""
        process = subprocess.Popen(
            [str(BIN / words[0]), *words[1:]],
            cwd=self.project,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def environment(self) -> Mapping[str, str]:
        paths = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        here = {"HOME": str(self.folder), "RUNBOOK_RUNS": str(self.runs)}
        return os.environ | here | {"PYTHONPATH": paths.rstrip(os.pathsep)} | self.env

    def say(self, *words: str) -> Said:
        """Run a command to its end."""
        process = self.start(*words)
        out, err = process.communicate(timeout=LIMIT)
        return Said(process.returncode, out, err)

    def plan(self, *words: str, name: str = "book") -> Said:
        return self.say("runbook", "plan", *self._named(name), *words)

    def run(self, *words: str, name: str = "book") -> Said:
        return self.say("runbook", "run", *self._named(name), "-y", *words)

    def start_run(self, *words: str, name: str = "book") -> subprocess.Popen[str]:
        return self.start("runbook", "run", *self._named(name), "-y", *words)

    def validate(self, name: str = "book", *words: str) -> Said:
        return self.say("runbook", "validate", *self._named(name), *words)

    def pyinfra(self, *words: str, name: str = "book") -> Said:
        return self.say("pyinfra", str(self.inventory), str(self.folder / f"{name}.py"), *words)

    def plan_rows(self, *words: str, name: str = "book") -> dict[str, dict[str, Any]]:
        """The rows of the plan by step, from its JSON."""
        said = self.plan("--json", *words, name=name)
        return {row["step"]: row for row in json.loads(said.out)["rows"]}

    def journals(self) -> list[list[dict[str, Any]]]:
        """The records of every run, the oldest run first."""
        return [
            [json.loads(line) for line in file.read_text().splitlines()]
            for file in sorted(
                self.runs.glob("*/journal.jsonl"), key=lambda file: _begun(file.read_text())
            )
        ]

    def records(self, event: str, step: str = "") -> list[dict[str, Any]]:
        """The records of one kind, of all runs."""
        return [
            record
            for journal in self.journals()
            for record in journal
            if record["event"] == event and step in ("", record.get("step"))
        ]

    def acts(self) -> list[str]:
        """What the acts of a runbook wrote, a line each, into `data:acts`."""
        file = self.data / "acts"
        return file.read_text().split() if file.exists() else []

    def snapshot(self) -> dict[str, tuple[int, int, bytes]]:
        """Everything on the host: the mode, the time and the content of each file and folder."""
        found = {}
        for top in (self.data, self.state):
            for path in [top, *top.rglob("*")]:
                if not os.path.lexists(path):
                    continue
                status = path.lstat()
                content = path.read_bytes() if path.is_file() else b""
                found[str(path)] = (status.st_mode, status.st_mtime_ns, content)
        return found

    def end(self) -> None:
        """End what is left: what waits for `data:go`, and what this world's commands started."""
        (self.data / "go").touch()
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
        for pid in self.left_behind():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def left_behind(self) -> Iterator[int]:
        """Processes that have this world's folder in their environment: jobs and commands."""
        mark = f"RUNBOOK_RUNS={self.runs}".encode()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)

    def _named(self, name: str) -> tuple[str, ...]:
        return (str(self.folder / f"{name}.yaml"), "-i", str(self.inventory))


def _begun(journal: str) -> float:
    return float(json.loads(journal.splitlines()[0])["at"]) if journal else 0.0


def until(holds: Callable[[], object], what: str = "") -> None:
    """Wait for the world; fails where it never comes."""
    end = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < end, f"waited in vain for {what or holds}"
        time.sleep(0.05)


def kill(process: subprocess.Popen[str]) -> None:
    """The controller dies without a last word."""
    process.kill()
    process.communicate()


def approval(world: World, step: str) -> str:
    """What an operator copies out of the plan."""
    return f"{step}={world.plan_rows()[step]['approval']}"
