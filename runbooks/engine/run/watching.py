"""Finds jobs by name on the hosts of a fleet, and watches one to its end; changes nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runbooks.engine.fleet import Fleet, Unreachable
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError, did_you_mean
from runbooks.engine.model.host import Context
from runbooks.engine.model.job import JobRecord, Progress
from runbooks.engine.model.operation import Acting, Operation, Wait
from runbooks.engine.model.probe import Output, Shell
from runbooks.engine.registry import Registry
from runbooks.engine.run.acting import Interrupted

__all__ = ["JobName", "context_of", "find_job", "operation_of", "watch"]


@dataclass(frozen=True, slots=True)
class JobName:
    """`RUN/STEP` or `RUN/STEP@HOST`, where RUN is a runbook's name or (the begin of) a run's id."""

    run: str
    step: str
    host: str | None = None

    @classmethod
    def parse(cls, text: str) -> JobName:
        """RunbookError (usage) for anything else."""
        name, _, host = text.partition("@")
        run, slash, step = name.partition("/")
        if not slash or not run or not step:
            raise RunbookError.usage(
                f"{text!r} names no job", hint="write RUN/STEP or RUNBOOK/STEP: extract/extract"
            )
        return cls(run, step, host or None)

    def __str__(self) -> str:
        return f"{self.run}/{self.step}" + (f"@{self.host}" if self.host else "")

    def means(self, job: JobRecord) -> bool:
        runs = job.runbook == self.run or (
            job.origin is not None and job.origin.run.startswith(self.run)
        )
        return runs and job.step == self.step and self.host in (None, job.host)


def find_job(name: JobName, jobs: Mapping[str, Sequence[JobRecord] | str]) -> JobRecord:
    """The one job of that name; RunbookError says which there are, or which hosts are silent."""
    known = [job for found in jobs.values() if not isinstance(found, str) for job in found]
    silent = {host: found for host, found in jobs.items() if isinstance(found, str)}
    meant = [job for job in known if name.means(job)]
    living = [job for job in meant if job.alive]
    if len(meant) > 1 and len(living) == 1:
        meant = living
    if len(meant) == 1:
        return meant[0]
    if meant:
        hosts = " ".join(f"{name.run}/{name.step}@{job.host}" for job in meant)
        raise RunbookError.usage(f"{name} is on several hosts", hint=f"name one: {hosts}")
    if silent:
        why = "; ".join(f"{host}: {reason}" for host, reason in silent.items())
        raise RunbookError(
            Diagnostic(
                f"no job {name} on the hosts that answer",
                where=", ".join(silent),
                hint=f"not known of {why}",
                code=ExitCode.UNREACHABLE,
            )
        )
    names = sorted({f"{job.runbook}/{job.step}" for job in known})
    raise RunbookError.usage(
        f"no host has a job {name}",
        hint=did_you_mean(f"{name.run}/{name.step}", names) or "runbook status lists jobs",
    )


def operation_of(registry: Registry, job: JobRecord) -> Operation:
    """The long operation that tells of this job."""
    for operation in registry.operations.values():
        if operation.long and operation.name == job.operation:
            return operation
    raise RunbookError.usage(f"no installed operation '{job.operation}' could watch this job")


def context_of(job: JobRecord, fleet: Fleet, project: Path) -> Context:
    """Where the job is, for the operation that follows or cancels it."""
    return Context(fleet.hosts[job.host], fleet.hosts, project, job.runbook, job.step)


def watch(
    acting: Acting,
    fleet: Fleet,
    host: str,
    show: Callable[[Progress], None],
    leave: threading.Event,
) -> str:
    """Follow to the end and return its words; Interrupted once `leave` is set.

    Raises OperationFailed, Unknown, Unreachable.
    """
    output: Output | None = None
    error: Unreachable | None = None
    while True:
        try:
            if error is not None:
                action = acting.throw(error)
            else:
                action = next(acting) if output is None else acting.send(output)
        except StopIteration as stop:
            return str(stop.value or "")
        output, error = Output(0), None
        match action:
            case Shell():
                answer = fleet.ask([(action.host or host, action)])[0]
                if isinstance(answer, Unreachable):
                    error = answer
                else:
                    output = answer
            case Progress():
                show(action)
            case Wait():
                end = time.monotonic() + action.seconds
                while (left := end - time.monotonic()) > 0:
                    if leave.is_set():
                        raise Interrupted
                    time.sleep(min(left, 0.25))
            case _:
                raise TypeError(f"following a job changes nothing, yet it wants {action}")
