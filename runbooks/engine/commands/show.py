"""Show one past run, or one of its steps in full, from its journal."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from runbooks.engine.commands.opening import runs_folder
from runbooks.engine.history.finding import find_run
from runbooks.engine.history.runs import Record, RunRecord, Unit, read_run, text
from runbooks.engine.history.verify import journal_faults
from runbooks.engine.model.diagnostic import ExitCode, RunbookError, did_you_mean
from runbooks.engine.run.event import SCHEMA_VERSION
from runbooks.engine.view.json_lines import JsonLines
from runbooks.engine.view.show import run_lines, unit_lines
from runbooks.engine.view.text import make_console

ABOUT = "show a past run, or one of its steps in full"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN[/STEP[@HOST]]",
        help="a run's id, the beginning of one, or 'last'; with a step: everything of that step",
    )
    parser.add_argument("--json", action="store_true", help="the records, one a line")


def run(arguments: argparse.Namespace) -> int:
    given, slash, unit = arguments.run.partition("/")
    record = read_run(find_run(runs_folder(Path.cwd()), given))
    units = _chosen(record, unit) if slash else None
    if arguments.json:
        _print_records(record, units)
        return ExitCode.DONE
    console = make_console()
    lines = unit_lines(units) if units else run_lines(record, journal_faults(record))
    for line in lines:
        console.print(line)
    return ExitCode.DONE


def _chosen(record: RunRecord, given: str) -> list[Unit]:
    """The units that `STEP` or `STEP@HOST` names; RunbookError (usage) with a near one."""
    step, at, host = given.partition("@")
    found = [unit for unit in record.units.values() if unit.step == step]
    if not found:
        raise RunbookError.usage(
            f"run {record.id} knows no step '{step}'",
            where=f"{record.id}/{given}",
            hint=did_you_mean(step, [unit.step for unit in record.units.values()]),
        )
    chosen = [unit for unit in found if unit.host == host] if at else found
    if not chosen:
        raise RunbookError.usage(
            f"step {step} has no host '{host}' in run {record.id}",
            where=f"{record.id}/{given}",
            hint=did_you_mean(host, [unit.host for unit in found]),
        )
    return chosen


def _print_records(record: RunRecord, units: list[Unit] | None) -> None:
    stream = JsonLines(sys.stdout)
    names = {(unit.step, unit.host) for unit in units or []}

    def belongs(item: Record) -> bool:
        return units is None or (text(item, "step"), text(item, "host")) in names

    for item in filter(belongs, record.records):
        stream.take(item)
    for line, message in record.faults:
        head = {"v": SCHEMA_VERSION, "event": "damaged", "file": str(record.path)}
        stream.take(head | {"line": line, "message": message})
