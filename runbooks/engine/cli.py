"""The `runbook` command line: parses, runs one subcommand, prints errors without a traceback."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from runbooks.engine.model.diagnostic import ExitCode, RunbookError, did_you_mean

__all__ = ["SUBCOMMANDS", "main"]

SUBCOMMANDS = (
    "validate",
    "check",
    "plan",
    "run",
    "drift",
    "status",
    "attach",
    "cancel",
    "unlock",
    "history",
    "show",
    "report",
    "schema",
    "reference",
    "graph",
)
# Commands that talk to hosts: gevent must patch the standard library before they are imported.
CONNECTING = ("check", "plan", "run", "status", "attach", "cancel", "unlock", "drift", "history")
_HELP = ("-h", "--help")


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"runbooks.engine.commands.{name}")


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser; with `only`, the other subcommands stay unloaded."""
    parser = argparse.ArgumentParser(
        prog="runbook",
        description="Runbooks whose steps check the world right before and right after they act.",
    )
    parser.add_argument("--version", action="version", version=f"runbook {_version()}")
    subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="SUBCOMMAND")
    for name in SUBCOMMANDS:
        if only is not None and name != only:
            subparsers.add_parser(name)
            continue
        module = _module(name)
        module.configure(subparsers.add_parser(name, help=module.ABOUT, description=module.__doc__))
    return parser


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("eagle3-runbooks")
    except PackageNotFoundError:
        return "(not installed)"


def _print_anything() -> None:
    """Let standard output escape what its encoding lacks (a log in ASCII), as stderr does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def main(argv: Sequence[str] | None = None) -> int:
    """Run; returns the exit code (`ExitCode`)."""
    for name in ("stdout", "stderr"):
        # A closed standard stream is None in Python.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for the whole process
    words = list(sys.argv[1:] if argv is None else argv)
    _print_anything()
    first = words[0] if words else ""
    if first in (*CONNECTING, *_HELP):
        from runbooks.engine.adapter.runtime import patch

        patch()
    if first and not first.startswith("-") and first not in SUBCOMMANDS:
        hint = did_you_mean(first, SUBCOMMANDS)
        print(f"runbook: error: no subcommand '{first}'; {hint}", file=sys.stderr)
        return ExitCode.USAGE
    # Only help needs every subcommand; anything else is answered by at most one.
    arguments = build_parser(None if first in _HELP else first).parse_args(words)
    try:
        return int(_module(arguments.subcommand).run(arguments))
    except RunbookError as error:
        from runbooks.engine.view.diagnostics import show_diagnostics

        show_diagnostics(error.diagnostics)
        return int(error.code)
    except KeyboardInterrupt:
        print(f"runbook {arguments.subcommand}: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Nobody reads any more; the interpreter's own flush at its end must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        # The current folder is gone, the output's disk is full.
        named = f" {error.filename}" if error.filename else ""
        print(f"runbook {arguments.subcommand}: error:{named} {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.USAGE


if __name__ == "__main__":
    raise SystemExit(main())
