"""Watch a job to its end, whoever began it; nothing is changed, and leaving ends nothing."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

from runbooks.engine.adapter.inventory import make_fleet
from runbooks.engine.adapter.runtime import on_interrupts
from runbooks.engine.commands.words import Words
from runbooks.engine.fleet import Unreachable
from runbooks.engine.jobs import jobs_on
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError
from runbooks.engine.model.job import Progress
from runbooks.engine.model.operation import OperationFailed
from runbooks.engine.model.probe import Unknown
from runbooks.engine.registry import installed
from runbooks.engine.run.acting import Interrupted
from runbooks.engine.run.watching import JobName, context_of, find_job, operation_of, watch
from runbooks.engine.view.job import job_line
from runbooks.engine.view.progress import ProgressLine
from runbooks.engine.view.text import make_console, printable

ABOUT = "watch a job to its end, whoever began it"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="RUN/STEP[@HOST]", help="a run's id, or a runbook's name")
    parser.add_argument("--inventory", "-i", default="inventory", help="default: %(default)s")


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 when the job ended well, 6 when it failed or is lost, 130 when left."""
    name = JobName.parse(arguments.job)
    fleet = make_fleet(arguments.inventory)
    fleet.read_only(True)
    registry = installed()
    fleet.connect([name.host] if name.host else list(fleet.hosts))
    asked = [name.host] if name.host else list(fleet.hosts)
    job = find_job(name, jobs_on(registry, fleet, Path.cwd(), asked))
    words = Words(registry, fleet, Path.cwd())
    console = make_console()
    console.print(printable(f"{job.host}  {job_line(words.job(job))}"))
    leave = threading.Event()
    on_interrupts(leave.set)
    line = ProgressLine(console)
    following = operation_of(registry, job).follow(context_of(job, fleet, Path.cwd()))

    def show(progress: Progress) -> None:
        shown = words.progress(job.runbook, progress)
        line.show(f"{job.runbook}/{job.step}", job.host, shown)

    try:
        said = watch(following, fleet, job.host, show, leave)
    except Interrupted:
        print("left; the job goes on, on its host", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except (OperationFailed, Unknown, Unreachable) as error:
        code = ExitCode.UNREACHABLE if isinstance(error, Unreachable) else ExitCode.FAILED
        said = words.text(job.runbook, str(error))
        raise RunbookError(Diagnostic(said, where=f"{name.step}@{job.host}", code=code)) from None
    finally:
        line.end()
    console.print(printable(words.text(job.runbook, said)))
    return ExitCode.DONE
