"""The store of an extraction before the first forward and after the last: what is kept, the end."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagle3.dataset_manifest import FileEntry
from eagle3.errors import Place, StoreError
from eagle3.extract_plan import (
    PLAN,
    Plan,
    PlannedShard,
    command_to_continue,
    differences,
    read_plan,
)
from eagle3.files import atomic_write, fsync_folder, sha256_file, write_json
from eagle3.forecast import bytes_per_token
from eagle3.states_manifest import (
    LOCK,
    MANIFEST,
    PROGRESS,
    VERIFIED,
    ShardRecord,
    StatesManifest,
    hash_file,
    read_shard_record,
    read_states_manifest,
    record_verification,
    recorded_entries,
)
from eagle3.tokenizers import TOKENIZER_FILE

__all__ = ["Kept", "finish_store", "prepare_store"]

_OTHER = "extract to another directory, or delete this one first"
_PARTIAL = re.compile(r"\.(states-[0-9]{5}\.(safetensors|json)|[a-z]+\.json)\.partial")


@dataclass
class Kept:
    """What an earlier run left that is whole.

    `complete` is the manifest when nothing is left to do; `verified` has the entry of every file
    that was read and hashed, now or (recorded) before.
    """

    began_before: bool
    records: dict[int, ShardRecord] = field(default_factory=dict)
    verified: dict[str, dict[str, Any]] = field(default_factory=dict)
    complete: StatesManifest | None = None

    def record(self, out: Path) -> None:
        record_verification(out, self.verified)


def prepare_store(out: Path, plan: Plan, data: Path, *, trust_recorded: bool) -> Kept:
    """Make `out` a store of `plan` without anything damaged or half written.

    The caller holds the lock. A whole and complete store is left byte for byte. Raises StoreError
    when `out` holds another plan's store or files of something else, and touches nothing then;
    when a shard cannot be read (no permission, a failing disk); when the disk has not the space.
    """
    began = _check_owner(out, plan)
    _check_strangers(out, plan)
    for path in out.iterdir():
        if _PARTIAL.fullmatch(path.name):
            path.unlink()
    kept = Kept(began)
    if not began:
        write_json(out / PLAN, plan.to_json())
    digest = plan.digest
    names = [name for shard in plan.shards for name in (shard.file, shard.sidecar)]
    known = recorded_entries(out, names) if trust_recorded else {}
    damaged = []
    for shard in plan.shards:
        try:
            record, hashed = _whole(out, shard, digest, known)
        except StoreError as error:
            if _unknown(error):
                raise
            damaged.append(shard)
        else:
            kept.records[shard.index] = record
            kept.verified |= hashed
    if damaged:
        _not_complete(out)
    for shard in damaged:
        (out / shard.sidecar).unlink(missing_ok=True)
        (out / shard.file).unlink(missing_ok=True)
    _keep_tokenizer(out, data, kept)
    kept.verified[PLAN] = hash_file(out / PLAN)
    if not damaged:
        kept.complete = _complete(out, kept)
    else:
        _check_total_space(out, plan, damaged)
    return kept


def _unknown(error: StoreError) -> bool:
    """Whether a file could not be read, which does not say that it is damaged: no reason to redo."""
    cause = error.__cause__
    return isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)


def _check_owner(out: Path, plan: Plan) -> bool:
    """Whether an earlier run of this plan began here."""
    if not (out / PLAN).exists():
        if (out / MANIFEST).exists() or any(out.glob("states-*")):
            raise StoreError(f"holds a store without a {PLAN}", place=Place(out), hint=_OTHER)
        return False
    there = read_plan(out)
    if there.digest == plan.digest:
        return True
    differing = differences(there.settings, plan.settings) or ["the assignment of rows to shards"]
    raise StoreError(
        f"holds a store of another plan: {'; '.join(differing)}",
        place=Place(out),
        hint=f"{_OTHER}; or go on with its plan: {command_to_continue(there, out)}",
    )


def _check_strangers(out: Path, plan: Plan) -> None:
    own = {PLAN, MANIFEST, VERIFIED, PROGRESS, LOCK, TOKENIZER_FILE}
    for shard in plan.shards:
        own |= {shard.file, shard.sidecar}
    for path in sorted(out.iterdir()):
        if path.name not in own and not _PARTIAL.fullmatch(path.name):
            raise StoreError(
                f"holds {path.name}, which no extraction of this plan wrote",
                place=Place(out),
                hint=_OTHER,
            )


def _whole(
    out: Path, shard: PlannedShard, plan_digest: str, known: dict[str, dict[str, Any]]
) -> tuple[ShardRecord, dict[str, dict[str, Any]]]:
    """The record of a shard that is as its sidecar says; StoreError otherwise."""
    record = read_shard_record(out, shard, plan_digest)
    entry = known.get(shard.file) or hash_file(out / shard.file)
    found, wanted = (entry["size"], entry["sha256"]), (record.bytes, record.sha256)
    if found != wanted:
        raise StoreError(f"is of {found}; wanted {wanted}", place=Place(out / shard.file))
    return record, {shard.file: entry, shard.sidecar: hash_file(out / shard.sidecar)}


def _not_complete(out: Path) -> None:
    """Take the manifest away, before anything else of a store changes."""
    if (out / MANIFEST).exists():
        (out / MANIFEST).unlink()
        fsync_folder(out)


def _keep_tokenizer(out: Path, data: Path, kept: Kept) -> None:
    """The dataset's tokenizer.json, copied unless it is there with the same bytes."""
    source, copy = data / TOKENIZER_FILE, out / TOKENIZER_FILE
    if not copy.is_file() or sha256_file(copy) != sha256_file(source):
        _not_complete(out)
        with open(source, "rb") as stream, atomic_write(copy) as written:
            shutil.copyfileobj(stream, written)
    kept.verified[TOKENIZER_FILE] = hash_file(copy)


def _complete(out: Path, kept: Kept) -> StatesManifest | None:
    """The manifest, when it is there and right; brings verified.json up to date if it is not."""
    try:
        manifest = read_states_manifest(out)
    except StoreError:
        return None
    found = {name: (entry["size"], entry["sha256"]) for name, entry in kept.verified.items()}
    if found != {name: (entry.bytes, entry.sha256) for name, entry in manifest.files.items()}:
        return None
    kept.verified[MANIFEST] = hash_file(out / MANIFEST)
    kept.record(out)
    return manifest


def _check_total_space(out: Path, plan: Plan, missing: list[PlannedShard]) -> None:
    """Before hours of work: is there space for all that is missing?"""
    settings = plan.settings
    needed = sum(shard.tokens for shard in missing) * bytes_per_token(
        settings.hidden_size, len(settings.layer_ids)
    )
    free = shutil.disk_usage(out).free
    if free < needed:
        raise StoreError(
            f"not enough space: {needed:,} bytes are still to be written, {free:,} are free",
            place=Place(out),
            hint="free some space and run the same command again; finished shards are kept",
        )


def finish_store(out: Path, plan: Plan, records: list[ShardRecord], kept: Kept) -> StatesManifest:
    """Write manifest.json, the last of all that depends on the plan, and record what was hashed."""
    for shard in plan.shards:
        if shard.sidecar not in kept.verified:
            kept.verified[shard.sidecar] = hash_file(out / shard.sidecar)
    shards = {record.file for record in records}
    files = {
        name: FileEntry(entry["size"], entry["sha256"])
        for name, entry in kept.verified.items()
        if name not in shards
    }
    write_json(out / MANIFEST, StatesManifest.of(plan, records, files).to_json())
    kept.verified[MANIFEST] = hash_file(out / MANIFEST)
    kept.record(out)
    return read_states_manifest(out)
