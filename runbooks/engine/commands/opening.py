"""What `plan`, `run` and `check` have in common: options, and a session opened by them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from runbooks.engine.adapter.inventory import make_fleet, select_hosts
from runbooks.engine.adapter.runtime import read_line
from runbooks.engine.fleet import Fleet
from runbooks.engine.load import find_runbook, load_runbook, parse_variables
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.operation import Preview
from runbooks.engine.model.runbook import Runbook, Step
from runbooks.engine.plan.approval import Approval, approval_of, parse_approvals, phrase
from runbooks.engine.registry import installed
from runbooks.engine.run.event import Bus
from runbooks.engine.session import Options, Session, ask_nobody
from runbooks.engine.view.text import printable

__all__ = ["add_options", "ask_on_terminal", "open_session", "runs_folder", "spread_approvals"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of every command that talks to hosts."""
    parser.add_argument("runbook", help="a runbook's file, or its name (extract)")
    parser.add_argument("--inventory", "-i", default="inventory", help="default: %(default)s")
    parser.add_argument(
        "--limit", action="append", default=[], metavar="HOST", help="act on these hosts only"
    )
    parser.add_argument(
        "-v", "--var", action="append", default=[], metavar="NAME=VALUE", help="set a variable"
    )
    parser.add_argument("--json", action="store_true", help="one event a line on standard output")
    parser.add_argument("--verbose", action="store_true", help="show facts and commands")


def runs_folder(project: Path) -> Path:
    """Where journals lie: RUNBOOK_RUNS, or `var/runs` of the project."""
    return Path(os.environ.get("RUNBOOK_RUNS") or project / "var" / "runs")


def open_session(
    arguments: argparse.Namespace, bus: Bus, *, approve: Sequence[str] = (), asks: bool = False
) -> Session:
    """Load inventory and runbook, contact nobody yet; RunbookError for anything wrong."""
    project = Path.cwd()
    fleet = make_fleet(arguments.inventory)
    limit = select_hosts(fleet.hosts, arguments.limit) if arguments.limit else None
    registry = installed()
    runbook = load_runbook(
        find_runbook(arguments.runbook),
        registry,
        fleet.hosts,
        variables=parse_variables(arguments.var),
    )
    options = Options(
        project=project,
        runs=runs_folder(project),
        limit=limit,
        approvals=spread_approvals(approve, runbook, fleet),
        ask_approval=ask_on_terminal if asks else ask_nobody,
    )
    return Session(runbook, registry, fleet, bus, options)


def spread_approvals(
    given: Sequence[str], runbook: Runbook, fleet: Fleet
) -> dict[tuple[str, str], tuple[Approval, ...]]:
    """Approvals by step and host; a step that is not irreversible needs none: an error."""
    spread: dict[tuple[str, str], tuple[Approval, ...]] = {}
    for step_id, approvals in parse_approvals(given).items():
        step = runbook.steps.get(step_id)
        if step is None or step.irreversible is None:
            known = [item.id for item in runbook.steps.values() if item.irreversible]
            raise RunbookError.usage(
                f"'{step_id}' is no irreversible step of {runbook.name}",
                where="--approve",
                hint=f"irreversible: {', '.join(known) or 'none'}",
            )
        for host in step.hosts:
            spread[step_id, host] = approvals
    return spread


def ask_on_terminal(step: Step, host: str, preview: Preview) -> Approval | None:
    """Ask for the phrase that holds the measured amount and the host."""
    wanted = phrase(step.id, host, preview)
    lost = step.irreversible.loses if step.irreversible else "what it removes"
    question = f"{step.id} on {host} loses {lost}: {preview.summary}\nType  {wanted}  to approve: "
    print(printable(question), end="", file=sys.stderr, flush=True)
    return approval_of(step.id, host, preview) if read_line().strip() == wanted else None
