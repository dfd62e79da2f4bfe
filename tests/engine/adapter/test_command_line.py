"""pyinfra's own front door, as the command that people type."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from runbooks.engine.adapter.command_line import runbook_files, unreachable_hint

PROJECT = Path(__file__).resolve().parents[3]

DEPLOY = """\
from pyinfra import host
from pyinfra.operations import files
files.file(name="mark", path=str(host.data.mark))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(PROJECT / "config.py", tmp_path)
    (tmp_path / "inventory" / "group_data").mkdir(parents=True)
    (tmp_path / "inventory" / "hosts.py").write_text('machines = ["@local"]\n')
    (tmp_path / "inventory" / "group_data" / "machines.py").write_text(
        f"mark = {str(tmp_path / 'mark')!r}\n"
    )
    (tmp_path / "runbooks").mkdir()
    (tmp_path / "runbooks" / "touch.py").write_text(DEPLOY)
    return tmp_path


def pyinfra(
    project: Path, *words: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pyinfra", *words],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **(env or {})},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )


def test_the_literal_command(project: Path) -> None:
    dry = pyinfra(project, "inventory", "runbooks/touch.py", "--dry")
    assert dry.returncode == 0, dry.stderr
    assert not (project / "mark").exists()
    done = pyinfra(project, "inventory", "runbooks/touch.py", "-y")
    assert done.returncode == 0, done.stderr
    assert (project / "mark").exists()
    assert "Grand total" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["inventry", "runbooks/touch.py"], ["no inventory 'inventry'", "mean 'inventory'?"]),
        (["inventory", "runbooks/touch.py", "--limit", "machine"], ["mean 'machines'?"]),
        (["inventory", "runbooks/touch.py", "--exclude", "xyz"], ["--exclude", "'xyz'"]),
        (["inventory", "runbooks/touch.py", "--dry", "-y"], ["--dry and -y"]),
        (["inventory", "debug-inventory", "--limit", "locl"], ["mean 'local'?"]),
    ],
)
def test_what_pyinfra_takes_for_success_is_an_error(
    project: Path, words: list[str], said: list[str]
) -> None:
    done = pyinfra(project, *words)
    assert done.returncode == 2, done.stderr
    for text in said:
        assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project / "mark").exists()
    assert not (project / "pyinfra-debug.log").exists()


def test_yes_from_the_environment_is_named(project: Path) -> None:
    words = ["inventory", "runbooks/touch.py", "--dry"]
    done = pyinfra(project, *words, env={"PYINFRA_YES": "1"})
    assert done.returncode == 2
    assert "--dry and PYINFRA_YES" in done.stderr


def test_names_of_the_engine_work_as_a_limit(project: Path) -> None:
    for name in ("local", "@local", "machines", "loc*"):
        done = pyinfra(project, "inventory", "runbooks/touch.py", "--dry", "--limit", name)
        assert done.returncode == 0, done.stderr
        assert "1 (@local)" in done.stderr


def test_other_inventories_of_pyinfra_still_work(project: Path) -> None:
    (project / "mine.py").write_text('def hosts():\n    return {"g": ["@local"]}\n')
    for word in ("@local", "mine.hosts", "inventory/hosts.py"):
        done = pyinfra(project, word, "runbooks/touch.py", "-y", "--data", f"mark={project}/mark")
        assert done.returncode == 0, done.stderr
        (project / "mark").unlink()


@pytest.mark.parametrize("option", ["--no-wait", "--serial"])
def test_unsafe_orders_are_refused_for_runbooks_only(project: Path, option: str) -> None:
    assert pyinfra(project, "inventory", "runbooks/touch.py", "-y", option).returncode == 0
    (project / "mark").unlink()
    (project / "runbooks" / "touch.yaml").write_text("runbook: touch\n")
    done = pyinfra(project, "inventory", "runbooks/touch.py", "-y", option)
    assert done.returncode == 2
    assert option in done.stderr
    assert not (project / "mark").exists()


def fleet_with_one_down(project: Path) -> None:
    data = {"fake_down": "Could not connect (timed out)"}
    (project / "inventory" / "hosts.py").write_text(
        f'machines = ["@local"]\ndown = [("@fake/far", {data!r})]\n'
    )
    (project / "runbooks" / "touch.yaml").write_text("runbook: touch\n")


@pytest.mark.parametrize("words", [["-y"], ["--dry"]])
def test_a_host_that_is_down_neither_asks_nor_ends_a_runbook(
    project: Path, words: list[str]
) -> None:
    fleet_with_one_down(project)
    done = pyinfra(project, "inventory", "runbooks/touch.py", *words)
    assert done.returncode == 0, done.stderr
    assert "far: error: does not answer: Could not connect (timed out)" in done.stderr
    assert "Host far" in done.stderr
    assert "continue?" not in done.stderr
    assert (project / "mark").exists() == (words == ["-y"])


def test_when_all_are_down_the_engine_says_so(project: Path) -> None:
    fleet_with_one_down(project)
    done = pyinfra(project, "inventory", "runbooks/touch.py", "-y", "--limit", "far")
    assert done.returncode not in (0, 1)
    assert "far: error: does not answer" in done.stderr
    assert "Traceback" not in done.stderr


EXITS = """\
from pyinfra.operations import server
from runbooks.engine.adapter.command_line import exit_with
from runbooks.engine.model.diagnostic import ExitCode
exit_with(ExitCode.{code})
server.shell(commands=["{command}"])
"""


@pytest.mark.parametrize(
    ("code", "command", "expected"),
    [
        ("PRECONDITION", "true", 5),
        ("PRECONDITION", "false", 5),
        ("DONE", "true", 0),
        ("DONE", "false", 1),
    ],
)
def test_the_engine_sets_the_exit_code(
    project: Path, code: str, command: str, expected: int
) -> None:
    (project / "runbooks" / "exits.py").write_text(EXITS.format(code=code, command=command))
    assert pyinfra(project, "inventory", "runbooks/exits.py", "-y").returncode == expected


SLEEPS = """\
import threading
from pyinfra.operations import python
from runbooks.engine.adapter.command_line import on_interrupt
stop, ended = threading.Event(), threading.Event()

def leave():
    open("parted", "w").close()

if {hook}:
    on_interrupt(stop.set, leave)

def wait():
    open("waiting", "w").close()
    (ended if {stubborn} else stop).wait(20)
    open("left", "w").close()

python.call(function=wait)
"""


@pytest.mark.parametrize(
    ("hook", "stubborn", "signals"),
    [
        (False, False, [signal.SIGINT]),
        (True, False, [signal.SIGINT]),
        (True, True, [signal.SIGINT, signal.SIGINT]),
        (True, True, [signal.SIGTERM]),
        (True, True, [signal.SIGHUP]),
    ],
)
def test_an_interrupt_exits_130(
    project: Path, hook: bool, stubborn: bool, signals: list[signal.Signals]
) -> None:
    """Once: in order. Twice, a kill, a closed terminal: at once, behind the last words."""
    text = SLEEPS.format(hook=hook, stubborn=stubborn)
    (project / "runbooks" / "sleeps.py").write_text(text)
    running = subprocess.Popen(
        [sys.executable, "-m", "pyinfra", "inventory", "runbooks/sleeps.py", "-y"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 20
    while not (project / "waiting").exists() and time.monotonic() < end:
        time.sleep(0.05)
    begun = time.monotonic()
    for number in signals:
        running.send_signal(number)
        time.sleep(0.3)
    _, errors = running.communicate(timeout=20)
    assert running.returncode == 130, errors
    assert time.monotonic() - begun < 8
    assert (project / "left").exists() == (hook and not stubborn)
    assert (project / "parted").exists() == stubborn
    assert "Traceback" not in errors


def test_a_changed_pyinfra_is_named(project: Path) -> None:
    (project / "config.py").write_text(
        "from pyinfra_cli import cli\ndel cli.connect_all\n" + (PROJECT / "config.py").read_text()
    )
    (project / "runbooks" / "touch.yaml").write_text("runbook: touch\n")
    done = pyinfra(project, "inventory", "runbooks/touch.py", "-y")
    assert done.returncode == 2
    assert "has no pyinfra_cli.cli.connect_all" in done.stderr
    assert "Traceback" not in done.stderr


def test_runbooks_are_known_by_their_yaml(tmp_path: Path) -> None:
    for name in ("a.py", "a.yaml", "b.py"):
        (tmp_path / name).write_text("")
    words = [str(tmp_path / "a.py"), str(tmp_path / "b.py"), "server.shell"]
    assert runbook_files(words) == [tmp_path / "a.py"]


def test_the_hint_says_where_an_address_goes() -> None:
    assert "'Host llm-two'" in unreachable_hint("llm-two")
    assert "ssh_hostname" in unreachable_hint("llm-two")
