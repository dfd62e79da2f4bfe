"""Two operators, two controllers, interrupts: real SSH, real processes, real locks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.loopback import Server, host_data

PROJECT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

pytestmark = pytest.mark.e2e

# Every act appends to its host's log, so that acts can be counted; the job ends when told.
RUNBOOK = """\
runbook: long
about: A command, a job that ends when it is told to, a command on another host.
steps:
  first:
    needs: []
    hosts: [one]
    do: {command: {argv: [sh, -c, "echo first >> $EAGLE3_ROOT_DATA/acts; touch $EAGLE3_ROOT_DATA/first"]}}
    ensures: [path: {path: data:first, is: file}]
  work:
    needs: [first]
    hosts: [one]
    do:
      job:
        argv: [sh, -c, "echo work >> $EAGLE3_ROOT_DATA/acts; while ! [ -e $EAGLE3_ROOT_DATA/go ]; do sleep 0.1; done; touch $EAGLE3_ROOT_DATA/worked"]
        progress: {count: "data:go*", of: 1}
    ensures: [path: {path: data:worked, is: file}]
  last:
    needs: [work]
    hosts: [two]
    do: {command: {argv: [sh, -c, "echo last >> $EAGLE3_ROOT_DATA/acts; touch $EAGLE3_ROOT_DATA/last"]}}
    ensures: [path: {path: data:last, is: file}]
"""
OTHER = """\
runbook: other
steps:
  mark:
    needs: []
    hosts: [one]
    do: {command: {argv: [touch, "data:mark"]}}
    ensures: [path: {path: data:mark, is: file}]
"""


class World:
    """Two hosts, each a folder, and operators who run runbooks on them."""

    def __init__(self, folder: Path, server: Server):
        self.folder = folder
        hosts = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            root = {"path": str(folder / name), "owner": name, "filesystem": name}
            data = {"roots": {"data": root}, "state_dir": str(folder / f"state-{name}")}
            hosts.append((name, host_data(server) | data))
        (folder / "fleet.py").write_text(f"machines = {hosts!r}\n")
        (folder / "long.yaml").write_text(RUNBOOK)
        (folder / "long.py").write_text((PROJECT / "runbooks" / "extract.py").read_text())
        (folder / "other.yaml").write_text(OTHER)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *words: str, runs: str = "runs") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(BIN / words[0]), *words[1:]],
            cwd=PROJECT,
            env=os.environ | {"RUNBOOK_RUNS": str(self.folder / runs), "HOME": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(self, *words: str, runs: str = "runs") -> tuple[int, str]:
        process = self.start(*words, runs=runs)
        said, _ = process.communicate(timeout=120)
        return process.returncode, said

    def runbook(self, name: str, *words: str, runs: str = "runs") -> tuple[int, str]:
        return self.run(*self.words(name), *words, runs=runs)

    def words(self, name: str) -> tuple[str, ...]:
        return ("runbook", "run", f"{self.folder}/{name}.yaml", "-i", self.fleet, "-y")

    @property
    def fleet(self) -> str:
        return str(self.folder / "fleet.py")

    def acts(self) -> list[str]:
        files = [self.folder / name / "acts" for name in ("one", "two")]
        return [line for file in files if file.exists() for line in file.read_text().split()]

    def wait_for(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < end, self.acts()
            time.sleep(0.05)

    def wait_for_job(self) -> None:
        self.wait_for(lambda: "work" in self.acts())

    def go(self) -> None:
        (self.folder / "one" / "go").touch()

    def journals(self, runs: str = "runs") -> list[list[dict]]:
        return [
            [json.loads(line) for line in file.read_text().splitlines()]
            for file in sorted((self.folder / runs).glob("*/journal.jsonl"))
        ]


@pytest.fixture
def world(server: Server, tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, server)
    yield made
    made.go()
    for process in made.started:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate()


def test_a_second_operator_is_told_who_where_and_since_when(world: World) -> None:
    first = world.start(*world.words("long"))
    world.wait_for_job()
    for name in ("long", "other"):
        code, said = world.runbook(name, runs="others")
        assert code == 9, said
        assert f"locked by root on {os.uname().nodename} for" in said
        assert f"process {first.pid}" in said
        assert "runbook unlock one" in said
    assert not (world.folder / "one" / "mark").exists()
    world.go()
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 0, said
    assert world.acts() == ["first", "work", "last"]
    assert world.runbook("other", runs="others")[0] == 0


def test_the_lock_of_a_killed_run_is_taken_over_by_proof(world: World) -> None:
    first = world.start(*world.words("long"))
    world.wait_for_job()
    first.kill()
    first.communicate()
    # Another runbook waits for the job; the same one attaches to it.
    code, said = world.runbook("other", runs="others")
    assert code == 9 and "the job long/work lives on one" in said, said
    second = world.start(*world.words("long"), runs="others")
    world.wait_for(
        lambda: (
            bool(world.journals("others"))
            and any(
                event["event"] == "note" and "attached" in event["text"]
                for events in world.journals("others")
                for event in events
            )
        )
    )
    world.go()
    said, _ = second.communicate(timeout=60)
    assert second.returncode == 0, said
    assert "lock taken over" in said and f"its process {first.pid} is gone" in said
    assert world.acts() == ["first", "work", "last"]


def test_a_controller_that_sleeps_through_a_takeover_changes_nothing_more(world: World) -> None:
    first = world.start(*world.words("long"))
    world.wait_for_job()
    first.send_signal(signal.SIGSTOP)
    code, said = world.runbook("long", runs="others")
    assert code == 9, said  # it may live: nothing proves the contrary
    code, said = world.run("runbook", "unlock", "one", "-i", world.fleet, "-y")
    assert code == 0 and "one: released" in said and "two: released" in said, said
    world.go()
    code, said = world.runbook("long", runs="others")
    assert code == 0, said
    # Something that the sleeper would do again, if it could.
    (world.folder / "two" / "last").unlink()
    first.send_signal(signal.SIGCONT)
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 9, said
    assert "this run lost the lock of the host" in said
    assert not (world.folder / "two" / "last").exists()
    assert world.acts() == ["first", "work", "last"]


def test_a_second_controller_sees_the_run_attaches_and_knows_its_history(world: World) -> None:
    first = world.start(*world.words("long"))
    world.wait_for_job()
    code, said = world.run("runbook", "status", "-i", world.fleet, runs="empty")
    assert code == 0, said
    assert "locked by root" in said and "long/work  running" in said
    assert "0/1 files" in said and "attach: runbook attach long/work" in said
    watcher = world.start("runbook", "attach", "long/work", "-i", world.fleet, runs="empty")
    first.kill()
    first.communicate()
    code, said = world.run("runbook", "history", "--from-hosts", "-i", world.fleet, runs="empty")
    assert code == 0, said
    assert "long" in said and "unfinished" in said
    (run,) = [path.name for path in (world.folder / "empty").iterdir() if path.is_dir()]
    code, said = world.run("runbook", "show", f"{run}/work", runs="empty")
    assert code == 0 and "intent: job" in said, said
    code, said = world.run("runbook", "history", "--verify", run, runs="empty")
    assert code == 0, said
    world.go()
    said, _ = watcher.communicate(timeout=60)
    assert watcher.returncode == 0 and "the job ended with exit 0" in said, said


DOORS = ["runbook", "pyinfra"]


def start_by(world: World, door: str) -> subprocess.Popen[str]:
    if door == "runbook":
        return world.start(*world.words("long"))
    return world.start("pyinfra", world.fleet, f"{world.folder}/long.py", "-y")


@pytest.mark.parametrize("door", DOORS)
def test_the_first_interrupt_ends_behind_the_step_that_runs(world: World, door: str) -> None:
    first = start_by(world, door)
    world.wait_for_job()
    first.send_signal(signal.SIGINT)
    time.sleep(0.5)
    world.go()
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 130, said
    assert world.acts() == ["first", "work"]
    (events,) = world.journals()
    assert (events[-1]["event"], events[-1]["exit"], events[-1]["left"]) == ("end", 130, {})
    assert world.runbook("long")[0] == 0


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("signals", [("SIGINT", "SIGINT"), ("SIGTERM",), ("SIGHUP",)], ids="+".join)
def test_leaving_leaves_the_job_and_its_lock(
    world: World, door: str, signals: tuple[str, ...]
) -> None:
    first = start_by(world, door)
    world.wait_for_job()
    for name in signals:
        first.send_signal(getattr(signal, name))
        time.sleep(0.5)
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 130, said
    (events,) = world.journals()
    assert events[-1]["event"] == "end"
    assert events[-1]["left"]["one"] == "the job of work on one lives"
    code, said = world.runbook("other")
    assert code == 9 and "the job long/work lives on one" in said, said
    world.go()
    code, said = world.runbook("long")
    assert code == 0, said
    assert world.acts() == ["first", "work", "last"]


def test_a_job_is_cancelled_from_anywhere(world: World) -> None:
    first = world.start(*world.words("long"))
    world.wait_for_job()
    code, said = world.run("runbook", "cancel", "long/work", "-i", world.fleet, "-y", runs="empty")
    assert code == 0, said
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 6, said
    assert "cancelled by root" in said
    assert world.acts() == ["first", "work"]
    (events,) = world.journals("empty")
    assert [event["event"] for event in events if event["event"] in ("intent", "outcome")]
