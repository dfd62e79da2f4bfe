"""Cancels one job, by whoever asks, with a journal of its own.

No lock is asked for: a live job keeps the lock of its run, and ending it is what another
operator may do.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path

from runbooks.engine.fleet import Fleet
from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.model.host import Origin
from runbooks.engine.model.job import JobRecord
from runbooks.engine.model.operation import Command, Delegate, Put
from runbooks.engine.model.probe import Output
from runbooks.engine.registry import Registry
from runbooks.engine.run.acting import Performer
from runbooks.engine.run.event import Bus
from runbooks.engine.run.outcome import Result
from runbooks.engine.run.watching import context_of, operation_of

__all__ = ["cancel_job"]


@dataclass
class _Unlocked:
    """Changes a host without a lock."""

    fleet: Fleet

    def hold(self, host: str) -> None: ...

    def perform(self, host: str, action: Command | Put | Delegate) -> Output:
        return self.fleet.perform(host, action)


def cancel_job(
    job: JobRecord,
    origin: Origin,
    registry: Registry,
    fleet: Fleet,
    bus: Bus,
    leave: threading.Event,
    project: Path,
) -> str:
    """End the job; what came of it, in words. Raises OperationFailed, Unknown, Unreachable."""
    operation = operation_of(registry, job)
    context = replace(context_of(job, fleet, project), origin=origin)
    bus.emit(
        "run",
        run=origin.run,
        runbook=job.runbook,
        operator=origin.operator,
        controller=origin.controller,
        door="cancel",
        hosts=[job.host],
    )
    performer = Performer(
        fleet=fleet,
        changer=_Unlocked(fleet),
        bus=bus,
        step=job.step,
        host=job.host,
        intent={"operation": operation.name, "summary": f"cancel the job {job.number}"},
        leave=leave,
    )
    result, reason, code = Result.FAILED, "", ExitCode.FAILED
    try:
        reason = performer.perform(operation.cancel(context))
        result, code = Result.RAN, ExitCode.DONE
    except Exception as error:
        reason = str(error)
        raise
    finally:
        bus.emit(
            "outcome",
            step=job.step,
            host=job.host,
            result=result.value,
            reason=reason,
            acted=performer.acted,
        )
        bus.emit("end", run=origin.run, exit=int(code))
    return reason
