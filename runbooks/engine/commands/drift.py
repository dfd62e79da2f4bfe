"""Compare what a runbook's steps ensure now with their last checkpoints; change nothing."""

from __future__ import annotations

import argparse
import sys

from rich.text import Text

from runbooks.engine.commands.opening import add_options, open_session
from runbooks.engine.plan.drift import drift_code, read_drift
from runbooks.engine.plan.masked import masked_drift, masked_unsure
from runbooks.engine.run.event import SCHEMA_VERSION, Bus
from runbooks.engine.view.drift import drift_lines, drift_record, unsure_record
from runbooks.engine.view.json_lines import JsonLines
from runbooks.engine.view.text import make_console

ABOUT = "say what changed since the last run, outside the runbook; change nothing"


def configure(parser: argparse.ArgumentParser) -> None:
    add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 10 where something differs, 6 where it is not known, 4 unreachable, 0 otherwise."""
    session = open_session(arguments, Bus([]))
    # A fact may read what a secret is.
    session.unlock()
    redactor = session.bus.redactor
    survey = session.survey
    drift, unsure, records = read_drift(survey)
    drift = [masked_drift(item, redactor) for item in drift]
    unsure = [masked_unsure(item, redactor) for item in unsure]
    if (limit := survey.scope.limit) is not None:
        drift = [item for item in drift if item.host in limit]
        unsure = [item for item in unsure if item.host in limit]
    if arguments.json:
        stream = JsonLines(sys.stdout)
        head = {"v": SCHEMA_VERSION, "event": "drift"}
        for item in drift:
            stream.take(head | drift_record(item))
        for lost in unsure:
            stream.take(head | unsure_record(lost))
    else:
        console = make_console()
        for line in drift_lines(drift, unsure, survey.now()):
            console.print(line)
        count = len(records.checkpoints)
        noun = "checkpoint" if count == 1 else "checkpoints"
        words = f"{len(drift)} drifted, {len(unsure)} unknown; {count} {noun} compared"
        console.print(Text(f"Drift of {session.runbook.name}: {words}.", style="bold"))
    return drift_code(drift, unsure)
