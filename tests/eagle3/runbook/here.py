"""This machine as a host: real stores in a folder, read by a real shell."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from eagle3.runbook import register
from runbooks.engine.model.check import Check
from runbooks.engine.model.diagnostic import Place
from runbooks.engine.model.host import Context, Host, Root
from runbooks.engine.model.probe import Output, Shell, Unknown
from runbooks.engine.model.runbook import Estimate, Step
from runbooks.engine.registry import Registry

__all__ = ["NOBODY", "Here", "busybox_tools"]

REGISTRY = Registry()
register(REGISTRY)
NOBODY = 65534


def busybox_tools(folder: Path) -> Path | None:
    """A folder of busybox's programs under their names, or None where there is no busybox."""
    program = shutil.which("busybox")
    if program is None:
        return None
    folder.mkdir()
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        (folder / name).symlink_to(program)
    return folder


@dataclass
class Here:
    """`data`, `model` and the project's configs lie in `folder`. `tools` replaces PATH."""

    folder: Path
    tools: Path | None = None
    mounted: bool = False
    asked: list[Shell] = field(default_factory=list)

    @property
    def context(self) -> Context:
        roots = {
            name: Root(name, PurePosixPath(self.folder / name), "here", "disk", self.mounted)
            for name in ("data", "model")
        }
        host = Host("here", roots=roots)
        return Context(host, {"here": host}, self.folder)

    def fact(self, name: str, user: int | None = None, **raw: Any) -> Mapping[str, Any]:
        """The fields of a fact; raises Unknown."""
        fact = REGISTRY.facts[name]
        args = {
            key: argument.type.parse(raw[key]) if key in raw else argument.default
            for key, argument in fact.arguments.items()
        }
        found: Mapping[str, Any] = self.ask(fact.read(args, self.context), user)
        assert set(found) == set(fact.fields)
        return found

    def state(self, name: str, user: int | None = None, **raw: Any) -> str:
        """The state of a store, or `unknown: REASON`."""
        try:
            return str(self.fact(name, user, **raw)["state"])
        except Unknown as unknown:
            return f"unknown: {unknown.reason}"

    def estimate(self, store: str | None = "data:hidden", **raw: Any) -> Estimate:
        """What remains, for a step whose `ensures` want `store`."""
        ensures: tuple[Check, ...] = ()
        if store is not None:
            args = {"path": store, "of": "data:merged", "target": "model:tiny"}
            ensures = (Check(REGISTRY.facts["hidden_states"], args, ()),)
        step = Step("extract", Place(Path("x.yaml"), 1), (), ("here",), ensures=ensures)
        estimator = REGISTRY.estimators["extraction"]
        given = {"dataset": "data:merged", "target": "model:tiny", "root": "data"} | raw
        args = {
            key: argument.type.parse(given[key]) if key in given else argument.default
            for key, argument in estimator.arguments.items()
        }
        found: Estimate = self.ask(estimator.compute(args, step, self.context))
        return found

    def ask(self, steps: Generator[Shell, Output, Any], user: int | None = None) -> Any:
        """Run a reading to its end, perhaps as another user; what it returns."""
        try:
            shell = next(steps)
            while True:
                self.asked.append(shell)
                shell = steps.send(self._output(shell, user))
        except StopIteration as stop:
            return stop.value

    def _output(self, shell: Shell, user: int | None) -> Output:
        script = f"# {shell.label}\n{shell.script}"
        program = self.tools / "sh" if self.tools else "sh"
        identity: dict[str, Any] = (
            {} if user is None else {"user": user, "group": user, "extra_groups": []}
        )
        done = subprocess.run(
            [program, "-c", script],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": str(self.tools) if self.tools else os.environ["PATH"]},
            **identity,
        )
        return Output(done.returncode, done.stdout, done.stderr.decode(errors="replace"))
