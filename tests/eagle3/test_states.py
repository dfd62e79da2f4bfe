"""Shards that are not what they should be, each with a sidecar that fits their bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from eagle3.errors import StoreError
from eagle3.extract_plan import PlannedShard
from eagle3.files import sha256_file
from eagle3.states import StateStore, read_shard
from eagle3.states_manifest import Sample, ShardRecord
from eagle3.states_writer import ShardFile

HIDDEN, AUX = 4, 3
SHARD = PlannedShard(0, 0, 2, 5)
SAMPLES = (Sample("a", "s", 2, 1, False), Sample("ü\n", "s", 3, 2, True))
Tensors = dict[str, torch.Tensor]


def write(directory: Path, aux: torch.Tensor | None = None) -> ShardRecord:
    torch.manual_seed(1)
    if aux is None:
        aux = torch.randn(5, AUX * HIDDEN)
    last = torch.randn(5, HIDDEN).to(torch.bfloat16)
    aux = aux.to(torch.bfloat16)
    with ShardFile(directory, SHARD, "p" * 64, SAMPLES, HIDDEN, AUX) as file:
        ids = np.arange(5, dtype=np.int32)
        mask = np.array([0, 1, 1, 0, 1], dtype=np.uint8)
        for part in (slice(0, 2), slice(2, 5)):
            file.add(ids[part], mask[part], aux[part], last[part])
        record = file.finish()
        assert record.bytes == file.size
    return record


def read(directory: Path, record: ShardRecord) -> list[Any]:
    return list(read_shard(directory, record, HIDDEN, AUX, check_values=True))


def rewrite(directory: Path, record: ShardRecord, change: Callable[[Tensors], Any]) -> ShardRecord:
    """The shard with other tensors, its checksum right."""
    path = directory / record.file
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    change(tensors)
    save_file(tensors, path, metadata=metadata)
    return replace(record, bytes=path.stat().st_size, sha256=sha256_file(path))


def test_round_trip(tmp_path: Path) -> None:
    record = write(tmp_path)
    rows = read(tmp_path, record)
    assert [(row.id, row.source, row.truncated) for row in rows] == [
        ("a", "s", False),
        ("ü\n", "s", True),
    ]
    assert rows[1].input_ids.tolist() == [2, 3, 4]
    assert rows[1].loss_mask.tolist() == [1, 0, 1]
    assert rows[1].aux_hidden_states.shape == (3, AUX * HIDDEN)
    assert rows[1].aux_hidden_states.dtype == torch.bfloat16
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "states-00000.json",
        "states-00000.safetensors",
    ]
    assert json.loads((tmp_path / "states-00000.json").read_text())["sha256"] == record.sha256


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert write(tmp_path / "one") == write(tmp_path / "two")


def _put(name: str, value: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.update({name: value(tensors[name]).contiguous()})


def _set(name: str, index: Any, value: float) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors[name].__setitem__(index, value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_put("loss_mask", lambda t: t[:-1]), r"loss_mask\): is torch.uint8 \[4\]"),
        (_put("input_ids", lambda t: t[:-1]), r"input_ids\)"),
        (_put("input_ids", lambda t: t.long()), r"input_ids\): is torch.int64"),
        (_put("aux_hidden_states", lambda t: t.float()), r"aux_hidden_states\): is torch.float32"),
        (_put("aux_hidden_states", lambda t: t[:, :8]), r"aux_hidden_states\).*\[5, 8\]"),
        (_put("last_hidden_state", lambda t: t[:-1]), r"last_hidden_state\)"),
        (_put("offsets", lambda t: t[:-1]), r"offsets\)"),
        (_set("offsets", 1, 3), r"offsets\): are not those"),
        (_set("loss_mask", 1, 0), r"sample s/a\): loss_mask has 0"),
        (_set("loss_mask", 1, 2), r"sample s/a\): loss_mask"),
        (_set("aux_hidden_states", (3, 2), float("nan")), r"aux_hidden_states holds NaN"),
        (
            _set("last_hidden_state", (0, 0), float("-inf")),
            r"sample s/a\): last_hidden_state holds",
        ),
        (lambda tensors: tensors.pop("loss_mask"), "holds the tensors"),
    ],
)
def test_faults_inside_a_shard(tmp_path: Path, change: Callable[[Tensors], Any], said: str) -> None:
    record = rewrite(tmp_path, write(tmp_path), change)
    with pytest.raises(StoreError, match=said):
        read(tmp_path, record)


def test_large_finite_values_are_no_fault(tmp_path: Path) -> None:
    record = write(tmp_path, torch.full((5, AUX * HIDDEN), 3e38))
    assert len(read(tmp_path, record)) == 2


def test_faults_of_the_file(tmp_path: Path) -> None:
    record = write(tmp_path)
    path = tmp_path / record.file
    data = path.read_bytes()
    with pytest.raises(StoreError, match="other samples"):
        read(tmp_path, replace(record, samples=record.samples[::-1]))
    path.write_bytes(data[:-10])
    with pytest.raises(StoreError, match="bytes; wanted"):
        read(tmp_path, record)
    with pytest.raises(StoreError, match="no readable shard"):
        read(tmp_path, replace(record, bytes=len(data) - 10))
    path.write_bytes(b"\xff" * 8 + data[8:])
    with pytest.raises(StoreError, match="no readable shard"):
        read(tmp_path, record)
    path.unlink()
    with pytest.raises(StoreError, match="is missing"):
        read(tmp_path, record)


def test_the_writer_refuses_what_does_not_fit(tmp_path: Path) -> None:
    ids, mask = np.arange(2, dtype=np.int32), np.ones(2, dtype=np.uint8)
    aux = torch.zeros(2, AUX * HIDDEN, dtype=torch.bfloat16)
    last = torch.zeros(2, HIDDEN, dtype=torch.bfloat16)
    nan = aux.clone()
    nan[1, 3] = float("nan")
    faults: list[tuple[tuple[Any, Any, Any, Any], str]] = [
        ((ids[:1], mask, aux, last), "input_ids is of shape"),
        ((ids, mask[:1], aux, last), "loss_mask is of shape"),
        ((ids, mask, aux[:1], last), "aux_hidden_states is of shape"),
        ((ids, mask, aux, aux), "last_hidden_state is of shape"),
        ((ids, mask, aux.float(), last), "wanted bfloat16"),
        ((ids, mask, nan, last), "token 1 is NaN"),
    ]
    for arguments, said in faults:
        with (
            pytest.raises(StoreError, match=said),
            ShardFile(tmp_path, SHARD, "p", SAMPLES, HIDDEN, AUX) as file,
        ):
            file.add(*arguments)
    with (
        pytest.raises(StoreError, match="has 1 of 2 rows"),
        ShardFile(tmp_path, SHARD, "p", SAMPLES, HIDDEN, AUX) as file,
    ):
        file.add(ids, mask, aux, last)
        file.finish()
    assert not list(tmp_path.iterdir())


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no finished store is there; eagle3 extract … --out"):
        StateStore.open(tmp_path)
    with pytest.raises(StoreError, match=r"plan\.json"):
        StateStore.open(tmp_path, allow_partial=True)
