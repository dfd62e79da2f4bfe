"""Print the graph of a runbook's steps; no host is contacted."""

from __future__ import annotations

import argparse

from runbooks.engine.load import find_runbook, load_runbook, parse_variables
from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.registry import installed
from runbooks.engine.view.graph import mermaid, text_graph

ABOUT = "print the graph of a runbook's steps"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runbook", metavar="FILE", help="a runbook's file, or its name (extract)")
    parser.add_argument("--format", choices=("mermaid", "text"), default="text")
    parser.add_argument("--inventory", "-i", default="inventory", help="default: %(default)s")
    parser.add_argument(
        "-v", "--var", action="append", default=[], metavar="NAME=VALUE", help="set a variable"
    )


def run(arguments: argparse.Namespace) -> int:
    from runbooks.engine.adapter.inventory import load_hosts

    runbook = load_runbook(
        find_runbook(arguments.runbook),
        installed(),
        load_hosts(arguments.inventory),
        parse_variables(arguments.var),
    )
    print(mermaid(runbook) if arguments.format == "mermaid" else text_graph(runbook))
    return ExitCode.DONE
