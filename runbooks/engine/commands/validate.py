"""Check runbooks: shape, types, references, hosts and roots; no host is contacted."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from runbooks.engine.load import find_runbook, load_runbook, parse_variables
from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from runbooks.engine.model.runbook import Runbook
from runbooks.engine.registry import installed
from runbooks.engine.run.event import SCHEMA_VERSION
from runbooks.engine.view.diagnostics import diagnostic_record, show_diagnostics
from runbooks.engine.view.json_lines import JsonLines

ABOUT = "check runbooks before any host is reached"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a runbook's file, or its name (extract)"
    )
    parser.add_argument("--inventory", "-i", default="inventory", help="default: %(default)s")
    parser.add_argument(
        "-v", "--var", action="append", default=[], metavar="NAME=VALUE", help="set a variable"
    )
    parser.add_argument("--json", action="store_true", help="one object a line on standard output")


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 when all are valid; every file is checked, whatever the one before was."""
    # Not needed by `schema`, and the adapter costs a pyinfra import.
    from runbooks.engine.adapter.inventory import load_hosts

    hosts = load_hosts(arguments.inventory)
    variables = parse_variables(arguments.var)
    stream = JsonLines(sys.stdout) if arguments.json else None
    codes = []
    for given in arguments.files:
        names: dict[Path, str] = {}
        try:
            file = find_runbook(given)
            if file == Path(given):
                names[file] = given
            runbook = load_runbook(file, installed(), hosts, variables)
        except RunbookError as error:
            codes.append(error.code)
            if stream:
                for item in error.diagnostics:
                    stream.take(diagnostic_record(item))
            else:
                show_diagnostics(error.diagnostics, names=names)
            continue
        if stream:
            stream.take(_record(runbook))
        else:
            count = len(runbook.steps)
            where = ", ".join(sorted(runbook.hosts))
            print(f"{names.get(file, file)}: valid: {count} step{'s'[: count != 1]} on {where}")
    return ExitCode.worst(codes)


def _record(runbook: Runbook) -> dict[str, object]:
    return {
        "v": SCHEMA_VERSION,
        "event": "valid",
        "file": str(runbook.file),
        "runbook": runbook.name,
        "digest": runbook.digest,
        "steps": list(runbook.order),
        "hosts": sorted(runbook.hosts),
    }
