"""Long work that belongs to the host."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar

from deploy.operations.arguments import JobProgress
from deploy.operations.common import expand, option, shown_environment, succeeded, text_of
from deploy.operations.job_cancel import cancel_job
from deploy.operations.job_folder import JobState, job_state, probe, spec_digest
from deploy.operations.job_listing import list_jobs
from deploy.operations.job_progress import resolved
from deploy.operations.job_start import meta_of, start_script
from deploy.operations.job_watch import (
    Wanted,
    look_patiently,
    other_job,
    since,
    watch_job,
)
from deploy.shell import fields, quote
from runbooks.engine.fleet import Unreachable
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.host import Context
from runbooks.engine.model.job import JobRecord
from runbooks.engine.model.operation import (
    Acting,
    Command,
    Operation,
    OperationFailed,
    Preview,
    Previewing,
    Progress,
)
from runbooks.engine.model.probe import Output, Shell, Unknown
from runbooks.engine.model.values import Boolean, HostPath, ListOf, MapOf, Text


class Job(Operation):
    """`job: {argv: [eagle3, extract, …], resumable: true, progress: {file: …}}`.

    The program runs under a small supervisor (`job_start`), so it outlives the controller, the
    connection and Ctrl-C; the next run finds it and attaches. Ansible's `async` and pyinfra's
    `nohup` idioms have no claim against a second start and take a pid for an identity
    (jhuckaby/Cronicle#789, ansible/ansible#25637).
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
                raise OperationFailed(other_job(state))
            return Preview(summary=f"attach to {since(state)}: {line}")
        last = ""
        if state.state == "lost" or state.exit or state.cancelled:
            next_ = "continues" if option(self, args, "resumable") else "begins anew"
            last = f" (the last one: {state.how}; this one {next_})"
        return Preview(summary=f"start {line}{last}")

    def act(self, args: Mapping[str, Any], context: Context) -> Acting:
        """Start it unless it lives, and wait for its end."""
        argv, cwd = self._command(args, context)
        wanted = self._wanted(args, context)
        state = yield from self._state(context)
        if state.state == "running":
            return (yield from watch_job(context, wanted, state.run))
        meta = meta_of(context, argv, cwd, resumable=wanted.resumable, progress=wanted.progress)
        start = Command(
            script=start_script(context.runbook, context.step, argv, cwd, meta),
            env=dict(args.get("env") or {}),
            cwd=cwd,
            label=f"job start {argv[0]}",
        )
        try:
            output = yield start
        except Unreachable as lost:
            # Whether the start came through only the host knows.
            yield Progress(f"no connection ({lost.reason}) while it was started; looking again")
            script = probe(context.runbook, context.step)
            found = yield from look_patiently(context, script)
            now = job_state(text_of(found, f"job {context.step}"))
            if now.run == state.run:
                raise
            return (yield from watch_job(context, wanted, now.run))
        succeeded(output, f"starting {argv[0]}")
        said = fields(output.text)
        try:
            run = int(said["run"])
        except (KeyError, ValueError):
            raise Unknown(f"starting {argv[0]}: unreadable answer {output.text!r}") from None
        note = said.get("note", "")
        if not note:
            return (yield from watch_job(context, wanted, run))
        note = f"it has no unit of its own, but a session: {note}"
        yield Progress(f"the job runs; {note}")
        try:
            outcome = yield from watch_job(context, wanted, run)
        except OperationFailed as failed:
            raise OperationFailed(f"{failed}\n{note}") from None
        return f"{outcome} ({note})"

    def attach(self, args: Mapping[str, Any], context: Context) -> Acting | None:
        """Wait for the newest job of this step."""
        return watch_job(context, self._wanted(args, context))

    def alive(self, args: Mapping[str, Any], context: Context) -> Generator[Shell, Output, bool]:
        """Whether a job of this step lives, whatever its argv; raises Unknown."""
        return (yield from self._state(context)).state == "running"

    def jobs(self, context: Context) -> Generator[Shell, Output, Sequence[JobRecord]]:
        """The newest job of every step on the host; Unknown where one cannot be read."""
        return (yield from list_jobs(context))

    def follow(self, context: Context) -> Acting:
        """Wait for the newest job of this step, whatever its argv; changes nothing."""
        return watch_job(context, None)

    def cancel(self, context: Context) -> Acting:
        """End the newest job of this step with all its processes."""
        return cancel_job(context)

    def _command(
        self, args: Mapping[str, Any], context: Context
    ) -> tuple[tuple[str, ...], str | None]:
        cwd = context.host.resolve(args["cwd"]) if args.get("cwd") else None
        return expand(args["argv"], context), cwd

    def _wanted(self, args: Mapping[str, Any], context: Context) -> Wanted:
        return Wanted(
            digest=spec_digest(*self._command(args, context)),
            progress=resolved(args.get("progress"), context.host),
            resumable=option(self, args, "resumable"),
        )

    def _state(self, context: Context) -> Generator[Shell, Output, JobState]:
        label = f"job {context.step}"
        output = yield Shell(label, probe(context.runbook, context.step))
        return job_state(text_of(output, label))
