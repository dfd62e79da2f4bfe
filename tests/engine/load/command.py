"""The `runbook` command within this process, with real or declared hosts and facts."""

from __future__ import annotations

from contextlib import ExitStack
from unittest.mock import patch

from runbooks.engine import cli
from runbooks.engine.adapter import inventory
from runbooks.engine.commands import graph, schema, validate
from tests.engine.load.support import HOSTS, PROJECT, real, stubs


def runbook(*words: str, stand_ins: bool = False) -> int:
    """Exit code of `runbook WORDS`; with `stand_ins` on declared hosts and facts alone."""
    with ExitStack() as stack:
        registry = stubs if stand_ins else real
        for command in (validate, graph, schema):
            stack.enter_context(patch.object(command, "installed", registry))
        if stand_ins:
            stack.enter_context(patch.object(inventory, "load_hosts", lambda given: HOSTS))
        try:
            return int(cli.main(words))
        except SystemExit as stop:
            return int(stop.code or 0)


__all__ = ["PROJECT", "runbook"]
