"""Print what a run would do and why, from facts read now; nothing is changed."""

from __future__ import annotations

import argparse
import sys

from runbooks.engine.commands.opening import add_options, open_session
from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.run.event import Bus
from runbooks.engine.view.json_lines import JsonLines, plan_record
from runbooks.engine.view.plan import show_plan
from runbooks.engine.view.text import make_console

ABOUT = "print what a run would do and why; change nothing"


def configure(parser: argparse.ArgumentParser) -> None:
    add_options(parser)
    parser.add_argument("--no-diff", action="store_true", help="leave the diffs out")
    parser.add_argument(
        "--detailed-exitcode", action="store_true", help="exit 10 where a run would change things"
    )


def run(arguments: argparse.Namespace) -> int:
    session = open_session(arguments, Bus([]))
    plan = session.plan()
    if arguments.json:
        JsonLines(sys.stdout).take(plan_record(plan))
    else:
        show_plan(plan, make_console(), diff=not arguments.no_diff)
    if plan.code is ExitCode.DONE and plan.changes and arguments.detailed_exitcode:
        return ExitCode.PENDING
    return plan.code
