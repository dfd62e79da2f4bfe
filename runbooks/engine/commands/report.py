"""Write one past run as a single HTML page, from its own files alone."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from runbooks.engine.commands.opening import runs_folder
from runbooks.engine.history.finding import find_run
from runbooks.engine.history.runs import read_run
from runbooks.engine.history.verify import journal_faults
from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from runbooks.engine.view.report import MARK, render_report
from runbooks.engine.view.text import printable

ABOUT = "write a past run as one HTML page"

NAME = "report.html"
# Bytes at the start of a file among which a report has its mark.
_START = 512


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run's id, the beginning of one, or 'last'")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=f"where to write it, '-' for standard output (default: {NAME} in the run's folder)",
    )
    parser.add_argument(
        "--force", action="store_true", help="overwrite FILE even if it is no report"
    )


def run(arguments: argparse.Namespace) -> int:
    folder = find_run(runs_folder(Path.cwd()), arguments.run)
    record = read_run(folder)
    page = render_report(record, journal_faults(record))
    if arguments.output == "-":
        sys.stdout.write(page)
        return ExitCode.DONE
    file = Path(arguments.output) if arguments.output is not None else folder / NAME
    _write(file, page, force=arguments.force)
    print(printable(f"{file}: written"))
    return ExitCode.DONE


def _write(file: Path, page: str, *, force: bool) -> None:
    """The whole page or nothing. RunbookError (usage) where something else stands there."""
    try:
        mode = _may_replace(file, force)
        # A link stays one; what it leads to is replaced.
        target = file.resolve()
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            # A stray byte of a file name is no Unicode.
            with open(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(page)
                stream.flush()
                os.fchmod(stream.fileno(), mode)
                os.fsync(stream.fileno())
            Path(name).replace(target)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise RunbookError.usage(
            f"the report cannot be written: {error.strerror}",
            where=str(file),
            hint="-o FILE names another file, -o - prints it",
        ) from None


def _may_replace(file: Path, force: bool) -> int:
    """The mode for the new file: as the one before, or for its owner alone, since diffs may
    hold what only the operator should read."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return 0o600
    if not stat.S_ISREG(found.st_mode):
        raise RunbookError.usage(
            "is no regular file", where=str(file), hint="-o FILE names another, -o - prints it"
        )
    if not force:
        with open(file, "rb") as stream:
            start = stream.read(_START)
        if MARK.encode() not in start:
            raise RunbookError.usage(
                "is there already and is no report",
                where=str(file),
                hint="name another file, or overwrite it with --force",
            )
    return stat.S_IMODE(found.st_mode)
