"""The project's own code as one digest: on the controller from its tree, on a host as installed.

Standard library only, and its own text is what a host's python runs: so both sides compute the
same thing the same way, and the host needs nothing installed to say that nothing is installed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import unquote, urlparse

NAME = "eagle3-runbooks"
# What `[tool.hatch.build.targets.wheel]` of pyproject.toml lists.
PACKAGES = ("deploy", "eagle3", "runbooks")


def wanted(path: str | PurePath) -> bool:
    """Whether a path below a package is part of the distribution: no caches, no editor's files."""
    parts = PurePath(path).parts
    return (
        "__pycache__" not in parts
        and not any(part.startswith(".") for part in parts)
        and not parts[-1].endswith((".pyc", ".pyo", ".tmp", "~"))
    )


def source_files(project: str | Path) -> tuple[str, ...]:
    """The files of the wheel, relative to the project, sorted."""
    project = Path(project)
    found = [
        path.relative_to(project).as_posix()
        for package in PACKAGES
        for path in (project / package).rglob("*")
        if path.is_file()
    ]
    return tuple(sorted(filter(wanted, found)))


def digest(files: Mapping[str, Any]) -> str:
    """SHA-256 over the sorted lines `SHA256  PATH` of a mapping from path to content's file."""
    whole = hashlib.sha256()
    for name in sorted(files):
        try:
            content = hashlib.sha256(Path(files[name]).read_bytes()).hexdigest()
        except FileNotFoundError:
            content = "missing"
        whole.update(f"{content}  {name}\n".encode())
    return whole.hexdigest()


def source_digest(project: str | Path) -> str:
    """The digest of the project's tree, as the wheel built from it is digested once installed."""
    return digest({name: Path(project, name) for name in source_files(project)})


def installed(name: str) -> tuple[str | None, str | None]:
    """(version, digest or None) of an installed distribution; version None when it is not.

    An editable installation is digested by its source tree, which is what runs.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution(name)
    except PackageNotFoundError:
        return None, None
    direct = json.loads(found.read_text("direct_url.json") or "{}")
    if direct.get("dir_info", {}).get("editable"):
        return found.version, source_digest(unquote(urlparse(direct["url"]).path))
    if found.files is None:
        return found.version, None
    files = {
        Path(file).as_posix(): file.locate()
        for file in found.files
        if file.parts[0] != ".."
        and not file.is_absolute()
        and not file.parts[0].endswith((".dist-info", ".egg-info"))
        and wanted(file)
    }
    return found.version, digest(files)


def report(name: str) -> None:
    """What a host prints: `key<TAB>value` lines."""
    version, whole = installed(name)
    print(f"version\t{version or ''}\ndigest\t{whole or ''}")


def script(name: str) -> str:
    """The text of a Python program that reports on a distribution, standing alone."""
    return f"{Path(__file__).read_text()}\n\nreport({name!r})\n"
