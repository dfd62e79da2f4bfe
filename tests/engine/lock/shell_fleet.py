"""Hosts that are folders of this machine: scripts run in a real shell, behind real fences."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbooks.engine.adapter.fence import fenced, refusal
from runbooks.engine.fleet import Fenced, Unreachable
from runbooks.engine.model.host import Host
from runbooks.engine.model.probe import Output


@dataclass
class ShellFleet:
    """`hosts` have their state below `folder`; `shell` runs every script."""

    folder: Path
    hosts: dict[str, Host]
    shell: tuple[str, ...] = ("sh",)
    down: set[str] = field(default_factory=set)

    def state(self, host: str) -> Path:
        return self.folder / host

    def _run(self, host: str, script: str, timeout: float = 60) -> Output:
        if host in self.down:
            raise Unreachable(host, "no route to host")
        done = subprocess.run(
            # Through a pipe: an argument may hold 128 KiB.
            [*self.shell, "-c", 's=$(cat); eval "$s"'],
            input=script.encode(),
            env=os.environ | {"EAGLE3_STATE": str(self.state(host))},
            capture_output=True,
            timeout=timeout,
        )
        return Output(done.returncode, done.stdout, done.stderr.decode(errors="replace"))

    def ask(self, questions: Any) -> list[Output | Unreachable]:
        answers: list[Output | Unreachable] = []
        for host, shell in questions:
            try:
                answers.append(self._run(host, shell.script))
            except Unreachable as error:
                answers.append(error)
        return answers

    def perform(self, host: str, action: Any, fence: str = "") -> Output:
        script = action.script if action.script is not None else " ".join(action.argv)
        if fence:
            script = f"{fenced(fence, 'T')}\n{script}"
        output = self._run(host, script)
        if (said := refusal(output.stdout.decode().splitlines(), "T")) is not None:
            raise Fenced(host, said)
        return output

    def connect(self, names: Any) -> dict[str, str]:
        return {name: "no route to host" for name in names if name in self.down}

    def read_only(self, on: bool) -> None: ...
