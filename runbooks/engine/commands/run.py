"""Carry a runbook out: every step checked right before and right after it acts."""

from __future__ import annotations

import argparse
import sys
import traceback

from runbooks.engine.adapter.runtime import is_terminal, on_interrupts
from runbooks.engine.commands.asking import confirmed
from runbooks.engine.commands.opening import add_options, open_session
from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from runbooks.engine.plan.staleness import refuse_moved, refuse_used
from runbooks.engine.run.event import Bus
from runbooks.engine.session import Session
from runbooks.engine.view.json_lines import JsonLines, plan_record
from runbooks.engine.view.plan import show_plan
from runbooks.engine.view.progress import RunView
from runbooks.engine.view.recap import show_recap
from runbooks.engine.view.text import make_console

ABOUT = "carry a runbook out; running it again is the resume"


def configure(parser: argparse.ArgumentParser) -> None:
    add_options(parser, steps=True, saved=True)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask before the run")
    parser.add_argument(
        "--approve",
        action="append",
        default=[],
        metavar="STEP=DIGEST",
        help="approve an irreversible step as the plan measured it",
    )


def run(arguments: argparse.Namespace) -> int:
    terminal = is_terminal(sys.stdin) and not arguments.json
    bus = Bus([])
    session = open_session(arguments, bus, approve=arguments.approve, asks=terminal)
    session.unlock()
    plan = session.plan()
    if session.options.saved is not None:
        # Told before anybody confirms; judged again once the locks are held.
        refuse_used(session.options.saved, session.options.runs)
        refuse_moved(session.options.saved, session.moved(plan))
    console = make_console()
    if arguments.json:
        stream = JsonLines(sys.stdout)
        stream.take(plan_record(session.shown(plan)))
        bus.add(stream)
    else:
        show_plan(session.shown(plan), console)
        bus.add(RunView(console, verbose=arguments.verbose))
    # Where nothing would be changed there is nothing to confirm: the run says why.
    asks = plan.changes and not arguments.yes
    if asks and not confirmed(f"Run {plan.runbook.name}?", "run", terminal=terminal):
        return ExitCode.APPROVAL
    on_interrupts(lambda: _stop(session), session.abandon)
    try:
        report = session.run()
    except RunbookError:
        raise
    except Exception:
        # A traceback's last line may quote a value.
        trace = bus.redactor.text(traceback.format_exc())
        print(f"{trace}runbook run: the engine failed; please report this", file=sys.stderr)
        return ExitCode.BUG
    if not arguments.json:
        show_recap(report, session.runbook, console)
    return report.code


def _stop(session: Session) -> None:
    """The first Ctrl-C: stop after the steps that run. The next one abandons them."""
    session.stop.set()
    print(
        "\nStopping after the steps that run now. Ctrl-C again leaves them at once: jobs go on,"
        " and the next run attaches to them.",
        file=sys.stderr,
    )
