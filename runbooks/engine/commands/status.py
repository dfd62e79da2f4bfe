"""What goes on on the hosts now: locks with their owners, jobs with their progress."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text

from runbooks.engine.adapter.inventory import make_fleet, select_hosts
from runbooks.engine.commands.words import Words
from runbooks.engine.jobs import jobs_on
from runbooks.engine.lock.keeper import read_locks
from runbooks.engine.lock.script import LockState
from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.model.job import JobRecord
from runbooks.engine.registry import installed
from runbooks.engine.run.event import SCHEMA_VERSION
from runbooks.engine.view.job import job_line
from runbooks.engine.view.json_lines import JsonLines
from runbooks.engine.view.text import make_console, printable

ABOUT = "show locks, and jobs with their progress, on the hosts now"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("hosts", nargs="*", metavar="HOST", help="hosts or groups; default: all")
    parser.add_argument("--inventory", "-i", default="inventory", help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="one host a line on standard output")


def run(arguments: argparse.Namespace) -> int:
    """Exit 4 where a host does not answer, 6 where something cannot be known."""
    fleet = make_fleet(arguments.inventory)
    fleet.read_only(True)
    chosen = select_hosts(fleet.hosts, arguments.hosts) if arguments.hosts else set(fleet.hosts)
    hosts = [host for host in fleet.hosts if host in chosen]
    down = fleet.connect(hosts)
    up = [host for host in hosts if host not in down]
    locks = read_locks(fleet, up)
    registry = installed()
    words = Words(registry, fleet, Path.cwd())
    jobs = words.jobs(jobs_on(registry, fleet, Path.cwd(), up))
    console = make_console()
    stream = JsonLines(sys.stdout)
    codes = {ExitCode.DONE}
    for host in hosts:
        if host in down:
            codes.add(ExitCode.UNREACHABLE)
        elif isinstance(locks[host], str) or isinstance(jobs[host], str):
            codes.add(ExitCode.FAILED)
        if arguments.json:
            stream.take(_record(host, down.get(host), locks.get(host), jobs.get(host)))
            continue
        head = Text(f"{host:<{max(map(len, hosts))}}  ", style="bold")
        head.append(_lock_text(down.get(host), locks.get(host)), style="")
        console.print(head)
        for line in _job_lines(jobs.get(host, ())):
            console.print(Text(printable(f"  {line}")))
    return ExitCode.worst(codes)


def _lock_text(down: str | None, lock: LockState | str | None) -> str:
    if down is not None:
        return f"unreachable: {down}"
    if not isinstance(lock, LockState):
        return f"lock unknown: {lock}"
    if lock.free:
        return "free"
    who = lock.owner.describe(time.time()) if lock.owner else "by an owner that cannot be read"
    if lock.ended == "left":
        return f"kept by a job of a run that has ended, locked {who}"
    gone = lock.owner.death() if lock.owner else None
    return f"locked {who}" + (f"; {gone}, so the next run takes it over" if gone else "")


def _job_lines(jobs: Sequence[JobRecord] | str) -> list[str]:
    if isinstance(jobs, str):
        return [f"? jobs unknown: {jobs}"]
    lines = []
    for job in sorted(jobs, key=lambda job: (not job.alive, -(job.started or 0))):
        sign = ">" if job.alive else ("=" if job.exit == 0 else "!")
        attach = f"  attach: runbook attach {job.runbook}/{job.step}" if job.alive else ""
        lines.append(f"{sign} {job_line(job)}{attach}")
    return lines


def _record(
    host: str,
    down: str | None,
    lock: LockState | str | None,
    jobs: Sequence[JobRecord] | str | None,
) -> dict[str, Any]:
    record: dict[str, Any] = {"v": SCHEMA_VERSION, "event": "status", "host": host}
    if down is not None:
        return record | {"unreachable": down}
    if isinstance(lock, LockState):
        record["lock"] = None if lock.free else asdict(lock)
    else:
        record["lock_unknown"] = lock
    if isinstance(jobs, str):
        record["jobs_unknown"] = jobs
    else:
        record["jobs"] = [asdict(job) for job in jobs or ()]
    return record
