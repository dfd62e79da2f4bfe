"""Calls one subcommand as the command line does, without what it does to the whole process."""

from __future__ import annotations

import importlib

from runbooks.engine.cli import build_parser


def runbook(*words: str) -> int:
    """The exit code; raises RunbookError, and SystemExit for a wrong option."""
    arguments = build_parser(words[0]).parse_args(words)
    return int(importlib.import_module(f"runbooks.engine.commands.{words[0]}").run(arguments))
