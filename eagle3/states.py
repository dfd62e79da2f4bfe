"""Reads hidden-state stores. What is in the directory: `states_manifest`; in a shard:
`states_layout`.

    store = StateStore.open(directory)
    for row in store.rows():
        row.aux_hidden_states, row.last_hidden_state      bf16, backed by the mapped file
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from eagle3.errors import Place, StoreError
from eagle3.extract_plan import Plan, read_plan
from eagle3.states_layout import samples_of_metadata
from eagle3.states_manifest import (
    MANIFEST,
    Sample,
    ShardRecord,
    StatesManifest,
    check_recorded,
    hash_file,
    read_shard_record,
    read_states_manifest,
    record_verification,
    unfinished,
)

__all__ = ["StateRow", "StateStore", "read_shard"]


@dataclass(frozen=True, slots=True)
class StateRow:
    """One sample of n tokens. Tensors are views of the mapped shard; do not write to them.

    input_ids int32 [n], loss_mask uint8 [n] of 0 and 1, aux_hidden_states bf16 [n, A*H] (the A
    aux layers low to high), last_hidden_state bf16 [n, H] after the final norm.
    """

    id: str
    source: str
    input_ids: torch.Tensor
    loss_mask: torch.Tensor
    truncated: bool
    aux_hidden_states: torch.Tensor
    last_hidden_state: torch.Tensor


@dataclass(frozen=True)
class StateStore:
    """A store, read-only. `manifest` is None while the extraction is unfinished."""

    directory: Path
    plan: Plan
    shards: tuple[ShardRecord, ...]
    manifest: StatesManifest | None

    @classmethod
    def open(cls, directory: Path, *, allow_partial: bool = False) -> StateStore:
        """Open and validate plan, sidecars, manifest, and presence and size of every file.

        Reads no shard. `allow_partial` also opens an unfinished store, with the shards that are
        whole so far. Raises StoreError.
        """
        manifest: StatesManifest | None = None
        if not allow_partial or (directory / MANIFEST).exists():
            manifest = read_states_manifest(directory)
            plan = manifest.plan
        else:
            plan = read_plan(directory)
        digest = plan.digest
        records: list[ShardRecord] = []
        for shard in plan.shards:
            if manifest is None and not (directory / shard.sidecar).exists():
                continue
            records.append(read_shard_record(directory, shard, digest))
        store = cls(directory, plan, tuple(records), manifest)
        sizes = {record.file: record.bytes for record in records}
        if manifest is not None:
            sizes |= {name: entry.bytes for name, entry in manifest.files.items()}
        for name, size in sizes.items():
            _check_size(directory / name, size)
        return store

    @property
    def complete(self) -> bool:
        return self.manifest is not None

    @property
    def num_aux(self) -> int:
        return len(self.plan.settings.layer_ids)

    @property
    def samples(self) -> int:
        """Rows that are there."""
        return sum(record.rows for record in self.shards)

    @property
    def tokens(self) -> int:
        """Tokens that are there."""
        return sum(record.tokens for record in self.shards)

    def rows(self, *, check_values: bool = True) -> Iterator[StateRow]:
        """Every row in stored order.

        `check_values` looks at every state for NaN and infinity and at every mask for 0 and 1;
        a reader of a store that was just verified may leave it out. Raises StoreError.
        """
        for record in self.shards:
            yield from self.shard_rows(record, check_values=check_values)

    def shard_rows(self, record: ShardRecord, *, check_values: bool = True) -> Iterator[StateRow]:
        """The rows of one shard, in stored order. Raises StoreError."""
        settings = self.plan.settings
        return read_shard(
            self.directory, record, settings.hidden_size, self.num_aux, check_values=check_values
        )

    def verify(self, full: bool) -> None:
        """Raise StoreError unless the store is whole.

        `full` False: size, mtime and inode of each file as in verified.json (`checksums:
        recorded`); needs a complete store. True: every byte read and hashed, every tensor and
        value checked, and verified.json written anew when that changes it (`checksums: full`).
        """
        if not full:
            if self.manifest is None:
                raise unfinished(self.directory)
            check_recorded(self.directory, self.manifest)
            return
        wanted = {record.file: record.sha256 for record in self.shards}
        if self.manifest is not None:
            wanted |= {name: entry.sha256 for name, entry in self.manifest.files.items()}
        entries = {}
        for name, sha256 in wanted.items():
            entries[name] = hash_file(self.directory / name)
            if (found := entries[name]["sha256"]) != sha256:
                raise StoreError(
                    f"has sha256 {found}; the manifest says {sha256}",
                    place=Place(self.directory / name),
                    hint="run the extraction again: it redoes what is damaged",
                )
        self._verify_rows()
        if self.manifest is not None:
            entries[MANIFEST] = hash_file(self.directory / MANIFEST)
            record_verification(self.directory, entries)

    def _verify_rows(self) -> None:
        seen: set[tuple[str, str]] = set()
        for record in self.shards:
            for row in self.shard_rows(record):
                key = (row.source, row.id)
                if key in seen:
                    raise StoreError(
                        "is there twice",
                        place=Place(
                            self.directory / record.file, item=f"sample {row.source}/{row.id}"
                        ),
                    )
                seen.add(key)


def read_shard(
    directory: Path, record: ShardRecord, hidden_size: int, num_aux: int, *, check_values: bool
) -> Iterator[StateRow]:
    """The rows of the shard in `record`. Raises StoreError with file, and item where it has one."""
    path = directory / record.file
    # Before it is mapped: reading past the end of a mapped file ends the process.
    _check_size(path, record.bytes)
    try:
        with safe_open(path, framework="pt") as file:
            samples = samples_of_metadata(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise StoreError(f"is no readable shard: {error}", place=Place(path)) from error
    if samples != record.samples:
        raise StoreError("holds other samples than its sidecar says", place=Place(path))
    _check_tensors(tensors, record, hidden_size, num_aux, path)
    offsets = tensors["offsets"].tolist()
    for index, sample in enumerate(samples):
        part = slice(offsets[index], offsets[index + 1])
        row = StateRow(
            id=sample.id,
            source=sample.source,
            input_ids=tensors["input_ids"][part],
            loss_mask=tensors["loss_mask"][part],
            truncated=sample.truncated,
            aux_hidden_states=tensors["aux_hidden_states"][part],
            last_hidden_state=tensors["last_hidden_state"][part],
        )
        if check_values:
            _check_values(row, sample, path)
        yield row


def _check_size(path: Path, size: int) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise StoreError(f"is missing: {error.strerror}", place=Place(path)) from error
    if found != size:
        raise StoreError(
            f"has {found:,} bytes; wanted {size:,}",
            place=Place(path),
            hint="run the extraction again: it redoes what is damaged",
        )


def _check_tensors(
    tensors: dict[str, torch.Tensor],
    record: ShardRecord,
    hidden_size: int,
    num_aux: int,
    path: Path,
) -> None:
    wanted = {
        "offsets": (torch.int64, [record.rows + 1]),
        "input_ids": (torch.int32, [record.tokens]),
        "aux_hidden_states": (torch.bfloat16, [record.tokens, num_aux * hidden_size]),
        "last_hidden_state": (torch.bfloat16, [record.tokens, hidden_size]),
        "loss_mask": (torch.uint8, [record.tokens]),
    }
    if set(tensors) != set(wanted):
        raise StoreError(
            f"holds the tensors {', '.join(sorted(tensors))}; wanted {', '.join(sorted(wanted))}",
            place=Place(path),
        )
    for name, (dtype, shape) in wanted.items():
        found = tensors[name]
        if found.dtype != dtype or list(found.shape) != shape:
            raise StoreError(
                f"is {found.dtype} {list(found.shape)}; wanted {dtype} {shape}",
                place=Place(path, item=name),
            )
    ends = [0]
    for sample in record.samples:
        ends.append(ends[-1] + sample.tokens)
    if tensors["offsets"].tolist() != ends:
        raise StoreError("are not those of its samples", place=Place(path, item="offsets"))


def _check_values(row: StateRow, sample: Sample, path: Path) -> None:
    place = Place(path, item=f"sample {row.source}/{row.id}")
    for name, states in (
        ("aux_hidden_states", row.aux_hidden_states),
        ("last_hidden_state", row.last_hidden_state),
    ):
        # One pass without a copy: a NaN or infinity makes the sum one too.
        total = torch.sum(states, dtype=torch.float32)
        if not bool(torch.isfinite(total)) and not bool(torch.isfinite(states).all()):
            raise StoreError(f"{name} holds NaN or infinity", place=place)
    supervised = int(torch.count_nonzero(row.loss_mask))
    if supervised != int(row.loss_mask.sum()) or supervised != sample.supervised:
        raise StoreError(
            f"loss_mask has {supervised} supervised tokens; wanted {sample.supervised}, each 1",
            place=place,
        )
