"""Watching a job to its end, through lost connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from deploy.operations.common import Steps, exit_words, last_lines, text_of
from deploy.operations.job_folder import JobState, job_state, probe
from deploy.operations.job_progress import Count, progress_script, read_progress, recorded
from deploy.shell import fields, quote
from runbooks.engine.fleet import Unreachable
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import Acting, OperationFailed, Progress, Wait
from runbooks.engine.model.probe import Output, Shell, Unknown
from runbooks.engine.model.values import show_duration

__all__ = ["Wanted", "look_patiently", "other_job", "since", "watch_job"]

# Seconds between two looks: short at first, for short jobs and for tests.
_FIRST, _LONGEST, _GROWTH = 0.1, 5.0, 1.5
# The same while there is no connection, and the time without one after which nobody waits on.
_FIRST_MISS, _LONGEST_MISS, _GROWTH_MISS = 1.0, 60.0, 2.0
_PATIENCE = 15 * 60
_LOG_LINES = 20


@dataclass(frozen=True)
class Wanted:
    """The job that a step asks for. Watching any other one is refused."""

    digest: str
    progress: Mapping[str, Any] | None
    resumable: bool


def watch_job(context: Context, wanted: Wanted | None, run: int | None = None) -> Acting:
    """Look and wait until the job has ended; a lost connection does not end it.

    Without `wanted` what the job's own record says is shown. Returns the outcome when it
    ended with 0 by itself; OperationFailed otherwise; Unreachable after a quarter of an hour
    without a connection.
    """
    pause = _FIRST
    progress = wanted.progress if wanted else None
    count: Count | None = None
    while True:
        script = probe(context.runbook, context.step, run) + progress_script(progress)
        output: Output = yield from look_patiently(context, script)
        if output.exit != 0:
            text_of(output, f"job {context.step}")
            raise Unknown(f"job {context.step}: {output.complaint}")
        # A log may hold any bytes.
        text = output.stdout.decode(errors="replace")
        state = job_state(text)
        if state.state == "none":
            raise OperationFailed("no job of this step was ever started here")
        if wanted and state.digest != wanted.digest:
            raise OperationFailed(other_job(state))
        run = state.run
        if state.state != "running":
            resumable = wanted.resumable if wanted else (state.meta or {}).get("resumable") is True
            return (yield from _ended(state, resumable, context))
        if wanted is None and progress != (told := recorded(state.meta)):
            progress = told
            continue
        of = progress.get("of") if progress else None
        shown, count = read_progress(state, fields(text), of, count)
        yield replace(shown, age=state.now - state.started if state.started else None)
        yield Wait(pause)
        pause = min(pause * _GROWTH, _LONGEST)


def other_job(state: JobState) -> str:
    """That the step has a job, but of another command."""
    verb = "lives" if state.state == "running" else "ran"
    return f"another job of this step {verb} ({since(state)}): {state.spec}"


def since(state: JobState) -> str:
    """`process 77, started 10m ago`."""
    age = show_duration(state.now - (state.started or state.now))
    return f"process {state.pid}, started {age} ago"


def look_patiently(context: Context, script: str) -> Steps:
    """The answer to a look, however often the connection has to be made anew."""
    pause, waited = _FIRST_MISS, 0.0
    while True:
        try:
            return (yield Shell(f"job {context.step}", script))
        except Unreachable as lost:
            if waited >= _PATIENCE:
                raise Unreachable(
                    lost.host,
                    f"{lost.reason}; no connection for {show_duration(waited)}. The job is its "
                    "host's and goes on there: run again to attach to it",
                ) from lost
            yield Progress(f"no connection ({lost.reason}); next look in {show_duration(pause)}")
            yield Wait(pause)
            waited += pause
            pause = min(pause * _GROWTH_MISS, _LONGEST_MISS)


def _ended(state: JobState, resumable: bool, context: Context) -> Acting:
    took = show_duration(
        (state.ended or state.log_time or state.now) - (state.started or state.now)
    )
    if state.exit == 0 and not state.cancelled:
        return f"the job ended with exit 0 after {took}"
    said = ""
    if state.log:
        output = yield Shell(
            f"job {context.step} log", f"tail -n {_LOG_LINES} -- {quote(state.log)}"
        )
        said = last_lines(output.stdout.decode(errors="replace"), _LOG_LINES)
    next_ = ""
    if state.exit is None:
        how = f"the job is lost: {state.reason}"
        next_ = "run again to start it from the beginning"
        if resumable:
            next_ = "run again to start it anew; it continues"
    else:
        how = f"the job ended with {exit_words(state.exit)} after {took}"
        how += f": {state.reason}" if state.reason else ""
    if state.log:
        how += f"; its log is {state.log}" + ("" if state.log_size else " (empty)")
    raise OperationFailed("\n".join(part for part in (how, said, next_) if part))
