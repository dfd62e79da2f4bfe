"""The project's key, what it signs, and files that come into being whole or not at all.

The key lies beside the journals. Digests of facts in a saved plan are made with it, so that a
plan tells nobody what a masked value is, and a plan that was edited is known.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.host import Host
from runbooks.engine.plan.durable import canonical

__all__ = [
    "host_digests",
    "inventory_digest",
    "keyed",
    "known_key",
    "project_key",
    "put",
    "put_new",
]

_KEY = "key"
_SIZE = 32
# Where a host is reached; never how one logs in.
_ADDRESS = ("ssh_hostname", "ssh_port", "ssh_user")


def project_key(runs: Path) -> bytes:
    """The 32 bytes of `RUNBOOK_RUNS/key`, made at the first use.

    RunbookError (usage) where it can be neither read nor made.
    """
    file = runs / _KEY
    try:
        if not file.exists():
            runs.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                put_new(file, secrets.token_bytes(_SIZE))
        key = file.read_bytes()
    except OSError as error:
        raise RunbookError.usage(
            f"the key of saved plans cannot be read or made: {error.strerror}",
            where=str(file),
            hint="set RUNBOOK_RUNS to a folder that you may write",
        ) from None
    if len(key) != _SIZE:
        raise RunbookError.usage(
            f"the key of saved plans has {len(key)} bytes, want {_SIZE}",
            where=str(file),
            hint="remove it; plans made with it are then refused",
        )
    return key


def known_key(runs: Path) -> bytes | None:
    """The key where there is one; see `project_key`."""
    return project_key(runs) if (runs / _KEY).exists() else None


def keyed(key: bytes, value: Any) -> str:
    """HMAC-SHA256 over the canonical JSON of a value, as hexadecimal digits."""
    return hmac.new(key, canonical(value), hashlib.sha256).hexdigest()


def host_digests(hosts: Mapping[str, Host]) -> dict[str, str]:
    """What the inventory says of each host, as SHA-256; without passwords and keys."""
    return {name: _host_digest(host) for name, host in sorted(hosts.items())}


def inventory_digest(hosts: Mapping[str, Host]) -> str:
    """Of all hosts together."""
    return hashlib.sha256(canonical(host_digests(hosts))).hexdigest()


def _host_digest(host: Host) -> str:
    roots = {
        name: [str(root.path), root.owner, root.filesystem, root.mounted, root.reserve]
        for name, root in host.roots.items()
    }
    described = {
        "name": host.name,
        "kind": host.kind,
        "groups": sorted(host.groups),
        "roots": roots,
        "path": host.path,
        "state": host.state,
        "guest_of": host.guest_of,
        "address": {key: host.data[key] for key in _ADDRESS if key in host.data},
    }
    return hashlib.sha256(canonical(described)).hexdigest()


def put(file: Path, content: bytes) -> None:
    """Write a private file whole: a temporary name beside it, fsync, rename; OSError."""
    temporary = _temporary(file, content)
    try:
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync(file.parent)


def put_new(file: Path, content: bytes) -> None:
    """As `put`, and FileExistsError where the file is there already, whoever made it."""
    temporary = _temporary(file, content)
    try:
        # A link is made whole and once, as O_EXCL is, and carries its content from the start.
        os.link(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(file.parent)


def _temporary(file: Path, content: bytes) -> Path:
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
