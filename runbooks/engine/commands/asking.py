"""Asks the operator before something is done that the command line alone should not do."""

from __future__ import annotations

import sys

from runbooks.engine.adapter.runtime import is_terminal, read_line
from runbooks.engine.view.text import printable

__all__ = ["confirmed"]


def confirmed(question: str, command: str, *, terminal: bool | None = None) -> bool:
    """Whether the operator typed `yes`; says what to do where nobody can answer.

    `terminal`: whether somebody may be asked at all, standard input by default.
    """
    if terminal is None:
        terminal = is_terminal(sys.stdin)
    if not terminal:
        message = f"runbook {command}: not confirmed; without a terminal give -y"
        print(message, file=sys.stderr)
        return False
    print(printable(f"{question} Only 'yes' does: "), end="", file=sys.stderr, flush=True)
    if read_line().strip() == "yes":
        return True
    print(f"runbook {command}: not confirmed, nothing was done", file=sys.stderr)
    return False
