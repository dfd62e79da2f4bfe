"""The manifest of a merged dataset, and the record of its last full verification.

A dataset is a directory:

    data-00000.parquet …   rows in shuffled order (see `dataset`)
    dropped.jsonl          {"id", "source", "reason"} of each row that was left out
    tokenizer.json         the target's tokenizer, so that `eagle3 show DIR` needs nothing else
    manifest.json          written last: what is here, of which inputs, with checksums
    verified.json          {"files": {NAME: {size, mtime_ns, inode, sha256}}} of the last time that
                           every byte was read; `checksums: recorded` compares it with `stat`.
                           "inputs": the same of each source's input, when a merge last read it

All but verified.json depend on inputs and settings alone: no time, no machine, no absolute path.
Standard library only: the engine and `eagle3 estimate` read it without pyarrow.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eagle3.errors import Place, StoreError
from eagle3.files import canonical_json, sha256_file, write_json
from eagle3.json_lines import parse_json

__all__ = [
    "DROPPED",
    "FORMAT",
    "MANIFEST",
    "SHUFFLE",
    "VERIFIED",
    "VERSION",
    "FileEntry",
    "InputEntry",
    "Manifest",
    "ShardEntry",
    "SourceEntry",
    "check_recorded",
    "dataset_digest",
    "parse_manifest",
    "read_manifest",
    "record_inputs",
    "record_verification",
    "stat_entry",
    "store_format",
]

FORMAT = "eagle3-dataset"
VERSION = 1
MANIFEST = "manifest.json"
VERIFIED = "verified.json"
DROPPED = "dropped.jsonl"
SHUFFLE = "sha256(seed NUL source NUL id)"
_SHARD_NAME = re.compile(r"data-[0-9]{5}\.parquet")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class InputEntry:
    """An input file: its name without a directory, size in bytes, sha256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class SourceEntry:
    """What one source gave. Counts of rows, but `tokens` and `supervised` (tokens)."""

    input: InputEntry
    samples: int
    tokens: int
    supervised: int
    truncated: int
    duplicates: int
    dropped: Mapping[str, int]


@dataclass(frozen=True)
class FileEntry:
    """A file of the store: size in bytes, sha256."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class ShardEntry:
    """A Parquet shard: its rows and their tokens, size in bytes, sha256."""

    file: str
    rows: int
    tokens: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """A validated manifest.json. Digests are SHA-256 in hexadecimal."""

    digest: str
    config_digest: str
    seed: int
    max_tokens: int
    target_digest: str
    tokenizer_digest: str
    template_digest: str
    family: str
    rules: int
    sources: Mapping[str, SourceEntry]
    excluded: tuple[str, ...]
    shards: tuple[ShardEntry, ...]
    files: Mapping[str, FileEntry]

    @property
    def samples(self) -> int:
        return sum(source.samples for source in self.sources.values())

    @property
    def tokens(self) -> int:
        return sum(source.tokens for source in self.sources.values())

    @property
    def supervised(self) -> int:
        return sum(source.supervised for source in self.sources.values())

    @property
    def truncated(self) -> int:
        return sum(source.truncated for source in self.sources.values())

    @property
    def duplicates(self) -> int:
        return sum(source.duplicates for source in self.sources.values())

    @property
    def dropped(self) -> int:
        return sum(sum(source.dropped.values()) for source in self.sources.values())

    @property
    def hashed_files(self) -> dict[str, FileEntry]:
        """Every file that the manifest vouches for."""
        shards = {shard.file: FileEntry(shard.bytes, shard.sha256) for shard in self.shards}
        return shards | dict(self.files)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "shuffle": SHUFFLE,
            **asdict(self),
            "excluded": list(self.excluded),
            "shards": [asdict(shard) for shard in self.shards],
            "totals": {
                key: getattr(self, key)
                for key in ("samples", "tokens", "supervised", "truncated", "duplicates", "dropped")
            },
        }


def dataset_digest(shards: Mapping[str, str]) -> str:
    """The dataset's digest: SHA-256 over the canonical JSON of `{shard file: sha256}`."""
    return hashlib.sha256(canonical_json(dict(shards))).hexdigest()


class _Fields:
    """Reads typed fields of a JSON object; StoreError names the field."""

    def __init__(self, value: Any, place: Place, name: str):
        self.place, self.name = place, name
        if not isinstance(value, dict):
            raise self.fail("", "is not an object")
        self.value = value

    def fail(self, key: str, what: str) -> StoreError:
        path = ".".join(part for part in (self.name, key) if part) or "manifest"
        return StoreError(f"damaged: {path} {what}", place=self.place)

    def text(self, key: str) -> str:
        found = self.value.get(key)
        if not isinstance(found, str):
            raise self.fail(key, "is missing or no string")
        return found

    def sha256(self, key: str) -> str:
        found = self.text(key)
        if not re.fullmatch("[0-9a-f]{64}", found):
            raise self.fail(key, "is no SHA-256")
        return found

    def number(self, key: str, *, least: int | None = 0) -> int:
        found = self.value.get(key)
        if type(found) is not int or (least is not None and found < least):
            raise self.fail(key, "is missing or no count")
        return found

    def items(self, key: str) -> list[Any]:
        found = self.value.get(key)
        if not isinstance(found, list):
            raise self.fail(key, "is missing or no list")
        return found

    def at(self, key: str) -> _Fields:
        return _Fields(self.value.get(key), self.place, f"{self.name}.{key}".lstrip("."))

    def named(self, key: str) -> list[tuple[str, _Fields]]:
        inner = self.at(key)
        return [(name, inner.at(name)) for name in inner.value]


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        hint = None
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            hint = (
                "no finished store is there; an interrupted merge leaves none: "
                f"eagle3 merge … --out {path.parent} writes a dataset"
            )
        raise StoreError(
            f"cannot be read: {error.strerror}", place=Place(path), hint=hint
        ) from error
    except ValueError as error:
        raise StoreError(f"damaged: no JSON: {error}", place=Place(path)) from error
    if not isinstance(value, dict):
        raise StoreError("damaged: is not an object", place=Place(path))
    return value


def store_format(directory: Path) -> str:
    """The `format` of the store in `directory`; StoreError when there is no manifest."""
    return _Fields(_read_object(directory / MANIFEST), Place(directory / MANIFEST), "").text(
        "format"
    )


def read_manifest(directory: Path) -> Manifest:
    """The validated manifest of the dataset in `directory`.

    Raises StoreError when it is missing, damaged, of another format or version, or when its
    totals are not the sums of its sources and shards. Reads no shard.
    """
    path = directory / MANIFEST
    return parse_manifest(_read_object(path), Place(path))


def parse_manifest(value: Any, place: Place) -> Manifest:
    """A manifest's JSON value, validated as `read_manifest` does; the engine reads it over SSH."""
    top = _Fields(value, place, "")
    if (found := top.text("format")) != FORMAT:
        raise StoreError(f"is a store of format {found!r}, not {FORMAT!r}", place=place)
    if (version := top.value.get("version")) != VERSION:
        raise StoreError(
            f"is of format version {version}; this program reads version {VERSION}",
            place=place,
            hint="read it with the eagle3-runbooks that wrote it, or merge again with --replace",
        )
    manifest = Manifest(
        digest=top.sha256("digest"),
        config_digest=top.sha256("config_digest"),
        seed=top.number("seed", least=None),
        max_tokens=top.number("max_tokens", least=1),
        target_digest=top.sha256("target_digest"),
        tokenizer_digest=top.sha256("tokenizer_digest"),
        template_digest=top.sha256("template_digest"),
        family=top.text("family"),
        rules=top.number("rules"),
        sources={name: _source(fields) for name, fields in top.named("sources")},
        excluded=tuple(str(name) for name in top.items("excluded")),
        shards=tuple(
            _shard(_Fields(item, place, f"shards[{index}]"))
            for index, item in enumerate(top.items("shards"))
        ),
        files={name: _file(name, fields) for name, fields in top.named("files")},
    )
    _check_sums(manifest, top)
    return manifest


def _source(fields: _Fields) -> SourceEntry:
    given = fields.at("input")
    dropped = fields.at("dropped")
    return SourceEntry(
        input=InputEntry(given.text("name"), given.number("size"), given.sha256("sha256")),
        samples=fields.number("samples"),
        tokens=fields.number("tokens"),
        supervised=fields.number("supervised"),
        truncated=fields.number("truncated"),
        duplicates=fields.number("duplicates"),
        dropped={reason: dropped.number(reason) for reason in dropped.value},
    )


def _shard(fields: _Fields) -> ShardEntry:
    name = fields.text("file")
    # Names come from a file: they must not lead out of the store.
    if not _SHARD_NAME.fullmatch(name):
        raise fields.fail("file", f"is {name!r}, no name of a shard")
    return ShardEntry(
        file=name,
        rows=fields.number("rows"),
        tokens=fields.number("tokens"),
        bytes=fields.number("bytes"),
        sha256=fields.sha256("sha256"),
    )


def _file(name: str, fields: _Fields) -> FileEntry:
    if not _FILE_NAME.fullmatch(name):
        raise fields.fail("", "is no name of a file")
    return FileEntry(fields.number("bytes"), fields.sha256("sha256"))


def _check_sums(manifest: Manifest, top: _Fields) -> None:
    totals = top.at("totals")
    for key in totals.value:
        if totals.number(key) != getattr(manifest, key, None):
            raise totals.fail(key, "is not the sum over the sources")
    if sum(shard.rows for shard in manifest.shards) != manifest.samples:
        raise top.fail("shards", "have not the rows of the sources together")
    if sum(shard.tokens for shard in manifest.shards) != manifest.tokens:
        raise top.fail("shards", "have not the tokens of the sources together")
    if dataset_digest({shard.file: shard.sha256 for shard in manifest.shards}) != manifest.digest:
        raise top.fail("digest", "is not that of the shards")


def stat_entry(status: os.stat_result, sha256: str) -> dict[str, Any]:
    """The entry of a file in verified.json."""
    return {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "inode": status.st_ino,
        "sha256": sha256,
    }


def _recorded(path: Path, sha256: str) -> dict[str, Any]:
    return stat_entry(path.stat(), sha256)


def record_verification(directory: Path, manifest: Manifest) -> None:
    """Write verified.json. Only after every byte was read and found as `manifest` says.

    What it says of the inputs stays.
    """
    files = {
        name: _recorded(directory / name, entry.sha256)
        for name, entry in manifest.hashed_files.items()
    }
    files[MANIFEST] = _recorded(directory / MANIFEST, sha256_file(directory / MANIFEST))
    record: dict[str, Any] = {"files": files}
    if inputs := _recorded_inputs(directory):
        record["inputs"] = inputs
    write_json(directory / VERIFIED, record)


def record_inputs(directory: Path, inputs: Mapping[str, Mapping[str, Any]]) -> None:
    """Write into verified.json the `stat_entry` of each source's input, unless it says so already.

    Only of inputs that were read and found as the manifest says; needs a record of the files.
    """
    given = {name: dict(entry) for name, entry in inputs.items()}
    if _recorded_inputs(directory) != given:
        record = _read_object(directory / VERIFIED)
        write_json(directory / VERIFIED, record | {"inputs": given})


def _recorded_inputs(directory: Path) -> dict[str, Any]:
    """Nothing where verified.json is absent or damaged, or older than its inputs."""
    try:
        inputs = _read_object(directory / VERIFIED).get("inputs")
    except StoreError:
        return {}
    return inputs if isinstance(inputs, dict) else {}


def check_recorded(directory: Path, manifest: Manifest) -> None:
    """Compare each file's size, mtime and inode with verified.json: `checksums: recorded`.

    Reads no shard. Raises StoreError naming the first file that is missing, that changed since,
    or that was never verified.
    """
    files = _Fields(_read_object(directory / VERIFIED), Place(directory / VERIFIED), "").at("files")
    wanted = {name: entry.sha256 for name, entry in manifest.hashed_files.items()}
    wanted[MANIFEST] = sha256_file(directory / MANIFEST)
    for name, sha256 in wanted.items():
        path = directory / name
        try:
            now = _recorded(path, sha256)
        except OSError as error:
            raise StoreError(f"cannot be read: {error.strerror}", place=Place(path)) from error
        if files.value.get(name) != now:
            raise StoreError(
                "is not as it was when it was last verified",
                place=Place(path),
                hint=f"read every byte again: eagle3 show {directory} --verify",
            )
