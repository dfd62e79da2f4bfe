from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle3.dataset import SCHEMA, Dataset, Row, ShardWriter
from eagle3.dataset_manifest import (
    MANIFEST,
    VERIFIED,
    InputEntry,
    Manifest,
    SourceEntry,
    check_recorded,
    dataset_digest,
    read_manifest,
    record_verification,
    store_format,
)
from eagle3.errors import StoreError
from eagle3.files import write_json

SHA = "0" * 64


def row(n: int) -> Row:
    ids = np.arange(n + 1, dtype=np.int32)
    return Row(f"id-{n}", "s", ids, (ids % 2).astype(np.uint8), n % 3 == 0)


def write_store(directory: Path, rows: list[Row], shard_tokens: int = 8) -> Path:
    directory.mkdir(parents=True)
    writer = ShardWriter(directory, shard_tokens)
    for item in rows:
        writer.add(item)
    writer.close()
    source = SourceEntry(
        input=InputEntry("in.jsonl", 1, SHA),
        samples=len(rows),
        tokens=sum(len(item.input_ids) for item in rows),
        supervised=sum(int(item.loss_mask.sum()) for item in rows),
        truncated=sum(item.truncated for item in rows),
        duplicates=0,
        dropped={},
    )
    manifest = Manifest(
        digest=dataset_digest({shard.file: shard.sha256 for shard in writer.shards}),
        config_digest=SHA,
        seed=1,
        max_tokens=64,
        target_digest=SHA,
        tokenizer_digest=SHA,
        template_digest=SHA,
        family="chatml",
        rules=1,
        sources={"s": source},
        excluded=(),
        shards=tuple(writer.shards),
        files={},
    )
    write_json(directory / MANIFEST, manifest.to_json())
    record_verification(directory, manifest)
    return directory


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_store(tmp_path / "store", [row(n) for n in range(6)])


def same(one: Row, other: Row) -> bool:
    return (
        (one.id, one.source, one.truncated) == (other.id, other.source, other.truncated)
        and np.array_equal(one.input_ids, other.input_ids)
        and np.array_equal(one.loss_mask, other.loss_mask)
    )


def test_rows_come_back_in_order_over_shards(store: Path) -> None:
    dataset = Dataset.open(store)
    assert len(dataset.manifest.shards) > 1
    found = list(dataset.rows())
    assert all(same(a, b) for a, b in zip(found, [row(n) for n in range(6)], strict=True))
    assert found[0].input_ids.dtype == np.int32
    assert found[0].loss_mask.dtype == np.uint8
    dataset.verify(full=False)
    dataset.verify(full=True)
    assert store_format(store) == "eagle3-dataset"


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30
)
@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=12), shard_tokens=st.integers(1, 40)
)
def test_any_rows_round_trip(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], shard_tokens: int
) -> None:
    rows = [
        Row(f"é{n}", "s", np.full(length, n, np.int32), np.ones(length, np.uint8), False)
        for n, length in enumerate(lengths)
    ]
    store = write_store(tmp_path_factory.mktemp("d") / "store", rows, shard_tokens)
    dataset = Dataset.open(store)
    assert all(same(a, b) for a, b in zip(dataset.rows(), rows, strict=True))
    dataset.verify(full=True)


def edit(store: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads((store / MANIFEST).read_text())
    change(value)
    (store / MANIFEST).write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(format="other"), "store of format 'other'"),
        (lambda m: m.update(version=2), "format version 2"),
        (lambda m: m.update(version=None), "format version None"),
        (lambda m: m.pop("seed"), "seed is missing"),
        (lambda m: m.update(seed=True), "seed is missing or no count"),
        (lambda m: m.update(max_tokens=0), "max_tokens"),
        (lambda m: m.update(digest="x"), "digest is no SHA-256"),
        (lambda m: m.update(digest="1" * 64), "digest is not that of the shards"),
        (lambda m: m.update(sources=[]), "sources is not an object"),
        (lambda m: m["sources"]["s"].pop("input"), "sources.s.input is not an object"),
        (lambda m: m["sources"]["s"].update(samples=5), "totals.samples"),
        (lambda m: m["shards"].pop(), "have not the rows"),
        (lambda m: m["shards"][0].update(tokens=1), "have not the tokens"),
        (lambda m: m["shards"][0].update(file="../data-00000.parquet"), "no name of a shard"),
        (lambda m: m.update(files={"../x": {"bytes": 1, "sha256": SHA}}), "is no name of a file"),
    ],
)
def test_a_damaged_manifest_says_where(
    store: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    edit(store, change)
    with pytest.raises(StoreError, match=words) as caught:
        Dataset.open(store)
    assert MANIFEST in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_mutated_manifest_raises_nothing_but_store_errors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    store = tmp_path_factory.mktemp("m")
    text = bytearray(MANIFEST_BYTES)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(text)))
        text[position : position + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=3))
    (store / MANIFEST).write_bytes(text)
    try:
        read_manifest(store)
    except StoreError as error:
        assert str(store) in str(error)


MANIFEST_BYTES = json.dumps(
    Manifest(
        digest=dataset_digest({}),
        config_digest=SHA,
        seed=1,
        max_tokens=1,
        target_digest=SHA,
        tokenizer_digest=SHA,
        template_digest=SHA,
        family="chatml",
        rules=1,
        sources={"s": SourceEntry(InputEntry("a", 1, SHA), 0, 0, 0, 0, 0, {"no messages": 1})},
        excluded=("x",),
        shards=(),
        files={},
    ).to_json()
).encode()


def test_no_store_and_no_json(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no finished store"):
        Dataset.open(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(StoreError, match="no JSON"):
        Dataset.open(tmp_path)
    (tmp_path / MANIFEST).write_text("[]")
    with pytest.raises(StoreError, match="not an object"):
        store_format(tmp_path)


def test_a_missing_and_a_short_shard(store: Path) -> None:
    shard = store / "data-00001.parquet"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    with pytest.raises(StoreError, match="the manifest says"):
        Dataset.open(store)
    shard.unlink()
    with pytest.raises(StoreError, match=r"data-00001\.parquet: is missing"):
        Dataset.open(store)


def test_one_changed_byte_is_found_in_full_and_by_mtime(store: Path) -> None:
    dataset = Dataset.open(store)
    shard = store / "data-00000.parquet"
    before = shard.stat()
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(StoreError, match="not as it was"):
        dataset.verify(full=False)
    with pytest.raises(StoreError, match="has sha256"):
        dataset.verify(full=True)


def test_recorded_wants_a_record_of_this_very_file(store: Path) -> None:
    dataset = Dataset.open(store)
    shard = store / "data-00000.parquet"
    copy = shard.with_name("copy")
    copy.write_bytes(shard.read_bytes())
    copy.rename(shard)
    with pytest.raises(StoreError, match="not as it was"):
        check_recorded(store, dataset.manifest)
    dataset.verify(full=True)  # whole after all: recorded anew
    check_recorded(store, dataset.manifest)
    (store / VERIFIED).unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        dataset.verify(full=False)
    (store / VERIFIED).write_text('{"files": 3}')
    with pytest.raises(StoreError, match="files is not an object"):
        dataset.verify(full=False)


def test_a_full_verification_of_a_whole_store_writes_nothing(store: Path) -> None:
    before = (store / VERIFIED).stat()
    Dataset.open(store).verify(full=True)
    after = (store / VERIFIED).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def forge(store: Path, table: pa.Table) -> None:
    """Put another table in the first shard, with a manifest whose checksums fit it."""
    from eagle3.files import sha256_file

    path = store / "data-00000.parquet"
    pq.write_table(table, path)

    def change(manifest: dict[str, Any]) -> None:
        manifest["shards"][0].update(bytes=path.stat().st_size, sha256=sha256_file(path))
        manifest["digest"] = dataset_digest({s["file"]: s["sha256"] for s in manifest["shards"]})

    edit(store, change)


@pytest.mark.parametrize("fault", ["columns", "rows", "mask", "source", "text"])
def test_a_shard_that_is_not_what_the_manifest_says(store: Path, fault: str) -> None:
    table = pq.read_table(store / "data-00000.parquet")
    rows = table.to_pylist()
    if fault == "columns":
        forge(store, table.drop_columns(["truncated"]))
    elif fault == "rows":
        forge(store, table.slice(1))
    elif fault == "mask":
        rows[0]["loss_mask"] = [2] * len(rows[0]["loss_mask"])
        forge(store, pa.Table.from_pylist(rows, SCHEMA))
    elif fault == "source":
        rows[0]["source"] = "other"
        forge(store, pa.Table.from_pylist(rows, SCHEMA))
    else:
        (store / "data-00000.parquet").write_bytes(
            b"x" * (store / "data-00000.parquet").stat().st_size
        )
        with pytest.raises(StoreError, match="cannot be read"):
            list(Dataset.open(store).rows())
        return
    with pytest.raises(StoreError, match=r"other columns|rows|damaged loss mask|no source"):
        Dataset.open(store).verify(full=True)


def test_the_manifest_reads_back(store: Path) -> None:
    manifest = read_manifest(store)
    assert manifest.samples == 6
    assert manifest.tokens == 21
    written = manifest.to_json()
    assert written == json.loads((store / MANIFEST).read_text())
    assert written["shards"][0] == asdict(manifest.shards[0])
