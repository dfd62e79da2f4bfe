"""Long work that belongs to the host."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from deploy.operations.arguments import JobProgress
from deploy.operations.common import (
    exit_words,
    expand,
    last_lines,
    option,
    shown_environment,
    succeeded,
    text_of,
)
from deploy.operations.job_folder import JobState, job_state, probe, spec_digest, start_script
from deploy.shell import fields, quote
from runbooks.engine.fleet import Unreachable
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import (
    Acting,
    Command,
    Operation,
    OperationFailed,
    Preview,
    Previewing,
    Progress,
    Wait,
)
from runbooks.engine.model.probe import Output, Shell, Unknown
from runbooks.engine.model.values import (
    Boolean,
    HostPath,
    ListOf,
    MapOf,
    Text,
    show_duration,
    split_root,
)

# Seconds between two looks: short at first, for short jobs and for tests.
_FIRST, _LONGEST, _GROWTH = 0.1, 5.0, 1.5
# Looks in a row that find no connection, before the controller stops waiting.
_PATIENCE = 30
_LOG_LINES = 20


@dataclass
class _Count:
    """What the attached controller saw of a counted progress: for a rate and a beat."""

    begun: float
    first: float
    moved: float
    done: float


class Job(Operation):
    """`job: {argv: [eagle3, extract, …], resumable: true, progress: {file: …}}`.

    The program runs in a session of its own under a small supervisor (`job_folder`), so it
    outlives the controller, the connection and Ctrl-C; the next run finds it and attaches.
    Ansible's `async` and pyinfra's `nohup` idioms have no claim against a second start and
    take a pid for an identity (jhuckaby/Cronicle#789, ansible/ansible#25637).
    """

    name = "job"
    about = "Start a long program that belongs to the host, or attach to it, and wait for its end."
    long = True
    symbol = ">"
    arguments: ClassVar[Mapping[str, Argument]] = {
        "argv": Argument(
            ListOf(Text(empty=True)),
            "The program and its arguments; a whole token root:path becomes the host's path.",
            required=True,
        ),
        "env": Argument(MapOf(Text(empty=True)), "Environment variables; the place for secrets."),
        "cwd": Argument(HostPath(), "The folder to run in; the login folder by default."),
        "resumable": Argument(
            Boolean(), "Whether a fresh start continues where the last one ended.", default=False
        ),
        "progress": Argument(
            JobProgress(), "Where to read the progress: {file: PATH} or {count: PATTERN, of: N}."
        ),
    }

    def preview(self, args: Mapping[str, Any], context: Context) -> Previewing:
        """The command line, and what became of the last job of this step."""
        state = yield from self._state(context)
        argv, cwd = self._command(args, context)
        words = [
            shown_environment(args.get("env")),
            *map(quote, argv),
            *(["in", cwd] if cwd else []),
        ]
        line = " ".join(word for word in words if word)
        if state.state == "running":
            if state.digest != spec_digest(argv, cwd):
                raise OperationFailed(self._other(state))
            return Preview(summary=f"attach to {_since(state)}: {line}")
        last = ""
        if state.state == "lost" or state.exit:
            how = f"exit {state.exit}" if state.state == "ended" else state.reason
            next_ = "continues" if option(self, args, "resumable") else "begins anew"
            last = f" (the last one: {how}; this one {next_})"
        return Preview(summary=f"start {line}{last}")

    def act(self, args: Mapping[str, Any], context: Context) -> Acting:
        """Start it unless it lives, and wait for its end."""
        argv, cwd = self._command(args, context)
        state = yield from self._state(context)
        if state.state == "running":
            return (yield from self._follow(args, context, state.run))
        output = yield Command(
            script=start_script(context.runbook, context.step, argv, cwd),
            env=dict(args.get("env") or {}),
            cwd=cwd,
            label=f"job start {argv[0]}",
        )
        succeeded(output, f"starting {argv[0]}")
        try:
            run = int(fields(output.text)["run"])
        except (KeyError, ValueError):
            raise Unknown(f"starting {argv[0]}: unreadable answer {output.text!r}") from None
        return (yield from self._follow(args, context, run))

    def attach(self, args: Mapping[str, Any], context: Context) -> Acting | None:
        """Wait for the newest job of this step."""
        return self._follow(args, context, None)

    def alive(self, args: Mapping[str, Any], context: Context) -> Generator[Shell, Output, bool]:
        """Whether a job of this step lives, whatever its argv; raises Unknown."""
        return (yield from self._state(context)).state == "running"

    def _command(
        self, args: Mapping[str, Any], context: Context
    ) -> tuple[tuple[str, ...], str | None]:
        cwd = context.host.resolve(args["cwd"]) if args.get("cwd") else None
        return expand(args["argv"], context), cwd

    def _state(self, context: Context) -> Generator[Shell, Output, JobState]:
        label = f"job {context.step}"
        output = yield Shell(label, probe(context.runbook, context.step))
        return job_state(text_of(output, label))

    @staticmethod
    def _other(state: JobState) -> str:
        verb = "lives" if state.state == "running" else "ran"
        return f"another job of this step {verb} ({_since(state)}): {state.spec}"

    def _follow(self, args: Mapping[str, Any], context: Context, run: int | None) -> Acting:
        """Look and wait until the job has ended; a lost connection does not end it."""
        digest = spec_digest(*self._command(args, context))
        pause, misses = _FIRST, 0
        count: _Count | None = None
        while True:
            script = probe(context.runbook, context.step, run) + _more(args, context)
            try:
                output = yield Shell(f"job {context.step}", script)
                misses = 0
            except Unreachable as lost:
                misses += 1
                if misses > _PATIENCE:
                    raise
                yield Progress(f"no connection ({lost.reason}); the job is its host's")
                yield Wait(_LONGEST)
                continue
            if output.exit != 0:
                raise Unknown(f"job {context.step}: {output.complaint}")
            text = output.stdout.decode(errors="replace")
            state = job_state(text)
            if state.state == "none":
                raise OperationFailed("no job of this step was ever started here")
            if state.digest != digest:
                raise OperationFailed(self._other(state))
            run = state.run
            progress, count = _progress(state, fields(text), args, count)
            if state.state != "running":
                return (yield from self._ended(state, args, context))
            yield progress
            yield Wait(pause)
            pause = min(pause * _GROWTH, _LONGEST)

    def _ended(self, state: JobState, args: Mapping[str, Any], context: Context) -> Acting:
        took = show_duration(
            (state.ended or state.log_time or state.now) - (state.started or state.now)
        )
        if state.exit == 0:
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
            if option(self, args, "resumable"):
                next_ = "run again to start it anew; it continues"
        else:
            how = f"the job ended with {exit_words(state.exit)} after {took}"
        if state.log:
            how += f"; its log is {state.log}" + ("" if state.log_size else " (empty)")
        raise OperationFailed("\n".join(part for part in (how, said, next_) if part))


def _since(state: JobState) -> str:
    age = show_duration(state.now - (state.started or state.now))
    return f"process {state.pid}, started {age} ago"


def _more(args: Mapping[str, Any], context: Context) -> str:
    """Beside the state: the log's last line and the progress, in the same round trip."""
    script = r"""if [ -e "$j_run/log" ]; then
  printf 'said\t%s\n' "$(tail -c 2000 "$j_run/log" | tr '\r\t' '\n ' | sed -n '/./h;${x;p;}')"
fi
"""
    progress = args.get("progress") or {}
    if "file" in progress:
        file = quote(context.host.resolve(progress["file"]))
        script += (
            f"if [ -r {file} ]; then\n"
            f"  printf 'moved\\t%s\\n' \"$(stat -c %Y {file})\"\n"
            # The run's spec is written right before its program begins.
            f"  if [ \"$j_run/spec\" -nt {file} ]; then printf 'stale\\tyes\\n'; fi\n"
            f"  printf 'progress\\t%s\\n' \"$(head -c 65536 {file} | tr '\\n\\t' '  ')\"\nfi\n"
        )
    elif "count" in progress:
        script += f"set -- {_pattern(progress['count'], context)}\n"
        script += '[ -e "$1" ] || [ -L "$1" ] || shift\n'
        script += "printf 'count\\t%s\\n' \"$#\"\n"
    return script + "exit 0\n"


def _pattern(text: str, context: Context) -> str:
    """A shell word in which only `*` and `?` of the pattern's own part are special."""
    parts = split_root(text)
    base, rest = (context.host.resolve(f"{parts[0]}:") + "/", parts[1]) if parts else ("", text)
    word = quote(base) if base else ""
    literal = ""
    for character in rest + "\0":
        if character not in "*?\0":
            literal += character
            continue
        word += (quote(literal) if literal else "") + character.strip("\0")
        literal = ""
    return word


def _progress(
    state: JobState, found: Mapping[str, str], args: Mapping[str, Any], count: _Count | None
) -> tuple[Progress, _Count | None]:
    said = found.get("said", "").strip()
    beat = state.now - state.log_time if state.log_time is not None else None
    if "count" in found and found["count"].isdigit():
        counted, wanted = float(found["count"]), float(args["progress"]["of"])
        if count is None:
            count = _Count(state.now, counted, state.now, counted)
        if counted != count.done:
            count.done, count.moved = counted, state.now
        rate = (counted - count.first) / (state.now - count.begun) if state.now > count.begun else 0
        eta = (wanted - counted) / rate if rate > 0 else None
        beat = state.now - count.moved
        return Progress(said, counted, wanted, "files", eta=eta, beat=max(0.0, beat)), count
    if "progress" in found and not _of_another_run(state, found):
        written = _read_progress(found["progress"])
        try:
            beat = state.now - float(found.get("moved", "nan"))
        except ValueError:
            beat = None
        done, total = _number(written.get("done")), _number(written.get("total"))
        unit = str(written.get("unit") or "")
        text = str(written.get("text") or written.get("stage") or said)
        if done is not None and total is not None:
            text = _rate(_number(written.get("rate")), unit)  # the rest would say them again
        return (
            Progress(
                text,
                done,
                total,
                unit,
                eta=_number(written.get("eta_s")),
                beat=max(0.0, beat) if beat is not None and math.isfinite(beat) else None,
            ),
            count,
        )
    return Progress(said, beat=max(0.0, beat) if beat is not None else None), count


def _of_another_run(state: JobState, found: Mapping[str, str]) -> bool:
    """Whether the progress file is older than the run: one that was resumed has not written yet."""
    moved = found.get("moved", "")
    older = moved.isdigit() and state.started is not None and int(moved) < int(state.started)
    return older or found.get("stale") == "yes"


def _rate(rate: float | None, unit: str) -> str:
    """`238 tokens/s`, or nothing."""
    if rate is None or rate <= 0:
        return ""
    shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
    return f"{shown} {unit}/s" if unit else f"{shown}/s"


def _read_progress(text: str) -> Mapping[str, Any]:
    """The job's progress file; a damaged one is no reason to stop waiting."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)
