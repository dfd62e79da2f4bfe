"""The JSON beside the hidden-state shards: sidecars, manifest, record of the last verification.

A hidden-state store is a directory:

    plan.json                   written first: settings, and which rows go to which shard
    tokenizer.json              the dataset's, so that `eagle3 show DIR` needs nothing else
    states-00000.safetensors …  the shards (see `states_layout`)
    states-00000.json …         written after each shard: rows, tokens, bytes, sha256, samples
    manifest.json               written last: the store is complete
    verified.json               {"files": {NAME: {size, mtime_ns, inode, sha256}}} of the last
                                time that every byte of each file was read and hashed
    progress.json               how far the extraction is, or was when it ended
    .lock                       empty; held by the one extractor that may write

All but verified.json and progress.json, which hold times, depend on the plan alone and are the
same bytes however often the extraction was interrupted. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eagle3.dataset_manifest import FileEntry, dataset_digest
from eagle3.errors import Place, StoreError
from eagle3.extract_plan import PLAN, Plan, PlannedShard, command_to_continue, read_plan
from eagle3.files import sha256_file, write_json
from eagle3.json_lines import parse_json

__all__ = [
    "FORMAT",
    "LOCK",
    "MANIFEST",
    "PROGRESS",
    "VERIFIED",
    "VERSION",
    "Sample",
    "ShardRecord",
    "StatesManifest",
    "check_recorded",
    "hash_file",
    "read_shard_record",
    "read_states_manifest",
    "record_verification",
    "recorded_entries",
    "unfinished",
    "verified_entry",
]

FORMAT = "eagle3-hidden-states"
VERSION = 1
MANIFEST = "manifest.json"
VERIFIED = "verified.json"
PROGRESS = "progress.json"
LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Sample:
    """A row of a shard, without its tensors. `tokens` is its length, `supervised` of it masked 1."""

    id: str
    source: str
    tokens: int
    supervised: int
    truncated: bool

    def to_json(self) -> list[Any]:
        return [self.id, self.source, self.tokens, self.supervised, self.truncated]

    @classmethod
    def from_json(cls, value: Any) -> Sample:
        """Raises ValueError."""
        kinds = (str, str, int, int, bool)
        if not isinstance(value, list) or [type(item) for item in value] != list(kinds):
            raise ValueError("a sample is not [id, source, tokens, supervised, truncated]")
        return cls(*value)


@dataclass(frozen=True)
class ShardRecord:
    """A sidecar: a finished shard, its size in bytes and its sha256. `plan` is the plan's digest."""

    file: str
    plan: str
    first: int
    rows: int
    tokens: int
    bytes: int
    sha256: str
    samples: tuple[Sample, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"samples": [sample.to_json() for sample in self.samples]}


@dataclass(frozen=True)
class StatesManifest:
    """What a complete store holds. `files` is every file but itself, the record and progress."""

    plan: Plan
    supervised: int
    truncated: int
    bytes: int
    digest: str
    shards: Mapping[str, str]
    files: Mapping[str, FileEntry]

    @classmethod
    def of(
        cls, plan: Plan, records: list[ShardRecord], files: dict[str, FileEntry]
    ) -> StatesManifest:
        """The manifest of the shards in `records`; `files` are the others."""
        shards = {record.file: record.sha256 for record in records}
        samples = [sample for record in records for sample in record.samples]
        return cls(
            plan,
            supervised=sum(sample.supervised for sample in samples),
            truncated=sum(sample.truncated for sample in samples),
            bytes=sum(record.bytes for record in records),
            digest=dataset_digest(shards),
            shards=shards,
            files=files | {r.file: FileEntry(r.bytes, r.sha256) for r in records},
        )

    @property
    def samples(self) -> int:
        return self.plan.settings.samples

    @property
    def tokens(self) -> int:
        return self.plan.settings.tokens

    def to_json(self) -> dict[str, Any]:
        """Settings stand at the top, for the facts of the engine that compare single ones."""
        return {
            **self.plan.settings.to_json(),
            "format": FORMAT,
            "version": VERSION,
            "digest": self.digest,
            "plan_digest": self.plan.digest,
            "code_version": self.plan.code_version,
            "totals": {
                "samples": self.samples,
                "tokens": self.tokens,
                "supervised": self.supervised,
                "truncated": self.truncated,
                "shards": len(self.shards),
                "bytes": self.bytes,
            },
            "shards": dict(self.shards),
            "files": {name: asdict(entry) for name, entry in self.files.items()},
        }


def _read(path: Path, hint: str | None = None) -> dict[str, Any]:
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(
            f"cannot be read: {error.strerror}", place=Place(path), hint=hint
        ) from error
    except ValueError as error:
        raise StoreError(f"damaged: no JSON: {error}", place=Place(path)) from error
    if not isinstance(value, dict):
        raise StoreError("damaged: is not an object", place=Place(path))
    return value


def read_shard_record(directory: Path, shard: PlannedShard, plan_digest: str) -> ShardRecord:
    """The sidecar of `shard`, found to be of this plan; does not look at the shard itself.

    Raises StoreError when it is missing, damaged or says something else than the plan.
    """
    path = directory / shard.sidecar
    value = _read(path, "the extraction did not get to this shard, or its sidecar was removed")
    place = Place(path)
    try:
        record = ShardRecord(
            **{**value, "samples": tuple(Sample.from_json(item) for item in value["samples"])}
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"damaged: {error}", place=place) from error
    wanted = (shard.file, plan_digest, shard.first, shard.rows, shard.tokens)
    found = (record.file, record.plan, record.first, record.rows, record.tokens)
    if found != wanted:
        raise StoreError(f"says {found}; the plan says {wanted}", place=place)
    sums = (len(record.samples), sum(sample.tokens for sample in record.samples))
    if sums != (shard.rows, shard.tokens):
        raise StoreError("damaged: its samples do not sum up to its rows and tokens", place=place)
    if type(record.bytes) is not int or type(record.sha256) is not str:
        raise StoreError("damaged: bytes or sha256 is missing", place=place)
    return record


def read_states_manifest(directory: Path) -> StatesManifest:
    """The manifest of a complete store, found to fit plan and sidecars; reads no shard.

    Raises StoreError when it is missing (an unfinished store has none), damaged, of another
    format or version, or when plan or sidecars say something else.
    """
    path = directory / MANIFEST
    if not path.exists() and (directory / PLAN).exists():
        raise unfinished(directory)
    value = _read(
        path,
        f"no finished store is there; eagle3 extract … --out {directory} writes one, or continues it",
    )
    place = Place(path)
    if value.get("format") != FORMAT:
        raise StoreError(
            f"is a store of format {value.get('format')!r}, not {FORMAT!r}", place=place
        )
    if (version := value.get("version")) != VERSION:
        raise StoreError(
            f"is of format version {version}; this program reads version {VERSION}", place=place
        )
    plan = read_plan(directory)
    digest = plan.digest
    records = [read_shard_record(directory, shard, digest) for shard in plan.shards]
    try:
        files = {
            str(name): FileEntry(int(entry["bytes"]), str(entry["sha256"]))
            for name, entry in value["files"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"damaged: files: {error}", place=place) from error
    others = {name: entry for name, entry in files.items() if not name.endswith(".safetensors")}
    manifest = StatesManifest.of(plan, records, others)
    if (ours := manifest.to_json()) != value:
        keys = sorted(key for key in ours.keys() | value.keys() if ours.get(key) != value.get(key))
        raise StoreError(
            f"does not fit {PLAN} and the sidecars: {', '.join(keys)}",
            place=place,
            hint="run the extraction again: it keeps what is whole",
        )
    return manifest


def unfinished(directory: Path) -> StoreError:
    """The error about a store without a manifest: how far it is, and what to type to go on.

    Counts the shards that are there with their sizes; reads none. Raises StoreError where the
    plan itself is damaged.
    """
    plan = read_plan(directory)
    digest, samples = plan.digest, 0
    for shard in plan.shards:
        try:
            record = read_shard_record(directory, shard, digest)
            if (directory / shard.file).stat().st_size == record.bytes:
                samples += shard.rows
        except (StoreError, OSError):
            continue
    return StoreError(
        f"unfinished: {samples:,} of {plan.settings.samples:,} samples; "
        "run the extraction again to continue",
        place=Place(directory),
        hint=command_to_continue(plan, directory),
    )


def hash_file(path: Path) -> dict[str, Any]:
    """Read every byte of `path`: its entry in verified.json. Raises StoreError."""
    try:
        before = path.stat()
        entry = verified_entry(path, sha256_file(path))
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", place=Place(path)) from error
    if (before.st_size, before.st_mtime_ns) != (entry["size"], entry["mtime_ns"]):
        raise StoreError("changed while it was read", place=Place(path))
    return entry


def verified_entry(path: Path, sha256: str) -> dict[str, Any]:
    """The entry of a file in verified.json; `sha256` was taken of its bytes just now."""
    status = path.stat()
    return {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "inode": status.st_ino,
        "sha256": sha256,
    }


def record_verification(directory: Path, entries: Mapping[str, dict[str, Any]]) -> None:
    """Write verified.json, unless it says so already.

    Entries are made when a file is hashed, not here: a file that changed since must not pass.
    """
    if _verified(directory) != entries:
        write_json(directory / VERIFIED, {"files": dict(entries)})


def _verified(directory: Path) -> dict[str, Any]:
    try:
        files = _read(directory / VERIFIED)["files"]
    except (StoreError, KeyError):
        return {}
    return files if isinstance(files, dict) else {}


def recorded_entries(directory: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The entries of those of `names` that are on disk as they were when they were hashed."""
    files = _verified(directory)
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        entry = files.get(name)
        try:
            if isinstance(entry, dict) and entry == verified_entry(
                directory / name, entry["sha256"]
            ):
                found[name] = entry
        except (OSError, KeyError):
            continue
    return found


def check_recorded(directory: Path, manifest: StatesManifest) -> None:
    """Compare size, mtime and inode of each file with verified.json: `checksums: recorded`.

    Reads no shard. Raises StoreError naming the first file that changed or was never verified.
    """
    wanted = {name: entry.sha256 for name, entry in manifest.files.items()}
    wanted[MANIFEST] = sha256_file(directory / MANIFEST)
    found = recorded_entries(directory, wanted)
    for name, sha256 in wanted.items():
        if name not in found or found[name]["sha256"] != sha256:
            raise StoreError(
                "is not as it was when it was last verified",
                place=Place(directory / name),
                hint=f"read every byte again: eagle3 show {directory} --verify",
            )
