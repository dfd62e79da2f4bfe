"""Digests of what a run goes by besides its runbook: the variables, and the inventory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from runbooks.engine.model.host import Host

__all__ = ["inventory_digest", "variables_digest"]

# Of a host's data only its address counts; passwords and keys stand there too.
_ADDRESS = ("ssh_hostname", "ssh_port", "ssh_user")


def inventory_digest(fleet: Mapping[str, Host]) -> str:
    """SHA-256 of every host: name, kind, groups, address, roots, paths."""
    return _digest([_host(fleet[name]) for name in sorted(fleet)])


def _host(host: Host) -> dict[str, Any]:
    return {
        "name": host.name,
        "kind": host.kind,
        "groups": sorted(host.groups),
        "roots": {name: asdict(root) for name, root in host.roots.items()},
        "path": list(host.path),
        "state": host.state,
        "guest_of": host.guest_of,
        "address": {key: host.data[key] for key in _ADDRESS if key in host.data},
    }


def variables_digest(variables: Mapping[str, Any]) -> str:
    """SHA-256 of the resolved variables."""
    return _digest(dict(variables))


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()
