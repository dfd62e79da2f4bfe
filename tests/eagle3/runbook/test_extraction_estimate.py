"""The estimator `extraction`: what remains, of real stores and of production's numbers."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from eagle3.forecast import remaining_bytes, total_bytes
from eagle3.gguf_header import read_gguf_metadata
from eagle3.runbook.target_look import gguf_width
from runbooks.engine.model.probe import Unknown
from tests.eagle3.extract_cases import HIDDEN
from tests.eagle3.runbook.here import Here


def manifest(here: Here) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(
        (here.folder / "data" / "merged" / "manifest.json").read_text()
    )
    return value


def test_the_whole_of_it_is_enough(here: Here) -> None:
    written = sum(path.stat().st_size for path in (here.folder / "data" / "hidden").iterdir())
    shutil.rmtree(here.folder / "data" / "hidden")
    found = here.estimate()
    assert found.writes == {"data": total_bytes(manifest(here), HIDDEN, 3)}
    assert found.writes["data"] >= written
    tokens = manifest(here)["totals"]["tokens"]
    assert found.time is not None and 0 <= found.time - tokens / 338 < 1
    assert here.estimate(store=None) == found


def test_nothing_remains_of_a_complete_store(here: Here) -> None:
    found = here.estimate()
    assert (found.time, found.writes) == (0, {"data": 0})


def test_the_store_is_found_however_the_dataset_is_spelt(here: Here) -> None:
    for dataset in ("data:merged/", "data:./merged", f"{here.folder}/data/merged"):
        assert here.estimate(dataset=dataset).writes == {"data": 0}


def test_a_resumed_run_asks_for_the_rest(here: Here) -> None:
    hidden = here.folder / "data" / "hidden"
    (hidden / "manifest.json").unlink()
    records = [json.loads(path.read_text()) for path in sorted(hidden.glob("states-*.json"))]
    (hidden / records[-1]["file"]).unlink()
    (hidden / "progress.json").write_text('{"rate": 50.0}')
    rest = remaining_bytes(manifest(here), records[:-1], HIDDEN, 3, 100)
    found = here.estimate()
    assert found.writes == {"data": rest}
    assert found.time == -(-records[-1]["tokens"] // 50)
    faster = here.estimate(rate=1000)
    assert faster.time == -(-records[-1]["tokens"] // 1000)
    assert faster.writes == found.writes
    # The first write of progress.json comes after the first batch.
    (hidden / "progress.json").write_text('{"rate": null}')
    assert here.estimate().time == -(-records[-1]["tokens"] // 338)


def test_a_store_of_another_dataset_counts_for_nothing(here: Here) -> None:
    plan = here.folder / "data" / "hidden" / "plan.json"
    plan.write_text(plan.read_text().replace(manifest(here)["digest"], "0" * 64))
    assert here.estimate() == here.estimate(store="data:nowhere")


def test_without_the_dataset_nothing_is_known(here: Here) -> None:
    shutil.rmtree(here.folder / "data" / "merged")
    with pytest.raises(Unknown, match=r"^dataset absent$"):
        here.estimate()


@pytest.mark.parametrize("config", [None, "{}", "[1]", "{"])
def test_without_a_width_nothing_is_known(here: Here, config: str | None) -> None:
    path = here.folder / "model" / "tiny" / "config.json"
    path.unlink() if config is None else path.write_text(config)
    with pytest.raises(Unknown, match=r"config\.json"):
        here.estimate(store=None)


def test_without_the_target_nothing_is_known(here: Here) -> None:
    shutil.rmtree(here.folder / "model" / "tiny")
    with pytest.raises(Unknown, match="target absent"):
        here.estimate(store=None)


def test_a_rate_of_nothing_is_refused(here: Here) -> None:
    with pytest.raises(Unknown, match="above 0"):
        here.estimate(rate=0)


def test_production(here: Here) -> None:
    """87.8M tokens of Kimi-K2.5, whose config.json nests the text model's."""
    target = here.folder / "model" / "tiny" / "config.json"
    inner = {"hidden_size": 7168, "num_hidden_layers": 61}
    target.write_text(json.dumps({"model_type": "kimi_k25", "text_config": inner}))
    merged = here.folder / "data" / "merged" / "manifest.json"
    value = manifest(here)
    (source,) = value["sources"].values()
    first, *others = value["shards"]
    assert not others
    for counts in (source, first, value["totals"]):
        counts["tokens"] = 87_800_000
    for counts in (source, value["totals"]):
        counts["samples"] = 37_312
    first["rows"] = 37_312
    merged.write_text(json.dumps(value))
    found = here.estimate(store=None)
    assert found.time is not None and round(found.time / 3600) == 72
    assert 4_689 <= found.writes["data"] / 2**30 < 4_689 * 1.01


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


HEAD = b"".join(
    [
        b"GGUF",
        struct.pack("<IQQ", 3, 0, 5),
        _text("general.architecture") + struct.pack("<I", 8) + _text("llama"),
        _text("general.languages") + struct.pack("<IIQ", 9, 8, 1) + _text("en"),
        _text("numbers") + struct.pack("<IIQ", 9, 4, 3) + bytes(12),
        _text("clip.embedding_length") + struct.pack("<II", 4, 77),
        _text("llama.embedding_length") + struct.pack("<II", 4, 576),
    ]
)


def test_the_width_of_a_gguf_target(here: Here) -> None:
    folder = here.folder / "model" / "gguf"
    folder.mkdir()
    (folder / "a model.gguf").write_bytes(HEAD + bytes(100_000))
    found = here.estimate(store=None, target="model:gguf")
    assert found.writes == {"data": total_bytes(manifest(here), 576, 3)}
    (folder / "another.gguf").write_bytes(HEAD)
    with pytest.raises(Unknown, match=r"exactly one \*\.gguf; found 2"):
        here.estimate(store=None, target="model:gguf")


def test_a_gguf_head_cut_anywhere_tells_nothing() -> None:
    assert gguf_width(HEAD) == 576
    for length in range(len(HEAD)):
        assert gguf_width(HEAD[:length]) is None
    assert gguf_width(HEAD.replace(b"GGUF", b"GGML")) is None


@pytest.mark.model
def test_the_width_of_the_embedded_target(smollm2: Path) -> None:
    (path,) = smollm2.glob("*.gguf")
    with open(path, "rb") as stream:
        assert gguf_width(stream.read(65536)) == 576
    assert read_gguf_metadata(path)["llama.embedding_length"] == 576
