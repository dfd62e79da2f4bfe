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
from runbooks.engine.plan.saved import SavedPlan, load_saved
from runbooks.engine.plan.scope import narrowed, scope_of
from runbooks.engine.plan.staleness import overrides, refuse_edited
from runbooks.engine.registry import installed
from runbooks.engine.run.event import Bus
from runbooks.engine.session import Options, Session, ask_nobody
from runbooks.engine.view.text import printable

__all__ = ["add_options", "ask_on_terminal", "open_session", "runs_folder", "spread_approvals"]


def add_options(
    parser: argparse.ArgumentParser, *, steps: bool = False, saved: bool = False
) -> None:
    """Options of every command that talks to hosts; with `steps`, those that select steps,
    and with `saved`, a saved plan, which names its runbook itself."""
    parser.add_argument(
        "runbook",
        nargs="?" if saved else None,
        help="a runbook's file, or its name (extract)",
    )
    if saved:
        parser.add_argument(
            "--plan",
            type=Path,
            dest="saved",
            metavar="FILE",
            help="a saved plan: go on only where nothing has moved since it was made",
        )
    parser.add_argument("--inventory", "-i", default="inventory", help="default: %(default)s")
    parser.add_argument(
        "--limit", action="append", default=[], metavar="HOST", help="act on these hosts only"
    )
    if steps:
        parser.add_argument(
            "--from",
            action="append",
            default=[],
            dest="starts",
            metavar="STEP",
            help="act by this step and those that wait for it only; all others are still judged",
        )
        parser.add_argument(
            "--only",
            action="append",
            default=[],
            metavar="STEP",
            help="act by this step only; all others are still judged",
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
    saved = _saved(arguments, runs_folder(project))
    fleet = make_fleet(arguments.inventory)
    limit = select_hosts(fleet.hosts, arguments.limit) if arguments.limit else None
    registry = installed()
    file = find_runbook(saved.file if saved is not None else arguments.runbook)
    variables = parse_variables(arguments.var)
    if saved is not None:
        variables = overrides(load_runbook(file, registry, fleet.hosts).variables, saved)
    runbook = load_runbook(file, registry, fleet.hosts, variables=variables)
    if saved is None:
        scope = scope_of(
            runbook,
            limit=limit,
            starts=getattr(arguments, "starts", ()),
            only=getattr(arguments, "only", ()),
        )
    else:
        refuse_edited(saved, runbook)
        scope = saved.scope
    options = Options(
        project=project,
        runs=runs_folder(project),
        scope=scope,
        saved=saved,
        approvals=spread_approvals(approve, runbook, fleet),
        ask_approval=ask_on_terminal if asks else ask_nobody,
    )
    return Session(narrowed(runbook, scope), registry, fleet, bus, options)


def _saved(arguments: argparse.Namespace, runs: Path) -> SavedPlan | None:
    """The saved plan of `--plan`, beside which nothing else says what to run."""
    file: Path | None = getattr(arguments, "saved", None)
    if file is None:
        if arguments.runbook is None:
            raise RunbookError.usage(
                "no runbook is named", hint="write runbook run RUNBOOK, or --plan FILE"
            )
        return None
    given = {
        arguments.runbook or "": arguments.runbook,
        "--limit": arguments.limit,
        "--from": arguments.starts,
        "--only": arguments.only,
        "-v": arguments.var,
    }
    for word, value in given.items():
        if value:
            raise RunbookError.usage(
                f"{word} does not go with --plan: the plan says what is to run",
                where="--plan",
                hint="make another plan, or leave one of them out",
            )
    return load_saved(file, runs)


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
