"""Print the reference of facts, operations and estimators, made from the registry."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.registry import installed
from runbooks.engine.view.reference import reference

ABOUT = "print the reference of facts and operations"

FILE = Path("runbooks/REFERENCE.md")


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--write", action="store_true", help=f"write {FILE}")
    group.add_argument("--check", action="store_true", help=f"exit 3 where {FILE} differs")


def run(arguments: argparse.Namespace) -> int:
    text = reference(installed())
    if arguments.check:
        if FILE.exists() and FILE.read_text() == text:
            return ExitCode.DONE
        print(f"{FILE} differs; run: runbook reference --write", file=sys.stderr)
        return ExitCode.INVALID
    if arguments.write:
        FILE.write_text(text)
    else:
        sys.stdout.write(text)
    return ExitCode.DONE
