"""Writes one shard of hidden states, row by row, under a temporary name until it is whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from eagle3.errors import Place, StoreError
from eagle3.extract_plan import PlannedShard
from eagle3.files import fsync_folder, sha256_file, write_json
from eagle3.states_layout import ShardLayout, shard_metadata
from eagle3.states_manifest import Sample, ShardRecord

__all__ = ["ShardFile", "partial_name"]


def partial_name(file: str) -> str:
    """The temporary name of a shard: fixed, so that a killed writer leaves at most one."""
    return f".{file}.partial"


class ShardFile:
    """One shard being written. As a context manager it leaves nothing behind on an error."""

    def __init__(
        self,
        directory: Path,
        shard: PlannedShard,
        plan_digest: str,
        samples: Sequence[Sample],
        hidden_size: int,
        num_aux: int,
    ):
        self.directory = directory
        self.shard = shard
        self.plan_digest = plan_digest
        self.samples = tuple(samples)
        self._widths = {
            "aux_hidden_states": num_aux * hidden_size,
            "last_hidden_state": hidden_size,
        }
        metadata = shard_metadata(plan_digest, shard.index, self.samples)
        lengths = [sample.tokens for sample in self.samples]
        self._layout = ShardLayout.of(lengths, hidden_size, num_aux, metadata)
        self._partial = directory / partial_name(shard.file)
        self._next = 0

    @property
    def size(self) -> int:
        """Bytes of the finished shard, known before the first row."""
        return self._layout.size

    def __enter__(self) -> ShardFile:
        self._handle = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            self._put(0, self._layout.header)
            offsets = np.asarray(self._layout.offsets, dtype="<i8")
            self._put(self._layout.starts["offsets"], offsets.tobytes())
        except BaseException:
            self._abandon()
            raise
        return self

    def add(
        self,
        input_ids: npt.NDArray[np.int32],
        loss_mask: npt.NDArray[np.uint8],
        aux_hidden_states: torch.Tensor,
        last_hidden_state: torch.Tensor,
    ) -> None:
        """The next row: ids [n] and mask [n]; states bf16 [n, A*H] and [n, H], on the CPU.

        Raises StoreError naming the sample when lengths or dtypes differ from the plan, or when
        a state is NaN or infinite: such a row must not be trained on.
        """
        sample = self.samples[self._next]
        place = Place(self.directory / self.shard.file, item=f"sample {sample.source}/{sample.id}")
        ids = np.ascontiguousarray(input_ids, dtype="<i4")
        mask = np.ascontiguousarray(loss_mask, dtype=np.uint8)
        for name, shape, wanted in (
            ("input_ids", ids.shape, (sample.tokens,)),
            ("loss_mask", mask.shape, (sample.tokens,)),
            *(
                (name, tuple(states.shape), (sample.tokens, self._widths[name]))
                for name, states in (
                    ("aux_hidden_states", aux_hidden_states),
                    ("last_hidden_state", last_hidden_state),
                )
            ),
        ):
            if shape != wanted:
                raise StoreError(
                    f"{name} is of shape {list(shape)}; wanted {list(wanted)}", place=place
                )
        self._write("input_ids", ids.tobytes())
        self._write("loss_mask", mask.tobytes())
        self._write("aux_hidden_states", _bf16_bytes(aux_hidden_states, "aux", place))
        self._write("last_hidden_state", _bf16_bytes(last_hidden_state, "last", place))
        self._next += 1

    def finish(self) -> ShardRecord:
        """Fsync, read back and hash the shard, rename it, then write its sidecar."""
        if self._next != len(self.samples):
            raise StoreError(
                f"has {self._next} of {len(self.samples)} rows",
                place=Place(self.directory / self.shard.file),
            )
        os.fsync(self._handle)
        size = os.fstat(self._handle).st_size
        if size != self.size:
            raise StoreError(
                f"has {size:,} bytes; wanted {self.size:,}", place=Place(self._partial)
            )
        record = ShardRecord(
            file=self.shard.file,
            plan=self.plan_digest,
            first=self.shard.first,
            rows=self.shard.rows,
            tokens=self.shard.tokens,
            bytes=size,
            sha256=sha256_file(self._partial),
            samples=self.samples,
        )
        self._partial.replace(self.directory / self.shard.file)
        fsync_folder(self.directory)
        write_json(self.directory / self.shard.sidecar, record.to_json())
        return record

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._abandon()

    def _abandon(self) -> None:
        os.close(self._handle)
        # Gone already when the shard was finished.
        self._partial.unlink(missing_ok=True)

    def _write(self, name: str, data: bytes | memoryview) -> None:
        self._put(self._layout.position(name, self._next), data)

    def _put(self, position: int, data: bytes | memoryview) -> None:
        rest = memoryview(data).cast("B")
        while rest:
            # A write may be cut short, for example at the last free byte of a disk.
            done = os.pwrite(self._handle, rest, position)
            position += done
            rest = rest[done:]


def _bf16_bytes(states: torch.Tensor, name: str, place: Place) -> memoryview:
    """The bytes of a bf16 tensor; numpy has no bf16, so they pass as int16."""
    if states.dtype != torch.bfloat16:
        raise StoreError(f"{name} hidden states are {states.dtype}; wanted bfloat16", place=place)
    if not bool(torch.isfinite(states).all()):
        token = int((~torch.isfinite(states).all(dim=1)).nonzero()[0])
        raise StoreError(
            f"{name} hidden state of token {token} is NaN or infinite",
            place=place,
            hint="the target's forward went wrong there; nothing of this shard was kept",
        )
    array: npt.NDArray[Any] = states.contiguous().view(torch.int16).numpy()
    return array.data
