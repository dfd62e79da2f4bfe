"""The bytes of one shard of hidden states: a safetensors file with these tensors.

    offsets            int64 [n+1]    row r is [offsets[r], offsets[r+1]) of the others
    input_ids          int32 [T]      T tokens of n rows, one after the other, without padding
    aux_hidden_states  bf16  [T, A*H] outputs of the A aux layers, side by side, low to high
    last_hidden_state  bf16  [T, H]   after the final norm
    loss_mask          uint8 [T]      0 or 1

Lengths are known before the first forward, so the header is written first and each row goes to
its final place: an extraction holds one batch in memory, never a shard. The tensors stand in
falling order of alignment, which keeps each aligned for reading without a copy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from eagle3.files import canonical_json
from eagle3.states_manifest import FORMAT, VERSION, Sample

__all__ = ["TENSORS", "ShardLayout", "samples_of_metadata", "shard_metadata"]

# name -> (safetensors' name of the dtype, bytes of an item), in the order of the file.
TENSORS = {
    "offsets": ("I64", 8),
    "input_ids": ("I32", 4),
    "aux_hidden_states": ("BF16", 2),
    "last_hidden_state": ("BF16", 2),
    "loss_mask": ("U8", 1),
}


@dataclass(frozen=True)
class ShardLayout:
    """Where each tensor of a shard lies. Positions are bytes from the start of the file."""

    header: bytes
    starts: dict[str, int]
    row_bytes: dict[str, int]
    offsets: tuple[int, ...]
    size: int

    @classmethod
    def of(
        cls, lengths: Sequence[int], hidden_size: int, num_aux: int, metadata: dict[str, str]
    ) -> ShardLayout:
        """For rows of `lengths` tokens; `metadata` becomes the file's `__metadata__`."""
        offsets = [0]
        for length in lengths:
            offsets.append(offsets[-1] + length)
        tokens = offsets[-1]
        shapes = {
            "offsets": [len(offsets)],
            "input_ids": [tokens],
            "aux_hidden_states": [tokens, num_aux * hidden_size],
            "last_hidden_state": [tokens, hidden_size],
            "loss_mask": [tokens],
        }
        entries: dict[str, object] = {"__metadata__": metadata}
        begins: dict[str, int] = {}
        row_bytes: dict[str, int] = {}
        end = 0
        for name, (dtype, item) in TENSORS.items():
            row_bytes[name] = item * math.prod(shapes[name][1:])
            begins[name] = end
            end += shapes[name][0] * row_bytes[name]
            entries[name] = {
                "dtype": dtype,
                "shape": shapes[name],
                "data_offsets": [begins[name], end],
            }
        # As the safetensors library writes it: padded with spaces, so that the data is aligned.
        text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        header = len(text).to_bytes(8, "little") + text
        starts = {name: len(header) + begin for name, begin in begins.items()}
        return cls(header, starts, row_bytes, tuple(offsets), len(header) + end)

    def position(self, name: str, row: int) -> int:
        """Where the tokens of row `row` (from 0 in this shard) begin in tensor `name`."""
        return self.starts[name] + self.offsets[row] * self.row_bytes[name]


def shard_metadata(plan_digest: str, index: int, samples: Sequence[Sample]) -> dict[str, str]:
    """What a shard says of itself, so that it can be read without its sidecar."""
    return {
        "format": FORMAT,
        "version": str(VERSION),
        "plan": plan_digest,
        "shard": str(index),
        "samples": canonical_json([sample.to_json() for sample in samples]).decode(),
    }


def samples_of_metadata(metadata: dict[str, str]) -> tuple[Sample, ...]:
    """The samples in a shard's metadata; ValueError when it is no shard of this version."""
    if (metadata.get("format"), metadata.get("version")) != (FORMAT, str(VERSION)):
        raise ValueError(f"is no shard of {FORMAT} version {VERSION}")
    try:
        return tuple(Sample.from_json(item) for item in json.loads(metadata["samples"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"its metadata is damaged: {error}") from error
