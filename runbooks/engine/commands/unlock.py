"""Release the lock of a run that is known to be over; its controller can change nothing more."""

from __future__ import annotations

import argparse
import socket
import time
from pathlib import Path

from runbooks.engine.adapter.inventory import make_fleet, select_hosts
from runbooks.engine.commands.asking import confirmed
from runbooks.engine.commands.words import Words
from runbooks.engine.fleet import Fleet, Unreachable
from runbooks.engine.jobs import jobs_on
from runbooks.engine.lock.keeper import read_locks
from runbooks.engine.lock.owner import operator
from runbooks.engine.lock.script import LockState, release_script
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError
from runbooks.engine.model.operation import Command
from runbooks.engine.registry import installed
from runbooks.engine.view.job import job_line
from runbooks.engine.view.text import printable

ABOUT = "release the lock of a run that is known to be over"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("hosts", nargs="+", metavar="HOST", help="hosts or groups")
    parser.add_argument("--inventory", "-i", default="inventory", help="default: %(default)s")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def run(arguments: argparse.Namespace) -> int:
    """Release the lock, on every host that the same run holds; exit 0 also where it is free."""
    fleet = make_fleet(arguments.inventory)
    asked = sorted(select_hosts(fleet.hosts, arguments.hosts))
    held = _held(fleet, asked)
    for host, state in held.items():
        who = state.owner.describe(time.time()) if state.owner else "by an unreadable owner"
        print(printable(f"{host}: locked {who}"))
        if state.acting is not None:
            print(f"{host}: a command of it still runs (process {state.acting})")
    registry = installed()
    words = Words(registry, fleet, Path.cwd())
    found = words.jobs(jobs_on(registry, fleet, Path.cwd(), sorted(held)))
    for host, jobs in found.items():
        for job in [] if isinstance(jobs, str) else jobs:
            if job.alive:
                print(printable(f"{host}: {job_line(job)}  (it goes on)"))
    if not held:
        print("no lock is held")
        return ExitCode.DONE
    if not arguments.yes and not confirmed(f"Release {', '.join(held)}?", "unlock"):
        return ExitCode.APPROVAL
    by = f"{operator()}@{socket.gethostname()}"
    for host, state in held.items():
        script = release_script(state.generation, "released", by)
        try:
            output = fleet.perform(host, Command(script=script, label="lock released", timeout=60))
        except Unreachable as error:
            raise _failed(host, error.reason, ExitCode.UNREACHABLE) from None
        if output.exit != 0:
            raise _failed(host, output.complaint, ExitCode.FAILED)
        print(f"{host}: released")
    return ExitCode.DONE


def _held(fleet: Fleet, asked: list[str]) -> dict[str, LockState]:
    """The locks of these hosts, and those that the same runs have on every host that answers."""
    states = _states(fleet, asked)
    runs = {state.owner.run for state in states.values() if state.owner and not state.free}
    others = [host for host in fleet.hosts if host not in states] if runs else []
    for host, state in _states(fleet, others, needed=False).items():
        if state.owner is not None and state.owner.run in runs:
            states[host] = state
    return {host: state for host, state in states.items() if not state.free}


def _states(fleet: Fleet, hosts: list[str], *, needed: bool = True) -> dict[str, LockState]:
    down = fleet.connect(hosts)
    states: dict[str, LockState] = {}
    for host, state in read_locks(fleet, [host for host in hosts if host not in down]).items():
        if isinstance(state, LockState):
            states[host] = state
        elif needed:
            raise _failed(host, state, ExitCode.FAILED)
    if down and needed:
        host, reason = next(iter(down.items()))
        raise _failed(host, reason, ExitCode.UNREACHABLE)
    return states


def _failed(host: str, reason: str, code: ExitCode) -> RunbookError:
    return RunbookError(Diagnostic(f"cannot be unlocked: {reason}", where=host, code=code))
