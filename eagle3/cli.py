"""The `eagle3` command line: parses, runs one subcommand, prints errors without a traceback."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from eagle3 import __version__
from eagle3.errors import EagleError

__all__ = ["main"]

# Imported only when asked for, since torch and pyarrow cost seconds.
SUBCOMMANDS = ("estimate", "merge", "extract", "show")


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"eagle3.commands.{name}")


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser; with `only`, the other subcommands stay unloaded."""
    parser = argparse.ArgumentParser(prog="eagle3", description="EAGLE-3 data and hidden states.")
    parser.add_argument("--version", action="version", version=f"eagle3 {__version__}")
    subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="SUBCOMMAND")
    for name in SUBCOMMANDS:
        if only is not None and name != only:
            subparsers.add_parser(name)
            continue
        module = _module(name)
        module.configure(subparsers.add_parser(name, help=module.ABOUT, description=module.__doc__))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run; returns the exit code: 0 done, 2 usage, 3 input, 5 target, 6 store, 130 or 143 ended."""
    words = list(sys.argv[1:] if argv is None else argv)
    only = words[0] if words and words[0] in SUBCOMMANDS else None
    arguments = build_parser(only).parse_args(words)
    try:
        return int(_module(arguments.subcommand).run(arguments) or 0)
    except EagleError as error:
        print(f"eagle3 {arguments.subcommand}: {error}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        # A controller has no pyarrow and no transformers; our own modules missing is a bug.
        if error.name is None or error.name.split(".")[0] == "eagle3":
            raise
        print(
            f"eagle3 {arguments.subcommand}: needs the Python package {error.name}\n"
            "  install eagle3-runbooks[host], or [embedded] on a machine without a GPU",
            file=sys.stderr,
        )
        return 5
    except KeyboardInterrupt:
        print(f"eagle3 {arguments.subcommand}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 141


if __name__ == "__main__":
    raise SystemExit(main())
