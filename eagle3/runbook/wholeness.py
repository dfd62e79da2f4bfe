"""Whether the files of a store are those that its manifest vouches for."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from eagle3.dataset_manifest import MANIFEST, VERIFIED, FileEntry
from eagle3.runbook.look import LIST, Asks, Entry, Part, Seen, entries, look
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Unknown

__all__ = ["Beside", "fault", "flawed_bytes"]

# Files beside those of the manifest that belong to a store: records, a lock, and what a killed
# writer left under its temporary name.
_BESIDE = frozenset({MANIFEST, VERIFIED, "progress.json", ".lock"})
_PARTIAL = re.compile(r"\..+\.partial")
# The least that a disk gives, for the time that reading every byte may take; and the rest.
_BYTES_PER_SECOND, _SECONDS = 50_000_000, 600

# One process for all files, and a script whose length does not grow with the store.
_SUMS = r"""find -L . ! -name . -prune -type f ! -name '.*' -exec sha256sum -- {} + 2>/dev/null |
  sed 's/^/sum	/'
"""


@dataclass(frozen=True)
class Beside:
    """More to read in the look that reads every byte: its shell text, bytes, and verdict."""

    body: str
    bytes: int
    judge: Callable[[Seen], str | None]


def fault(seen: Seen, vouched: Mapping[str, FileEntry]) -> str | None:
    """What is wrong by names, sizes and the record of the last verification; None for nothing.

    `seen` has the list of files, the manifest and verified.json (`checksums: recorded`).
    """
    there = entries(seen)
    return _shape_fault(there, vouched) or _record_fault(seen, there, vouched)


def flawed_bytes(
    label: str,
    path: str,
    seen: Seen,
    vouched: Mapping[str, FileEntry],
    context: Context,
    beside: Beside | None = None,
) -> Asks[str | None]:
    """What is wrong by every byte (`checksums: full`); None for nothing."""
    there = entries(seen)
    if problem := _shape_fault(there, vouched):
        return problem
    total = sum(entry.bytes for entry in vouched.values())
    body = _SUMS + LIST
    if beside is not None:
        total += beside.bytes
        body += beside.body
    timeout = _SECONDS + total // _BYTES_PER_SECOND
    answer = yield from look(label, [Part("sums", path, body)], context, timeout)
    after = answer["sums"]
    now = entries(after)
    lines = (line.partition("  ./") for line in after.values("sum"))
    sums = {name: sha256 for sha256, _, name in lines}
    for name, entry in vouched.items():
        if now.get(name) != there[name]:
            raise Unknown(f"{seen.path}/{name} changed while it was read")
        if not re.fullmatch("[0-9a-f]{64}", sums.get(name, "")):
            raise Unknown(f"{seen.path}/{name}: it cannot be read")
        if sums[name] != entry.sha256:
            return f"{name} is damaged: its sha256 is not the manifest's"
    return beside.judge(after) if beside is not None else None


def _shape_fault(there: Mapping[str, Entry], vouched: Mapping[str, FileEntry]) -> str | None:
    for name, entry in sorted(vouched.items()):
        found = there.get(name)
        if found is None:
            return f"{name} is missing"
        if not found.regular:
            return f"{name} is no file"
        if found.size != entry.bytes:
            return f"{name} has {found.size:,} bytes, its manifest says {entry.bytes:,}"
    strangers = [
        name
        for name in sorted(there)
        if name not in vouched and name not in _BESIDE and not _PARTIAL.fullmatch(name)
    ]
    if strangers:
        return f"holds {', '.join(strangers[:3])}, which its manifest does not name"
    return None


def _record_fault(
    seen: Seen, there: Mapping[str, Entry], vouched: Mapping[str, FileEntry]
) -> str | None:
    if VERIFIED not in seen.files:
        return "was never verified"
    record = seen.json(VERIFIED)
    files = record.get("files") if isinstance(record, dict) else None
    if not isinstance(files, dict):
        raise Unknown(f"{PurePosixPath(seen.path) / VERIFIED}: damaged: files is no object")
    wanted = {name: entry.sha256 for name, entry in sorted(vouched.items())}
    wanted[MANIFEST] = hashlib.sha256(seen.files[MANIFEST]).hexdigest()
    for name, sha256 in wanted.items():
        if name not in there:
            raise Unknown(f"{seen.path}/{name} went away while it was looked at")
        if there[name].mtime_ns is None:
            raise Unknown(f"the stat of this host tells no time for {name}")
        if problem := _difference(files.get(name), there[name], sha256):
            return f"{name} {problem}"
    return None


def _difference(recorded: Any, found: Entry, sha256: str) -> str | None:
    if not isinstance(recorded, dict):
        return "was never verified"
    now = {
        "size": found.size,
        "mtime_ns": found.mtime_ns,
        "inode": found.inode,
        "sha256": sha256,
    }
    if recorded == now:
        return None
    words = {"size": "size", "mtime_ns": "mtime", "inode": "inode", "sha256": "sha256"}
    differing = [word for key, word in words.items() if recorded.get(key) != now[key]]
    return f"is not as it was when it was last verified ({', '.join(differing) or 'record'})"
