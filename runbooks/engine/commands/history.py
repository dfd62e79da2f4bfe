"""List past runs, newest first, from their journals on this controller."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.text import Text

from runbooks.engine.commands.opening import runs_folder
from runbooks.engine.history.consult import consult
from runbooks.engine.history.finding import choose
from runbooks.engine.history.hosts import copy_from_hosts
from runbooks.engine.history.index import Index, RunRow
from runbooks.engine.history.runs import read_run
from runbooks.engine.history.verify import journal_faults
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError, did_you_mean
from runbooks.engine.run.event import SCHEMA_VERSION
from runbooks.engine.view.diagnostics import show_diagnostics
from runbooks.engine.view.history import (
    fault_line,
    fault_record,
    history_lines,
    row_record,
    verify_summary,
)
from runbooks.engine.view.json_lines import JsonLines
from runbooks.engine.view.text import make_console

ABOUT = "list past runs, or verify their journals"

# Lines of a list that a person reads at once.
_SHOWN = 30


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runbook", metavar="NAME", help="only runs of this runbook")
    parser.add_argument(
        "--limit",
        type=_count,
        metavar="N",
        help=f"the newest N (default: {_SHOWN}; with --json or --verify all)",
    )
    parser.add_argument("--json", action="store_true", help="one object a line on standard output")
    parser.add_argument(
        "--verify",
        nargs="?",
        const="",
        metavar="RUN",
        help="check the chain of one journal, or of all; exit 6 where one is broken",
    )
    parser.add_argument(
        "--from-hosts",
        action="store_true",
        help="first bring what the hosts know of runs of other controllers",
    )
    parser.add_argument("--inventory", "-i", default="inventory", help="default: %(default)s")
    parser.add_argument(
        "--rebuild", action="store_true", help="make the index anew from the journals"
    )


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of runs; give 1 or more")
    return count


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; with --verify 6 where a journal is broken or cannot be verified; with
    --from-hosts 4 where a host does not answer, 6 where what it knows cannot be read."""
    runs = runs_folder(Path.cwd())
    code = _bring(arguments.inventory, runs) if arguments.from_hosts else ExitCode.DONE
    wanted: str | None = arguments.verify
    limit = arguments.limit
    if limit is None and not arguments.json and wanted is None:
        limit = _SHOWN

    def listed(index: Index) -> tuple[list[RunRow], int]:
        if arguments.runbook is not None and arguments.runbook not in index.runbooks():
            raise RunbookError.usage(
                f"no run of a runbook '{arguments.runbook}' in {runs}",
                where="--runbook",
                hint=did_you_mean(arguments.runbook, index.runbooks()),
            )
        rows = index.rows(arguments.runbook, limit)
        if wanted:
            chosen = choose(index.ids(), wanted, runs)
            rows = [row for row in index.rows() if row.run == chosen]
        return rows, index.count(arguments.runbook) - len(rows)

    rows, older = consult(runs, listed, rebuild=arguments.rebuild)
    if wanted is not None:
        return ExitCode.worst([code, _verify(rows, runs, as_json=arguments.json)])
    if arguments.json:
        stream = JsonLines(sys.stdout)
        for row in rows:
            stream.take(row_record(row))
    else:
        console = make_console()
        for line in history_lines(rows, older, runs):
            console.print(line)
    return code


def _bring(inventory: str, runs: Path) -> ExitCode:
    """Copy the hosts' journals; those that give none are named on standard error."""
    # The adapter costs a pyinfra import.
    from runbooks.engine.adapter.inventory import make_fleet

    fleet = make_fleet(inventory)
    fleet.read_only(True)
    down = fleet.connect(list(fleet.hosts))
    silent = copy_from_hosts(fleet, [host for host in fleet.hosts if host not in down], runs)
    unreachable = [(host, reason, ExitCode.UNREACHABLE) for host, reason in down.items()]
    unknown = [(host, reason, ExitCode.FAILED) for host, reason in silent.items()]
    told = [
        Diagnostic(f"what it knows of past runs is unknown: {reason}", where=host, code=code)
        for host, reason, code in unreachable + unknown
    ]
    if told:
        show_diagnostics(told)
    return ExitCode.worst(item.code for item in told)


def _verify(rows: list[RunRow], runs: Path, *, as_json: bool) -> ExitCode:
    """The journals themselves are read, whatever the index says."""
    stream, console = JsonLines(sys.stdout), make_console()
    broken = open_ = 0
    for row in rows:
        try:
            record = read_run(runs / row.run)
        except RunbookError as error:
            broken += 1
            _unreadable(error, stream if as_json else None)
            continue
        faults = journal_faults(record)
        broken += bool(faults)
        open_ += record.end is None
        for line, message in faults:
            if as_json:
                stream.take(fault_record(row.run, record.path, line, message))
            else:
                console.print(fault_line(record.path, line, message))
    if as_json:
        head = {"v": SCHEMA_VERSION, "event": "verified"}
        stream.take(head | {"runs": len(rows), "broken": broken, "without_end": open_})
    else:
        console.print(Text(verify_summary(len(rows), broken, open_), style="bold"))
    return ExitCode.FAILED if broken else ExitCode.DONE


def _unreadable(error: RunbookError, stream: JsonLines | None) -> None:
    diagnostics: tuple[Diagnostic, ...] = error.diagnostics
    if stream is None:
        show_diagnostics(diagnostics)
        return
    for item in diagnostics:
        head = {"v": SCHEMA_VERSION, "event": "fault"}
        stream.take(head | {"file": item.where, "message": item.message})
