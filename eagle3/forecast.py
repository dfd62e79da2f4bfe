"""Bytes that an extraction will write, and those it still has to write. Standard library only.

The engine's estimator calls this on the controller, with JSON that it read over SSH: the
dataset's manifest.json, and the per-shard JSON files of the hidden-state store, if there are any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["SHARD_TOKENS", "bytes_per_token", "remaining_bytes", "total_bytes"]

# Tokens of a shard: what a crash costs at most. 0.9 GiB of Kimi-K2.5, 72 MiB of SmolLM2-135M.
SHARD_TOKENS = 16_384

_STATE_BYTES = 2  # bf16
_TOKEN_BYTES = 4 + 1  # input_ids int32, loss_mask uint8
# Generous on purpose: an estimate too low ends with a full disk. Per row its offset, and its id
# and source in header and sidecar; per shard the header, the JSON files and what blocks round up.
_ROW_BYTES = 512
_SHARD_BYTES = 16_384
_STORE_BYTES = 32 << 20  # plan, tokenizer and manifest


def bytes_per_token(hidden_size: int, num_aux: int) -> int:
    """Stored bytes of one token: `num_aux` + 1 bf16 vectors of `hidden_size`, id and mask."""
    return (num_aux + 1) * hidden_size * _STATE_BYTES + _TOKEN_BYTES


def total_bytes(
    dataset_manifest: Mapping[str, Any],
    hidden_size: int,
    num_aux: int,
    shard_tokens: int = SHARD_TOKENS,
) -> int:
    """Bytes of the whole store of a dataset, rounded up a little (about 0.1 % at 7,168 wide)."""
    return remaining_bytes(dataset_manifest, (), hidden_size, num_aux, shard_tokens)


def remaining_bytes(
    dataset_manifest: Mapping[str, Any],
    shard_sidecars: Sequence[Mapping[str, Any]],
    hidden_size: int,
    num_aux: int,
    shard_tokens: int = SHARD_TOKENS,
) -> int:
    """Bytes still to write: the tokens and rows of the dataset less those of finished shards.

    `dataset_manifest` is the dataset's manifest.json (`totals.samples`, `totals.tokens`);
    `shard_sidecars` are the states-*.json (`rows`, `tokens`), in any order. 0 when all are there.
    Raises ValueError when a count is missing, or the shards hold more than the dataset.
    """
    totals = dataset_manifest.get("totals")
    if not isinstance(totals, Mapping):
        raise ValueError("the dataset's manifest has no totals")
    tokens = _count(totals, "tokens") - sum(_count(shard, "tokens") for shard in shard_sidecars)
    rows = _count(totals, "samples") - sum(_count(shard, "rows") for shard in shard_sidecars)
    if tokens < 0 or rows < 0:
        raise ValueError("the finished shards hold more than the dataset: they are of another one")
    if not tokens:
        return 0
    # A shard ends before the row that would not fit, so that it may be hardly half full.
    shards = min(rows, 2 * tokens // shard_tokens + 1)
    states = tokens * bytes_per_token(hidden_size, num_aux)
    return states + rows * _ROW_BYTES + shards * _SHARD_BYTES + _STORE_BYTES


def _count(values: Mapping[str, Any], key: str) -> int:
    found = values.get(key)
    if type(found) is not int or found < 0:
        raise ValueError(f"{key} is missing or no count")
    return found
