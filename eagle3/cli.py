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

EXIT_CODES = """\
exit codes:
  0    done, or nothing to do
  2    usage: arguments that are wrong or contradict each other
  3    an input file is missing, or a line of it is not what it should be
  5    the target cannot be used, or a Python package is missing
  6    a store is damaged, unfinished, or of other inputs
  130  interrupted (Ctrl-C)
  143  terminated (SIGTERM)

After 130 and 143 the same command goes on: an extraction keeps its finished shards, a merge
starts over and leaves nothing half written.
"""

# What brings a module: `[host]` leaves torch to SGLang's environment.
_TORCH = (
    "SGLang's environment has it: run eagle3 there; or install eagle3-runbooks[embedded] "
    "on a machine without a GPU"
)
_BRINGS = {
    "torch": _TORCH,
    "gguf": "install eagle3-runbooks[embedded]",
    "accelerate": "install eagle3-runbooks[embedded]",
}
_HOST = (
    "install eagle3-runbooks[host] beside SGLang's torch, or eagle3-runbooks[embedded] on a "
    "machine without a GPU"
)

# Imported only when asked for, since torch and pyarrow cost seconds.
SUBCOMMANDS = ("estimate", "merge", "extract", "show")


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"eagle3.commands.{name}")


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser; with `only`, the other subcommands stay unloaded."""
    parser = argparse.ArgumentParser(
        prog="eagle3",
        description="EAGLE-3 data and hidden states.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
        module = (error.name or "eagle3").split(".")[0]
        if module == "eagle3":
            raise
        print(
            f"eagle3 {arguments.subcommand}: needs the Python package {module}\n"
            f"  {_BRINGS.get(module, _HOST)}",
            file=sys.stderr,
        )
        return 5
    except KeyboardInterrupt:
        again = {
            "extract": "; the same command continues",
            "merge": "; the same command starts over",
        }
        print(
            f"eagle3 {arguments.subcommand}: interrupted{again.get(arguments.subcommand, '')}",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        return 141


if __name__ == "__main__":
    raise SystemExit(main())
