"""Watching a job through lost connections: how long, how often, and what is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.operations.job_watch import watch_job
from runbooks.engine.fleet import Unreachable
from runbooks.engine.model.operation import Command, OperationFailed, Progress, Wait
from runbooks.engine.model.probe import Output, Shell, Unknown
from tests.deploy.operations.job_machine import JOB, job_machine, judged, start, until
from tests.deploy.operations.local_machine import LocalMachine, parsed


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LocalMachine]:
    with job_machine(tmp_path) as machine:
        yield machine


def misses(steps: Any, count: int) -> tuple[list[float], list[str], Any]:
    """Answer `count` looks with a lost connection: the waits, what was said, the next look."""
    waits, said = [], []
    action: Any = None
    for _ in range(count):
        action = steps.throw(Unreachable("here", "gone"))
        assert isinstance(action, Progress)
        said.append(action.text)
        action = steps.send(Output(0))
        assert isinstance(action, Wait)
        waits.append(action.seconds)
        action = steps.send(Output(0))
        assert isinstance(action, Shell)
    return waits, said, action


def test_a_lost_connection_does_not_end_the_waiting(machine: LocalMachine) -> None:
    start(machine, "true")
    until(lambda: judged(machine).state == "ended")
    steps: Any = JOB.attach(parsed(JOB, {"argv": ["true"]}), machine.context)
    next(steps)
    waits, said, question = misses(steps, 8)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert said[0] == "no connection (gone); next look in 1s"
    assert said[-1] == "no connection (gone); next look in 1m"
    with pytest.raises(StopIteration, match="exit 0"):
        steps.send(machine.perform(question))


def test_after_a_quarter_of_an_hour_nobody_waits_on(machine: LocalMachine) -> None:
    start(machine, "sleep", "300")
    steps = watch_job(machine.context, None)
    next(steps)
    waits, _, _ = misses(steps, 20)
    assert sum(waits) >= 15 * 60 > sum(waits[:-1])
    with pytest.raises(Unreachable, match=r"gone; no connection for 15m3s\. The job is its host's"):
        steps.throw(Unreachable("here", "gone"))
    assert judged(machine).state == "running"


def test_patience_begins_anew_with_each_connection(machine: LocalMachine) -> None:
    start(machine, "sleep", "300")
    steps = watch_job(machine.context, None, 1)
    next(steps)
    _, _, question = misses(steps, 12)
    action: Any = steps.send(machine.perform(question))
    # The first answer tells where the progress is; then it is looked at.
    while not isinstance(action, Wait):
        action = steps.send(machine.perform(action))
    assert action.seconds == pytest.approx(0.1), "cheap looks again"
    assert isinstance(steps.send(Output(0)), Shell)
    waits, _, _ = misses(steps, 2)
    assert waits == [1, 2]


def test_looks_are_short_at_first_and_then_seldom(machine: LocalMachine) -> None:
    start(machine, "sleep", "300")
    steps = watch_job(machine.context, None)
    action: Any = next(steps)
    answer, waits = machine.perform(action), []
    while len(waits) < 14:
        action = steps.send(answer if isinstance(action, Shell) else Output(0))
        if isinstance(action, Wait):
            waits.append(action.seconds)
    assert waits[0] == pytest.approx(0.1) and waits[-1] == 5
    assert waits == sorted(waits)


def test_what_cannot_be_read_is_unknown(machine: LocalMachine) -> None:
    for output in (Output(1, b"", "/s: Permission denied\n"), Output(124), Output(0, b"junk")):
        steps = watch_job(machine.context, None)
        next(steps)
        with pytest.raises(Unknown):
            steps.send(output)
    steps = watch_job(machine.context, None)
    with pytest.raises(OperationFailed, match="no job of this step was ever started"):
        steps.send(machine.perform(next(steps)))


@pytest.mark.parametrize("arrived", [True, False])
def test_a_start_whose_answer_was_lost_is_found_on_the_host(
    machine: LocalMachine, arrived: bool
) -> None:
    """The link broke between the start and its answer: only the host knows."""
    steps: Any = JOB.act(parsed(JOB, {"argv": ["sh", "-c", "sleep 0.3"]}), machine.context)
    output = None
    while True:
        action = next(steps) if output is None else steps.send(output)
        if isinstance(action, Command):
            break
        output = machine.perform(action)
    if arrived:
        machine.perform(action)
    action = steps.throw(Unreachable("here", "cut off"))
    assert isinstance(action, Progress) and "while it was started" in action.text
    output = Output(0)
    if not arrived:
        with pytest.raises(Unreachable, match="cut off"):
            machine.run(_resumed(steps, output))
        return
    assert "the job ended with exit 0" in machine.run(_resumed(steps, output))


def _resumed(steps: Any, output: Output) -> Any:
    """The rest of a generator that waits for an answer."""
    while True:
        try:
            action = steps.send(output)
        except StopIteration as stop:
            return stop.value
        output = yield action
