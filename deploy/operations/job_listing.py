"""The jobs of a host: the newest of every step of every runbook, whoever started it."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Mapping

from deploy.operations.common import text_of
from deploy.operations.job_folder import FORBIDDEN, PROCESS, REPORT, JobState, job_state
from deploy.operations.job_progress import progress_script, read_progress, recorded
from deploy.shell import answers, fields, quote
from runbooks.engine.model.host import Context
from runbooks.engine.model.job import JobRecord, Progress
from runbooks.engine.model.probe import Output, Shell, Unknown

__all__ = ["list_jobs"]

# `job` lines part the answers; a folder that may not be read is `damaged`, never left out.
_LIST = (
    'j_jobs="${EAGLE3_STATE:?}"/jobs\n'
    + PROCESS
    + FORBIDDEN
    + REPORT
    + r"""if forbidden "$j_jobs"; then printf '%s\n' "$j_said" >&2; exit 1; fi
for j_runbook in "$j_jobs"/*/; do
  [ -d "$j_runbook" ] || continue
  if forbidden "$j_runbook"; then printf 'job\t%s\ndamaged\t%s\n' "$j_runbook" "$j_said"; continue; fi
  for j_folder in "$j_runbook"*/; do
    [ -d "$j_folder" ] || continue
    j_folder=${j_folder%/}
    printf 'job\t%s\n' "$j_folder"
    if forbidden "$j_folder"; then printf 'damaged\t%s\n' "$j_said"; continue; fi
    newest
    report
  done
done
exit 0
"""
)


def list_jobs(context: Context) -> Generator[Shell, Output, list[JobRecord]]:
    """The records, by runbook and step: one look at all folders, a second where any runs.

    Unknown, with the folder, when one of them cannot be read: it may be that of a live job.
    """
    output = yield Shell("jobs", _LIST)
    states: dict[str, JobState] = {}
    for folder, text in _parts(text_of(output, "jobs")).items():
        if reasons := answers(text, "damaged"):
            raise Unknown(f"the jobs of {context.host.name}: {reasons[0]}")
        try:
            state = job_state(text)
        except Unknown as unknown:
            raise Unknown(
                f"the job in {folder}: {unknown.reason}; look at it, and remove the folder "
                "when nothing of that job lives"
            ) from None
        if state.state != "none":
            states[folder] = state
    running = {folder: state for folder, state in states.items() if state.state == "running"}
    progress: dict[str, Progress] = {}
    if running:
        output = yield Shell("jobs progress", _progress_script(running))
        said = _parts(text_of(output, "jobs progress"))
        for folder, state in running.items():
            of = (recorded(state.meta) or {}).get("of")
            progress[folder], _ = read_progress(state, fields(said.get(folder, "")), of, None)
    records = [
        _record(folder, state, progress.get(folder), context) for folder, state in states.items()
    ]
    return sorted(records, key=lambda record: (record.runbook, record.step))


def _parts(text: str) -> dict[str, str]:
    """The answer of each folder."""
    parts: dict[str, str] = {}
    for part in f"\n{text}".split("\njob\t")[1:]:
        folder, _, rest = part.partition("\n")
        parts[folder] = rest + "\n"
    return parts


def _progress_script(running: Mapping[str, JobState]) -> str:
    return "".join(
        f"printf 'job\\t%s\\n' {quote(folder)}\nj_place={quote(f'{folder}/{state.run}')}\n"
        + progress_script(recorded(state.meta))
        for folder, state in running.items()
    )


def _record(folder: str, state: JobState, progress: Progress | None, context: Context) -> JobRecord:
    runbook, step = folder.rsplit("/", 2)[-2:]
    meta = state.meta or {}
    argv = meta.get("argv")
    damaged = "" if state.meta is not None else f"{folder}/{state.run}/meta.json cannot be read"
    return JobRecord(
        host=context.host.name,
        runbook=str(meta.get("runbook", runbook)),
        step=str(meta.get("step", step)),
        number=state.run,
        state=state.state,
        exit=state.exit,
        reason="; ".join(part for part in (state.reason, damaged) if part),
        command=shlex.join(map(str, argv)) if isinstance(argv, list) else state.spec,
        origin=state.origin,
        pid=state.pid if state.state == "running" else None,
        unit=state.unit,
        started=state.started,
        ended=state.ended,
        now=state.now,
        log=state.log,
        progress=progress,
    )
