"""What a run does at its begin, once it holds its locks, and at its end, before it gives them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from runbooks.engine.history.finding import unfinished
from runbooks.engine.model.operation import Command
from runbooks.engine.model.probe import Output
from runbooks.engine.plan.checkpoint import compact_script, read_script
from runbooks.engine.plan.survey import Survey, Unit
from runbooks.engine.run.change import Changer
from runbooks.engine.run.event import Bus
from runbooks.engine.run.outcome import Outcome, Result

__all__ = ["compact_checkpoints", "left_behind", "name_interrupted"]

# Bytes of checkpoints from which on older ones are cleared away.
_MANY = 256 << 10
# How a step with a job may end while the job lives.
_UNFINISHED = frozenset(
    {
        Result.UNKNOWN,
        Result.BUG,
        Result.FAILED,
        Result.TIMEOUT,
        Result.UNREACHABLE,
        Result.LOCKED,
        Result.INTERRUPTED,
    }
)


def name_interrupted(runs: Path, runbook: str, run: str, bus: Bus) -> None:
    """Say which steps the run before began and did not end; the world decides on them."""
    for one in unfinished(runs, runbook, but=run):
        bus.emit(
            "note",
            step=one.step,
            host=one.host,
            text=f"interrupted: run {one.run} had begun {one.operation} and did not record how"
            " that ended; the world is read again",
            interrupted=one.run,
        )


def compact_checkpoints(changer: Changer, runbook: str) -> None:
    """Leave of the hosts' checkpoints the newest, once there are many runs of them."""
    hosts = sorted(changer.keeper.held)
    outputs = changer.fleet.ask([(host, read_script(runbook)) for host in hosts])
    for host, output in zip(hosts, outputs, strict=True):
        if isinstance(output, Output) and len(output.stdout) > _MANY:
            text = output.stdout.decode(errors="replace")
            script = compact_script(runbook, text)
            changer.perform(host, Command(script=script, label="compact checkpoints"))


def left_behind(
    survey: Survey, outcomes: Mapping[Unit, Outcome], protects: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Hosts whose lock stays with a job that lives, or may live: why."""
    steps = survey.runbook.steps
    units = [
        (steps[step], host)
        for (step, host), outcome in outcomes.items()
        if step in steps and outcome.result in _UNFINISHED
    ]
    left: dict[str, str] = {}
    for (step, host), answer in survey.alive(units).items():
        if answer.value or not answer.known:
            why = "lives" if answer.value else f"may live ({answer.unknown})"
            for locked, hosts in protects.items():
                if host in hosts:
                    left.setdefault(locked, f"the job of {step} on {host} {why}")
    return left
