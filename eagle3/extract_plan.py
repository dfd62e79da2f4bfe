"""The plan of an extraction: which rows go to which shard and batch, and what decides their bits.

Everything that may change a bit of the store is in `Settings`, and the plan's digest is taken of
it. plan.json is written before the first shard; a store is continued by the same plan only. That
includes the number of threads and the versions of torch and transformers: measured on torch
2.13.0 with MKL, one and two threads give other last bits for some row lengths.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from eagle3.errors import Place, StoreError, UsageError
from eagle3.files import canonical_json
from eagle3.json_lines import parse_json

__all__ = [
    "PLAN",
    "PLAN_FORMAT",
    "Plan",
    "PlannedShard",
    "Settings",
    "batch_ranges",
    "command_to_continue",
    "differences",
    "plan_shards",
    "read_plan",
]

PLAN = "plan.json"
PLAN_FORMAT = "eagle3-extraction-plan"
VERSION = 1


@dataclass(frozen=True)
class Settings:
    """What an extraction depends on. Digests are SHA-256 in hexadecimal.

    `extractor` counts changes of this program that change bits; `samples` and `tokens` are what
    is extracted, which `limit` (the first N rows of the dataset, None for all) may make less.
    """

    extractor: int
    backend: str
    device: str
    cpu: str
    torch: str
    transformers: str
    threads: int
    dataset_digest: str
    target_digest: str
    tokenizer_digest: str
    template_digest: str
    hidden_size: int
    num_layers: int
    layer_ids: tuple[int, ...]
    layer_convention: str
    norm_state: str
    compute_dtype: str
    storage_dtype: str
    batch_size: int
    shard_tokens: int
    limit: int | None
    samples: int
    tokens: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"layer_ids": list(self.layer_ids)}


@dataclass(frozen=True, slots=True)
class PlannedShard:
    """Rows `first` to `first + rows - 1` of the dataset, counted from 0, and their tokens."""

    index: int
    first: int
    rows: int
    tokens: int

    @property
    def file(self) -> str:
        return f"states-{self.index:05d}.safetensors"

    @property
    def sidecar(self) -> str:
        return f"states-{self.index:05d}.json"


@dataclass(frozen=True)
class Plan:
    """`code_version` is the eagle3 that made the plan; it is no part of the digest."""

    settings: Settings
    shards: tuple[PlannedShard, ...]
    code_version: str

    @property
    def digest(self) -> str:
        """SHA-256 over the canonical JSON of format version, settings and shards."""
        content = {
            "version": VERSION,
            "settings": self.settings.to_json(),
            "shards": [[shard.first, shard.rows, shard.tokens] for shard in self.shards],
        }
        return hashlib.sha256(canonical_json(content)).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {
            "format": PLAN_FORMAT,
            "version": VERSION,
            "digest": self.digest,
            "code_version": self.code_version,
            "settings": self.settings.to_json(),
            "shards": [[shard.first, shard.rows, shard.tokens] for shard in self.shards],
        }


def plan_shards(lengths: Sequence[int], shard_tokens: int) -> tuple[PlannedShard, ...]:
    """Rows of `lengths` tokens, in order, to shards of at most `shard_tokens` tokens.

    A row longer than that has a shard of its own. Raises UsageError when `shard_tokens` < 1.
    """
    if shard_tokens < 1:
        raise UsageError(f"{shard_tokens} tokens a shard; write 1 or more")
    shards: list[PlannedShard] = []
    first = tokens = 0
    for row, length in enumerate(lengths):
        if row > first and tokens + length > shard_tokens:
            shards.append(PlannedShard(len(shards), first, row - first, tokens))
            first, tokens = row, 0
        tokens += length
    if len(lengths) > first:
        shards.append(PlannedShard(len(shards), first, len(lengths) - first, tokens))
    return tuple(shards)


def batch_ranges(shard: PlannedShard, batch_size: int) -> Iterator[range]:
    """The rows of each batch of a shard, in order; the last may be smaller.

    Batches never cross shards, so that a shard does not depend on where a resume began.
    """
    if batch_size < 1:
        raise UsageError(f"a batch of {batch_size} rows; write 1 or more")
    end = shard.first + shard.rows
    for first in range(shard.first, end, batch_size):
        yield range(first, min(first + batch_size, end))


def differences(theirs: Settings, ours: Settings) -> list[str]:
    """`NAME theirs there, ours here` for every setting that differs."""
    there, here = theirs.to_json(), ours.to_json()
    return [
        f"{name} {_shown(there[name])} there, {_shown(here[name])} here"
        for name in there
        if there[name] != here[name]
    ]


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return "none" if value is None else str(value)


def command_to_continue(plan: Plan, out: Path) -> str:
    """What to type to go on; a plan knows target and dataset by their digests only."""
    settings = plan.settings
    words = ["eagle3 extract --target TARGET --data DATASET --out", shlex.quote(str(out))]
    layers = ",".join(map(str, settings.layer_ids))
    words.append(f"--layers {layers} --shard-tokens {settings.shard_tokens}")
    words.append(f"--batch-size {settings.batch_size} --dtype {settings.compute_dtype}")
    if settings.limit is not None:
        words.append(f"--limit {settings.limit}")
    return " ".join(words)


def read_plan(directory: Path) -> Plan:
    """The plan in `directory`; StoreError when it is missing, damaged or of another version."""
    path = directory / PLAN
    place = Place(path)
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(
            f"cannot be read: {error.strerror}", place=place, hint="no extraction began there"
        ) from error
    except ValueError as error:
        raise StoreError(f"damaged: no JSON: {error}", place=place) from error
    if not isinstance(value, dict) or value.get("format") != PLAN_FORMAT:
        raise StoreError("is no plan of an extraction", place=place)
    if (version := value.get("version")) != VERSION:
        raise StoreError(
            f"is of version {version}; this program reads version {VERSION}",
            place=place,
            hint="read it with the eagle3-runbooks that wrote it, or extract to another directory",
        )
    try:
        plan = Plan(
            _settings(value["settings"]),
            tuple(
                PlannedShard(index, int(first), int(rows), int(tokens))
                for index, (first, rows, tokens) in enumerate(value["shards"])
            ),
            str(value["code_version"]),
        )
        found = plan.digest
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"damaged: {error}", place=place) from error
    if found != value.get("digest"):
        raise StoreError("damaged: its digest is not that of its content", place=place)
    return plan


def _settings(value: Mapping[str, Any]) -> Settings:
    if set(value) != {field.name for field in fields(Settings)}:
        raise ValueError("its settings are not those of this version")
    return Settings(**{**value, "layer_ids": tuple(value["layer_ids"])})
