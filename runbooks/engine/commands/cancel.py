"""End a job and all its processes: TERM, a wait, then KILL. Recorded as a run of its own."""

from __future__ import annotations

import argparse
import socket
import threading
import time
from pathlib import Path

from runbooks.engine.adapter.inventory import make_fleet
from runbooks.engine.commands.asking import confirmed
from runbooks.engine.commands.opening import runs_folder
from runbooks.engine.commands.words import Words
from runbooks.engine.fleet import Unreachable
from runbooks.engine.jobs import jobs_on
from runbooks.engine.lock.owner import operator
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError
from runbooks.engine.model.host import Origin
from runbooks.engine.model.operation import OperationFailed
from runbooks.engine.model.probe import Unknown
from runbooks.engine.registry import installed
from runbooks.engine.run.cancelling import cancel_job
from runbooks.engine.run.event import Bus
from runbooks.engine.run.journal import Journal, new_run_id
from runbooks.engine.run.watching import JobName, find_job
from runbooks.engine.view.job import job_line
from runbooks.engine.view.text import printable

ABOUT = "end a job and all its processes"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="RUN/STEP[@HOST]", help="a run's id, or a runbook's name")
    parser.add_argument("--inventory", "-i", default="inventory", help="default: %(default)s")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 when the job has ended by this, 6 when it did not, or was not alive."""
    name = JobName.parse(arguments.job)
    fleet = make_fleet(arguments.inventory)
    registry = installed()
    asked = [name.host] if name.host else list(fleet.hosts)
    fleet.connect(asked)
    job = find_job(name, jobs_on(registry, fleet, Path.cwd(), asked))
    words = Words(registry, fleet, Path.cwd())
    print(printable(f"{job.host}  {job_line(words.job(job))}"))
    question = f"End {job.runbook}/{job.step} on {job.host}?"
    if job.alive and not arguments.yes and not confirmed(question, "cancel"):
        return ExitCode.APPROVAL
    origin = Origin(new_run_id(time.time()), operator(), socket.gethostname())
    journal = Journal(runs_folder(Path.cwd()) / origin.run)
    bus = Bus([])
    bus.record_to(journal)
    try:
        said = cancel_job(job, origin, registry, fleet, bus, threading.Event(), Path.cwd())
    except (OperationFailed, Unknown, Unreachable) as error:
        code = ExitCode.UNREACHABLE if isinstance(error, Unreachable) else ExitCode.FAILED
        said = words.text(job.runbook, str(error))
        raise RunbookError(Diagnostic(said, where=f"{job.step}@{job.host}", code=code)) from None
    finally:
        journal.close()
    print(printable(words.text(job.runbook, said)))
    return ExitCode.DONE
