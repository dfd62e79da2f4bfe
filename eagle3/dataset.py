"""The merged dataset: Parquet (zstd) shards of tokens and loss masks. See `dataset_manifest`.

Columns: id string, source string, input_ids list<int32> [n], loss_mask list<uint8> [n] of 0 and
1, truncated bool. The unit is the token; rows have different lengths n and are not padded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from eagle3.dataset_manifest import (
    Manifest,
    ShardEntry,
    check_recorded,
    read_manifest,
    record_verification,
)
from eagle3.errors import Place, StoreError
from eagle3.files import sha256_file

__all__ = ["SCHEMA", "SHARD_TOKENS", "Dataset", "Row", "ShardWriter"]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("input_ids", pa.list_(pa.field("element", pa.int32(), nullable=False)), False),
        pa.field("loss_mask", pa.list_(pa.field("element", pa.uint8(), nullable=False)), False),
        pa.field("truncated", pa.bool_(), nullable=False),
    ]
)
# 4 Mi tokens are 21 MB before compression: a shard is read into memory at once.
SHARD_TOKENS = 4 << 20
_BATCH_ROWS = 512


@dataclass(frozen=True, slots=True)
class Row:
    """One sample: token ids [n] int32, loss mask [n] uint8 of 0 and 1."""

    id: str
    source: str
    input_ids: npt.NDArray[np.int32]
    loss_mask: npt.NDArray[np.uint8]
    truncated: bool


class ShardWriter:
    """Writes rows, in order, to shards in a directory that nobody reads yet.

    The caller renames the directory into place after `close` and the manifest.
    """

    def __init__(self, directory: Path, shard_tokens: int = SHARD_TOKENS):
        self.directory = directory
        self.shard_tokens = shard_tokens
        self.shards: list[ShardEntry] = []
        self._rows: list[Row] = []
        self._tokens = 0

    def add(self, row: Row) -> None:
        self._rows.append(row)
        self._tokens += len(row.input_ids)
        if self._tokens >= self.shard_tokens:
            self._flush()

    def close(self) -> None:
        """Write what is left. `shards` then lists all, each fsynced."""
        if self._rows:
            self._flush()

    def _flush(self) -> None:
        path = self.directory / f"data-{len(self.shards):05d}.parquet"
        with open(path, "wb") as stream:
            pq.write_table(
                _table(self._rows),
                stream,
                compression="zstd",
                use_dictionary=["source"],
                row_group_size=_BATCH_ROWS,
            )
            stream.flush()
            os.fsync(stream.fileno())
        self.shards.append(
            ShardEntry(
                file=path.name,
                rows=len(self._rows),
                tokens=self._tokens,
                bytes=path.stat().st_size,
                sha256=sha256_file(path),
            )
        )
        self._rows, self._tokens = [], 0


def _lists(parts: Sequence[npt.NDArray[Any]], kind: pa.ListType) -> pa.ListArray:
    offsets = np.zeros(len(parts) + 1, dtype=np.int32)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    values = pa.array(np.concatenate(parts), type=kind.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind)


def _table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_arrays(
        [
            pa.array([row.id for row in rows], pa.string()),
            pa.array([row.source for row in rows], pa.string()),
            _lists([row.input_ids for row in rows], SCHEMA.field("input_ids").type),
            _lists([row.loss_mask for row in rows], SCHEMA.field("loss_mask").type),
            pa.array([row.truncated for row in rows], pa.bool_()),
        ],
        schema=SCHEMA,
    )


@dataclass(frozen=True)
class Dataset:
    """A finished dataset, read-only."""

    directory: Path
    manifest: Manifest

    @classmethod
    def open(cls, directory: Path) -> Dataset:
        """Open and validate manifest and presence of every file, with its size; reads no shard.

        Raises StoreError.
        """
        dataset = cls(directory, read_manifest(directory))
        for name, entry in dataset.manifest.hashed_files.items():
            path = directory / name
            try:
                size = path.stat().st_size
            except OSError as error:
                raise StoreError(f"is missing: {error.strerror}", place=Place(path)) from error
            if size != entry.bytes:
                raise StoreError(
                    f"has {size:,} bytes; the manifest says {entry.bytes:,}", place=Place(path)
                )
        return dataset

    def rows(self) -> Iterator[Row]:
        """Every row in stored order. Raises StoreError at a shard that is not what it should be."""
        for shard in self.manifest.shards:
            yield from self._shard_rows(shard)

    def _shard_rows(self, shard: ShardEntry) -> Iterator[Row]:
        path = self.directory / shard.file
        try:
            with pq.ParquetFile(path) as file:
                if not file.schema_arrow.equals(SCHEMA):
                    raise StoreError("has other columns than a dataset", place=Place(path))
                if (found := file.metadata.num_rows) != shard.rows:
                    raise StoreError(
                        f"has {found:,} rows; the manifest says {shard.rows:,}", place=Place(path)
                    )
                for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                    yield from _batch_rows(batch)
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"cannot be read: {error}", place=Place(path)) from error

    def verify(self, full: bool) -> None:
        """Raise StoreError unless the store is whole.

        `full` False: size, mtime and inode of each file as in verified.json (`checksums:
        recorded`). True: every byte read and hashed, every row counted and checked, and
        verified.json written anew when that changes it (`checksums: full`).
        """
        if not full:
            check_recorded(self.directory, self.manifest)
            return
        for name, entry in self.manifest.hashed_files.items():
            if (found := sha256_file(self.directory / name)) != entry.sha256:
                raise StoreError(
                    f"has sha256 {found}; the manifest says {entry.sha256}",
                    place=Place(self.directory / name),
                )
        self._verify_rows()
        try:
            check_recorded(self.directory, self.manifest)
        except StoreError:
            record_verification(self.directory, self.manifest)

    def _verify_rows(self) -> None:
        supervised = dict.fromkeys(self.manifest.sources, 0)
        for shard in self.manifest.shards:
            place = Place(self.directory / shard.file)
            tokens = 0
            for row in self._shard_rows(shard):
                tokens += len(row.input_ids)
                count = int(np.count_nonzero(row.loss_mask))
                if len(row.loss_mask) != len(row.input_ids) or count != row.loss_mask.sum():
                    raise StoreError(f"row {row.id!r} has a damaged loss mask", place=place)
                if row.source not in supervised:
                    raise StoreError(f"row {row.id!r} is of no source in the manifest", place=place)
                supervised[row.source] += count
            if tokens != shard.tokens:
                raise StoreError(
                    f"has {tokens:,} tokens; the manifest says {shard.tokens:,}", place=place
                )
        for name, count in supervised.items():
            if count != (said := self.manifest.sources[name].supervised):
                raise StoreError(
                    f"source {name} has {count:,} supervised tokens; the manifest says {said:,}",
                    place=Place(self.directory),
                )


def _batch_rows(batch: pa.RecordBatch) -> Iterator[Row]:
    ids, masks = batch.column("input_ids"), batch.column("loss_mask")
    id_ends, id_values = ids.offsets.to_numpy(), ids.values.to_numpy()
    mask_ends, mask_values = masks.offsets.to_numpy(), masks.values.to_numpy()
    names = zip(
        batch.column("id").to_pylist(),
        batch.column("source").to_pylist(),
        batch.column("truncated").to_pylist(),
        strict=True,
    )
    for index, (row_id, source, truncated) in enumerate(names):
        yield Row(
            row_id,
            source,
            id_values[id_ends[index] : id_ends[index + 1]],
            mask_values[mask_ends[index] : mask_ends[index + 1]],
            truncated,
        )
