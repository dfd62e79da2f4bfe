"""Print what a run would do and why, from facts read now; nothing is changed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from runbooks.engine.commands.opening import add_options, open_session
from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.plan.plan import Plan
from runbooks.engine.plan.saved import refuse_other, save_plan, saved_plan
from runbooks.engine.plan.seal import project_key
from runbooks.engine.run.event import Bus
from runbooks.engine.session import Session
from runbooks.engine.view.json_lines import JsonLines, plan_record
from runbooks.engine.view.plan import show_plan
from runbooks.engine.view.text import make_console

ABOUT = "print what a run would do and why; change nothing"


def configure(parser: argparse.ArgumentParser) -> None:
    add_options(parser, steps=True)
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="FILE",
        help="save the plan; `runbook run --plan FILE` goes on only where nothing has moved",
    )
    parser.add_argument("--no-diff", action="store_true", help="leave the diffs out")
    parser.add_argument(
        "--detailed-exitcode", action="store_true", help="exit 10 where a run would change things"
    )


def run(arguments: argparse.Namespace) -> int:
    session = open_session(arguments, Bus([]))
    if arguments.out is not None:
        refuse_other(arguments.out)
    # What is shown and saved is masked, so the secrets have to be known.
    session.unlock()
    plan = session.plan()
    if arguments.json:
        JsonLines(sys.stdout).take(plan_record(session.shown(plan)))
    else:
        show_plan(session.shown(plan), make_console(), diff=not arguments.no_diff)
    if arguments.out is not None:
        _save(session, plan, arguments.out)
        if not arguments.json:
            make_console().print(f"Saved as {arguments.out}: runbook run --plan {arguments.out}")
    if plan.code is ExitCode.DONE and plan.changes and arguments.detailed_exitcode:
        return ExitCode.PENDING
    return plan.code


def _save(session: Session, plan: Plan, file: Path) -> None:
    key = project_key(session.options.runs)
    hosts = session.survey.fleet.hosts
    save_plan(file, saved_plan(plan, hosts, key, session.bus.redactor), key)
