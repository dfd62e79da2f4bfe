"""Writes a lock file from pip's own resolution: `make lock` runs it for each environment.

    python -m deploy.locks.make_lock OUT [--python 3.12] REQUIREMENT…

pip resolves without installing (`--dry-run --report`); the names and versions it chose become
a constraints file. Versions are public ones: a local label such as `+cpu` names a build of
the same release, which each machine chooses for itself. Hashes are left out for that reason.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["foreign_platform", "lock_lines", "main"]

_OWN = "eagle3-runbooks"
# glibc 2.34: what SGLang's own wheels ask for.
_NEWEST_GLIBC = 34


def lock_lines(report: dict[str, Any]) -> list[str]:
    """`name==version` of everything in a pip installation report, sorted, without ourselves."""
    found = {}
    for item in report["install"]:
        metadata = item["metadata"]
        name = metadata["name"].lower().replace("_", "-").replace(".", "-")
        found[name] = metadata["version"].partition("+")[0]
    found.pop(_OWN, None)
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def foreign_platform(python: str) -> list[str]:
    """pip options that resolve for another CPython on x86-64 Linux, from wheels alone."""
    tags = [f"manylinux_2_{minor}_x86_64" for minor in range(5, _NEWEST_GLIBC + 1)]
    tags += ["manylinux1_x86_64", "manylinux2010_x86_64", "manylinux2014_x86_64", "linux_x86_64"]
    options = ["--python-version", python, "--implementation", "cp", "--only-binary", ":all:"]
    # pip wants a target folder for foreign platforms, although a dry run never writes there.
    options += ["--target", tempfile.gettempdir()]
    return options + [word for tag in tags for word in ("--platform", tag)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", help="resolve for this CPython instead of the running one")
    parser.add_argument("requirements", nargs="+")
    arguments = parser.parse_args(argv)
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    if arguments.python:
        command += foreign_platform(arguments.python)
    done = subprocess.run(
        [*command, "--report", "-", *arguments.requirements], stdout=subprocess.PIPE, check=False
    )
    if done.returncode != 0:
        print("make_lock: pip could not resolve", *arguments.requirements, file=sys.stderr)
        return done.returncode
    lines = lock_lines(json.loads(done.stdout))
    python = f" for CPython {arguments.python}" if arguments.python else ""
    header = f"# Made by `make lock` from: {' '.join(arguments.requirements)}{python}\n"
    partial = arguments.out.with_name(f".{arguments.out.name}.partial")
    partial.write_text(header + "\n".join(lines) + "\n")
    partial.replace(arguments.out)
    print(f"{arguments.out}: {len(lines)} packages")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
