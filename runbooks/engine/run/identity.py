"""Who runs what, from where, with which versions and inputs: the first record of a journal."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from runbooks.engine.lock.owner import Process
from runbooks.engine.model.host import Host, Origin
from runbooks.engine.model.runbook import Runbook
from runbooks.engine.plan.durable import canonical
from runbooks.engine.plan.seal import inventory_digest

__all__ = ["identity"]


def identity(runbook: Runbook, fleet: Mapping[str, Host], origin: Origin) -> dict[str, Any]:
    """Of a run: JSON values, nothing secret."""
    return {
        "run": origin.run,
        "runbook": runbook.name,
        "file": str(runbook.file),
        "digest": runbook.digest,
        "variables_digest": hashlib.sha256(canonical(runbook.variables)).hexdigest(),
        "inventory_digest": inventory_digest(fleet),
        "operator": origin.operator,
        "controller": origin.controller,
        "pid": os.getpid(),
        "boot": Process.current().boot,
        "versions": {
            "engine": _version("eagle3-runbooks"),
            "pyinfra": _version("pyinfra"),
            "python": platform.python_version(),
        },
        "hosts": sorted(runbook.hosts),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
