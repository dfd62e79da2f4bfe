"""Print the JSON Schema of runbooks, write it, or check the committed one."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from runbooks.engine.load import build_schema
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError
from runbooks.engine.registry import installed

ABOUT = "print, write or check the JSON Schema of runbooks"
COMMITTED = Path("runbooks/runbook.schema.json")


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--write", action="store_true", help="write it to --file")
    group.add_argument("--check", action="store_true", help="exit 3 where --file differs")
    parser.add_argument(
        "--file", type=Path, default=COMMITTED, metavar="FILE", help="default: %(default)s"
    )


def schema_text() -> str:
    """The schema of what is installed, as the committed file holds it."""
    return (
        json.dumps(build_schema(installed(), references=True), indent=1, ensure_ascii=False) + "\n"
    )


def run(arguments: argparse.Namespace) -> int:
    text = schema_text()
    if arguments.write:
        _write(arguments.file, text)
        print(f"{arguments.file}: written")
    elif arguments.check:
        _check(arguments.file, text)
        print(f"{arguments.file}: agrees with the registry")
    else:
        sys.stdout.write(text)
    return ExitCode.DONE


def _write(file: Path, text: str) -> None:
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        raise RunbookError.usage(f"cannot be written: {error.strerror}", where=str(file)) from None


def _check(file: Path, text: str) -> None:
    hint = "run: runbook schema --write"
    try:
        committed = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunbookError.usage(f"cannot be read: {error}", where=str(file), hint=hint) from None
    if committed == text:
        return
    try:
        parts = ", ".join(_differing(json.loads(committed), json.loads(text))) or "its layout"
    except ValueError:
        parts = "it is no JSON"
    raise RunbookError(
        Diagnostic(f"differs from the registry in: {parts}", where=str(file), hint=hint)
    )


def _differing(old: Any, new: Any) -> list[str]:
    """Names of the definitions and parts that differ."""
    if not isinstance(old, dict):
        return ["everything"]
    parts = sorted(key for key in {*old, *new} if key != "$defs" and old.get(key) != new.get(key))
    was, now = old.get("$defs", {}), new.get("$defs", {})
    return parts + sorted(key for key in {*was, *now} if was.get(key) != now.get(key))
