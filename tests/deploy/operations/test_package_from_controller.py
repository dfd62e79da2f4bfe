"""The project's own wheel: the same bytes for the same files, and installed without an index."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import venv
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy import distribution
from deploy.distribution import NAME
from deploy.operations.package import Package
from deploy.operations.wheel import code_digest, own_files, own_wheel
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import Command, Delegate, OperationFailed
from runbooks.engine.model.probe import Output, Unknown
from tests.deploy.operations.local_machine import LocalMachine, parsed

PACKAGE = Package()
PROJECT = Path(distribution.__file__).parent.parent
ARGS = parsed(PACKAGE, {"name": NAME, "from": "controller"})


def test_the_wheel_is_reproducible_and_whole() -> None:
    code = own_files(PROJECT)
    wheel = own_wheel(code)
    assert wheel == own_wheel(dict(reversed(code.items())))
    assert wheel.name.startswith("eagle3_runbooks-") and wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(io.BytesIO(wheel.content)) as archive:
        names = archive.namelist()
        record = archive.read(next(name for name in names if name.endswith("/RECORD"))).decode()
    assert "deploy/operations/wheel.py" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert {line.split(",")[0] for line in record.splitlines()} == set(names)


def test_the_digest_is_the_one_that_the_fact_compares() -> None:
    """Of this tree, and of this controller's own (editable) install, as a host reports it."""
    assert code_digest(own_files(PROJECT)) == distribution.source_digest(PROJECT)
    words = [sys.executable, "-B", "-c", distribution.script(NAME)]
    said = subprocess.run(words, capture_output=True, text=True, check=True, cwd="/").stdout
    assert f"digest\t{code_digest(own_files(PROJECT))}" in said


def test_without_a_tree_it_is_the_code_that_runs(tmp_path: Path) -> None:
    assert own_files(tmp_path) == own_files(PROJECT)


@pytest.fixture
def machine(tmp_path: Path) -> LocalMachine:
    return LocalMachine(tmp_path)


def context(machine: LocalMachine, **data: Any) -> Context:
    base = machine.context
    data.setdefault("eagle3_venv", str(machine.folder / "venv"))
    host = replace(base.host, data=data)
    return replace(base, host=host, fleet={"here": host})


def act(machine: LocalMachine, where: Context) -> str:
    """Run it; venvs are made by Python itself, the index is not reached."""
    steps = PACKAGE.act(ARGS, where)
    action: Any = next(steps)
    while True:
        if isinstance(action, Delegate):
            venv.create(action.arguments["path"], with_pip=True)
            output = Output(0)
        elif isinstance(action, Command) and action.label.endswith("requirements"):
            output = Output(0)
        else:
            output = machine.perform(action)
        try:
            action = steps.send(output)
        except StopIteration as stop:
            return str(stop.value)


def test_installed_into_a_new_venv(machine: LocalMachine) -> None:
    where = context(machine)
    look = machine.run(PACKAGE.preview(ARGS, where)).summary
    assert look.startswith(f"{NAME}: code absent → ")
    assert act(machine, where).endswith("installed")
    assert (machine.folder / "venv" / "bin" / "eagle3").exists()
    assert act(machine, where) == "nothing to do"
    assert "is installed" in machine.run(PACKAGE.preview(ARGS, where)).summary
    changed = next((machine.folder / "venv/lib").glob("*/site-packages/eagle3/__init__.py"))
    changed.write_text(changed.read_text() + "# edited on the host\n")
    assert " → " in machine.run(PACKAGE.preview(ARGS, where)).summary
    assert act(machine, where).endswith("installed")
    assert "edited" not in changed.read_text()


def test_missing_requirements_are_named(machine: LocalMachine) -> None:
    venv.create(machine.folder / "venv", with_pip=True)
    where = context(machine, eagle3_extras=["host"], eagle3_lock="lock.txt")
    (machine.project / "lock.txt").write_text("pyyaml==6.0.3\n")
    steps = PACKAGE.act(ARGS, where)
    action: Any = next(steps)
    while not (isinstance(action, Command) and action.label.endswith("requirements")):
        action = steps.send(machine.perform(action))
    assert action.stdin == b"pyyaml==6.0.3\n"
    assert "'pyyaml>=6.0'" in str(action.script) and "'pyarrow>=17'" in str(action.script)
    assert "'pytest" not in str(action.script)
    with pytest.raises(OperationFailed, match=r"requirements pyyaml>=6\.0, .* are not"):
        steps.send(Output(1, b"", "ERROR: No matching distribution\n"))


@pytest.mark.skipif(os.geteuid() != 0, reason="drops its privileges")
def test_a_venv_that_may_not_be_entered_is_unknown_not_absent(machine: LocalMachine) -> None:
    """Else a second environment would be made over one that only another user sees."""
    machine.folder.chmod(0o755)
    closed = machine.folder / "closed"
    closed.mkdir(mode=0o700)
    args = parsed(PACKAGE, {"name": "numpy", "venv": f"{closed}/venv"})
    look: Any = next(PACKAGE.preview(args, machine.context))
    words = ["setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", look.script]
    done = subprocess.run(words, env=machine.environment(), capture_output=True, text=True, cwd="/")
    assert done.stdout == f"unknown\t{closed}/venv/bin/python: Permission denied\n"
    steps = PACKAGE.preview(args, machine.context)
    next(steps)
    with pytest.raises(Unknown, match="Permission denied"):
        steps.send(Output(done.returncode, done.stdout.encode(), done.stderr))
