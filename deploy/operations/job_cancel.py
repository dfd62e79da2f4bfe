"""Ending a job and all its processes: TERM, a wait, then KILL."""

from __future__ import annotations

from collections.abc import Generator

from deploy.operations.common import succeeded, text_of
from deploy.operations.job_folder import JobState, job_state, probe
from deploy.operations.job_members import kill_script, left_script, term_script
from deploy.shell import answers, fields, number
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import Acting, Command, OperationFailed, Progress, Wait
from runbooks.engine.model.probe import Output, Shell
from runbooks.engine.model.values import show_duration

__all__ = ["GRACE", "cancel_job"]

# Seconds from TERM to KILL.
GRACE = 30


def cancel_job(context: Context, grace: int = GRACE) -> Acting:
    """End the newest job of `context.step`; returns what became of it.

    Each phase is one Command, so that the engine journals and fences it. Who cancels is
    recorded before the first signal. OperationFailed when no job lives, or when some process
    could not be ended.
    """
    state = yield from _look(context)
    if state.state == "none":
        raise OperationFailed("no job lives: none of this step was ever started here")
    if state.state != "running":
        raise OperationFailed(f"no job lives: the last one is over ({state.how})")
    runbook, step, run = context.runbook, context.step, state.run
    output = yield Command(
        script=term_script(runbook, step, run, _who(context)), label=f"job cancel {step}: TERM"
    )
    if output.exit == 3:
        raise OperationFailed("no job lives: it ended by itself just now")
    sent = _sent(output, f"asking the job of {step} to end")
    left = yield from _left(context, run)
    waited = 0
    while left and waited < grace:
        yield Progress(
            f"TERM was sent to {_processes(sent)}; {_processes(len(left))} left, "
            f"KILL in {show_duration(grace - waited)}"
        )
        yield Wait(1)
        waited += 1
        left = yield from _left(context, run)
    if left:
        output = yield Command(
            script=kill_script(runbook, step, run), label=f"job cancel {step}: KILL"
        )
        sent = _sent(output, f"killing the job of {step}")
        left = yield from _left(context, run)
        for _ in range(10):
            if not left:
                break
            yield Wait(1)
            left = yield from _left(context, run)
    state = yield from _look(context, run)
    if left:
        named = ", ".join(f"{pid} (state {mark})" for pid, mark in left)
        raise OperationFailed(
            f"the job was cancelled, but {_processes(len(left))} could not be ended: {named}\n"
            f"look at them on {context.host.name}; one in state D waits for a device or disk"
        )
    return f"the job is cancelled after {show_duration(waited)}: {state.how}"


def _look(context: Context, run: int | None = None) -> Generator[Shell, Output, JobState]:
    label = f"job {context.step}"
    output = yield Shell(label, probe(context.runbook, context.step, run))
    return job_state(text_of(output, label))


def _left(context: Context, run: int) -> Generator[Shell, Output, list[tuple[str, str]]]:
    """Pid and state of every living process of the job; Unknown where that cannot be seen."""
    label = f"job {context.step} processes"
    output = yield Shell(label, left_script(context.runbook, context.step, run))
    words = fields(text_of(output, label)).get("left", "").split()
    return [(word.split(":")[0], word.rsplit(":", 1)[1]) for word in words]


def _sent(output: Output, what: str) -> int:
    """How many processes were signalled; OperationFailed where one may not be."""
    text = succeeded(output, what).text
    if refused := answers(text, "refused"):
        raise OperationFailed(f"{what}: process {'; process '.join(refused)}")
    return number(fields(text).get("sent"), f"{what}: the answer")


def _who(context: Context) -> str:
    """`alice`, on one line; nobody is named where no run acts."""
    return " ".join(context.origin.operator.split()) if context.origin else "an operator"


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count:,} processes"
