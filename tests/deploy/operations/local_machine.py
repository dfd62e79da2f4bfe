"""Runs operations: on this machine with real shells, or against scripted answers."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from runbooks.engine.model.host import Context, Host, Root
from runbooks.engine.model.operation import (
    Action,
    Command,
    Delegate,
    Operation,
    Progress,
    Put,
    Wait,
)
from runbooks.engine.model.probe import Output, Shell


def parsed(operation: Operation, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as `load` gives them: parsed by their declared types."""
    missing = [
        name
        for name, argument in operation.arguments.items()
        if argument.required and name not in raw
    ]
    assert not missing, f"{operation.name} wants {missing}"
    return {name: operation.arguments[name].type.parse(value) for name, value in raw.items()}


@dataclass
class LocalMachine:
    """This machine as a host whose home, state, temporary files and root lie in one folder."""

    folder: Path
    before: Callable[[Action], None] = lambda action: None
    seen: list[Action] = field(default_factory=list)
    path: str = os.environ["PATH"]
    runbook: str = "extract"
    step: str = "one"
    mounted: bool = False
    shell: str = "sh"

    def __post_init__(self) -> None:
        for name in ("data", "home", "tmp", "project"):
            (self.folder / name).mkdir(exist_ok=True)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def state(self) -> Path:
        return self.folder / "home" / "state"

    @property
    def context(self) -> Context:
        root = Root("data", PurePosixPath(self.data), "here", "disk", mounted=self.mounted)
        host = Host("here", roots={"data": root})
        return Context(host, {"here": host}, self.project, self.runbook, self.step)

    def environment(self) -> dict[str, str]:
        kept = {"PATH": self.path, "PYTHONDONTWRITEBYTECODE": "1"}
        return kept | {
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "EAGLE3_STATE": str(self.state),
        }

    def run(self, steps: Generator[Any, Output, Any]) -> Any:
        """To the end; what it returns."""
        output: Output | None = None
        while True:
            try:
                action = next(steps) if output is None else steps.send(output)
            except StopIteration as stop:
                return stop.value
            output = self.perform(action)

    def perform(self, action: Action) -> Output:
        self.seen.append(action)
        self.before(action)
        match action:
            case Shell(script=script):
                return self._run([self.shell, "-c", f"# {action.label}\n{script}"], {}, None, None)
            case Command(argv=argv, script=script):
                words = list(argv) if script is None else [self.shell, "-c", script]
                return self._run(words, action.env, action.cwd, action.stdin)
            case Put():
                return self._put(action)
            case Wait(seconds=seconds):
                subprocess.run(["sleep", str(min(seconds, 0.2))], check=True)
                return Output(0)
            case Progress() | Delegate():
                return Output(0)

    def _run(
        self, words: list[str], env: Mapping[str, str], cwd: str | None, stdin: bytes | None
    ) -> Output:
        done = subprocess.run(
            words,
            input=stdin or b"",
            capture_output=True,
            env=self.environment() | dict(env),
            cwd=cwd or self.folder / "home",
        )
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return Output(code, done.stdout, done.stderr.decode(errors="replace"))

    @staticmethod
    def _put(action: Put) -> Output:
        target = Path(action.path)
        if not target.parent.is_dir():
            return Output(1, b"", f"{target.parent}: No such file or directory")
        handle, name = tempfile.mkstemp(dir=target.parent)
        os.write(handle, action.content)
        os.close(handle)
        Path(name).chmod(int(action.mode, 8))
        Path(name).replace(target)
        return Output(0)
