"""Reads facts on this machine with real shells; and as another user, or with scarce tools."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from deploy.facts import FACTS
from runbooks.engine.model.host import Context, Host, Root
from runbooks.engine.model.probe import Output, Shell

BY_NAME = {fact.name: fact for fact in FACTS}
NOBODY = 65534
ROOT = os.geteuid() == 0

needs_root = pytest.mark.skipif(not ROOT, reason="LOUD: only root makes mounts and namespaces")


@dataclass
class ThisMachine:
    """This machine as a host; its root `data` is a folder.

    `wrap` stands before the shell (`unshare --pid …`); `nobody` drops every privilege first;
    `tools` leaves only these programs in PATH.
    """

    folder: Path
    shell: tuple[str, ...] = ("sh",)
    wrap: tuple[str, ...] = ()
    nobody: bool = False
    mounted: bool = False
    roots: tuple[Root, ...] = ()
    path: str = os.environ["PATH"]
    data: Mapping[str, Any] = field(default_factory=dict)
    project: Path = Path("/nonexistent")
    labels: list[str] = field(default_factory=list)

    @property
    def context(self) -> Context:
        root = Root("data", PurePosixPath(self.folder), "here", "disk", mounted=self.mounted)
        host = Host("here", roots={one.name: one for one in (root, *self.roots)}, data=self.data)
        return Context(host, {"here": host}, self.project, "extract", "one")

    def read(self, fact_name: str, /, **raw: Any) -> Mapping[str, Any]:
        """The fields; raises Unknown."""
        fact = BY_NAME[fact_name]
        args = {
            key: argument.type.parse(raw[key]) if key in raw else argument.default
            for key, argument in fact.arguments.items()
        }
        asking = fact.read(args, self.context)
        try:
            shell = next(asking)
            while True:
                shell = asking.send(self.run(shell))
        except StopIteration as stop:
            fields: Mapping[str, Any] = stop.value
        assert set(fields) == set(fact.fields)
        return fields

    def run(self, shell: Shell) -> Output:
        self.labels.append(shell.label)

        def drop() -> None:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)

        done = subprocess.run(
            [
                *self.wrap,
                str(shutil.which(self.shell[0])),
                *self.shell[1:],
                "-c",
                f"# {shell.label}\n{shell.script}",
            ],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": self.path, "EAGLE3_STATE": str(self.folder / "state"), "HOME": "/"},
            preexec_fn=drop if self.nobody and ROOT else None,
            timeout=120,
        )
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return Output(code, done.stdout, done.stderr.decode(errors="replace"))


def only(folder: Path, *programs: str) -> str:
    """A PATH with the usual small tools and these programs, and nothing else."""
    small = (
        "sh sed tr grep head tail sort uniq cat stat id date sleep readlink find awk df du wc xargs"
    )
    folder.mkdir()
    # Not a version manager's shims: they need the rest of its tools.
    places = ":".join(place for place in os.environ["PATH"].split(":") if "shims" not in place)
    for name in (*small.split(), *programs):
        found = shutil.which(name, path=places)
        if found is None:
            pytest.skip(f"LOUD: {name} is not on this machine")
        (folder / name).symlink_to(found)
    return str(folder)
