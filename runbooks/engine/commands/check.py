"""Read and print every fact of a runbook now; nothing is changed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from rich.text import Text

from runbooks.engine.commands.opening import add_options, open_session
from runbooks.engine.model.check import Finding, Truth, record
from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.model.runbook import Step
from runbooks.engine.plan.masked import masked_finding
from runbooks.engine.plan.survey import Findings
from runbooks.engine.redact import Redactor
from runbooks.engine.run.event import SCHEMA_VERSION, Bus
from runbooks.engine.view.json_lines import JsonLines
from runbooks.engine.view.text import clock, make_console, printable

ABOUT = "read and print every fact of a runbook now; change nothing"

_MARKS = {Truth.TRUE: ("✔", "green"), Truth.FALSE: ("✘", "yellow"), Truth.UNKNOWN: ("?", "red")}


def configure(parser: argparse.ArgumentParser) -> None:
    add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 when every gate holds; 5 when one does not, 6 unknown, 4 unreachable."""
    session = open_session(arguments, Bus([]))
    # A fact may read what a secret is.
    session.unlock()
    fleet, survey = session.survey.fleet, session.survey
    fleet.read_only(True)
    fleet.connect(sorted(session.runbook.hosts | session.runbook.consulted))
    units = survey.units()
    found = survey.findings(units, survey.estimates(units))
    redactor = session.bus.redactor
    if arguments.json:
        stream = JsonLines(sys.stdout)
        for step, host in units:
            for part, finding in _each(found[step.id, host], redactor):
                stream.take(_record(step, host, part, finding))
    else:
        console = make_console()
        for step, host in units:
            console.print(Text(f"{step.id}  {host}", style="bold"))
            for part, finding in _each(found[step.id, host], redactor):
                console.print(_line(part, finding, host))
    gates = [found[step.id, host].requires for step, host in units if step.gate]
    return ExitCode.worst(_code(finding) for requires in gates for finding in requires)


def _each(findings: Findings, redactor: Redactor) -> Iterator[tuple[str, Finding]]:
    for part in ("requires", "ensures"):
        for finding in getattr(findings, part):
            yield part, masked_finding(finding, redactor)


def _line(part: str, finding: Finding, host: str) -> Text:
    mark, style = _MARKS[finding.truth]
    line = Text("  ")
    line.append(mark, style=style)
    elsewhere = f" on {finding.host}" if finding.host != host else ""
    line.append(f" {part:<8} {printable(finding.sentence())}{elsewhere}  [{clock(finding.at)}]")
    return line


def _record(step: Step, host: str, part: str, finding: Finding) -> dict[str, object]:
    head = {"v": SCHEMA_VERSION, "event": "check", "step": step.id, "host": host, "part": part}
    return head | record(finding) | {"host": host, "read_on": finding.host}


def _code(finding: Finding) -> ExitCode:
    if finding.truth is Truth.TRUE:
        return ExitCode.DONE
    if finding.truth is Truth.FALSE:
        return ExitCode.PRECONDITION
    return ExitCode.UNREACHABLE if finding.unreachable else ExitCode.FAILED
