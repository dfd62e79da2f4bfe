"""What an extraction stores, compared with transformers itself."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from eagle3 import extract as extract_module
from eagle3 import tokenizers
from eagle3.cli import main
from eagle3.dataset import Dataset
from eagle3.errors import StoreError, TargetError, UsageError
from eagle3.extract import extract
from eagle3.forecast import remaining_bytes, total_bytes
from eagle3.show import load_decoder, shown_rows
from eagle3.states import StateStore
from eagle3.states_manifest import LOCK, MANIFEST, PROGRESS
from eagle3.store_lock import store_lock
from eagle3.target import Target
from eagle3.target_forward import BATCH_BOUND, TargetForward
from tests.eagle3.extract_cases import HIDDEN, Case, content, environment, make_case, run_command

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def case(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tiny_target, tmp_path_factory.mktemp("extract"))


@pytest.fixture(scope="module")
def store(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stores") / "hidden"
    assert extract(case.request(out)).outcome == "written"
    return out


def direct(model: Any, ids: Sequence[int], layers: Sequence[int]) -> tuple[Any, Any]:
    """Aux and last states of one row alone, as a user of transformers gets them."""
    with torch.no_grad():
        states = model(torch.tensor([list(ids)]), output_hidden_states=True).hidden_states
    aux = torch.cat([states[i + 1][0] for i in layers], dim=-1)
    return aux.to(torch.bfloat16), states[-1][0].to(torch.bfloat16)


def assert_same_as_direct(
    store: Path, data: Path, target: Path, dtype: torch.dtype = torch.float32
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = Target.open(target).load_model(dtype)
        found = StateStore.open(store)
        rows = list(Dataset.open(data).rows())[: found.samples]
        for row, wanted in zip(found.rows(), rows, strict=True):
            assert (row.id, row.source, row.truncated) == (
                wanted.id,
                wanted.source,
                wanted.truncated,
            )
            assert row.input_ids.dtype == torch.int32
            assert row.input_ids.tolist() == wanted.input_ids.tolist()
            assert row.loss_mask.tolist() == wanted.loss_mask.tolist()
            assert len(row.input_ids) == len(row.loss_mask) == len(row.aux_hidden_states)
            aux, last = direct(model, wanted.input_ids.tolist(), found.plan.settings.layer_ids)
            assert torch.equal(row.aux_hidden_states, aux)
            assert torch.equal(row.last_hidden_state, last)
    finally:
        torch.set_num_threads(before)


def test_every_sample_is_the_direct_forward(case: Case, store: Path) -> None:
    assert_same_as_direct(store, case.data, case.target)
    found = StateStore.open(store)
    assert found.complete
    assert len(found.shards) > 5
    found.verify(full=False)
    found.verify(full=True)
    assert found.samples == Dataset.open(case.data).manifest.samples


def test_bfloat16_is_the_direct_forward_too(case: Case, tmp_path: Path) -> None:
    extract(case.request(tmp_path / "hidden", compute_dtype="bfloat16", limit=5))
    assert_same_as_direct(tmp_path / "hidden", case.data, case.target, torch.bfloat16)


def test_batches_stay_within_the_bound(case: Case, store: Path, tmp_path: Path) -> None:
    extract(case.request(tmp_path / "hidden", batch_size=4, shard_tokens=1000))
    alone, batched = StateStore.open(store), StateStore.open(tmp_path / "hidden")
    for one, two in zip(alone.rows(), batched.rows(), strict=True):
        assert one.id == two.id
        _assert_within_bound(one.aux_hidden_states, two.aux_hidden_states, 3)
        _assert_within_bound(one.last_hidden_state, two.last_hidden_state, 1)


def _assert_within_bound(one: torch.Tensor, two: torch.Tensor, layers: int) -> None:
    relative, largest = BATCH_BOUND
    for x, y in zip(one.float().chunk(layers, -1), two.float().chunk(layers, -1), strict=True):
        bound = relative * x.abs() + largest * x.abs().amax(-1, keepdim=True)
        assert bool(((x - y).abs() <= bound).all())


def test_the_manifest_says_what_decides_the_bits(case: Case, store: Path) -> None:
    manifest = json.loads((store / MANIFEST).read_text())
    data, target = Dataset.open(case.data).manifest, Target.open(case.target)
    assert manifest["format"] == "eagle3-hidden-states"
    assert manifest["layer_ids"] == [1, 3, 4]
    assert (manifest["layer_convention"], manifest["norm_state"]) == ("output", "post")
    assert (manifest["compute_dtype"], manifest["storage_dtype"]) == ("float32", "bfloat16")
    assert manifest["dataset_digest"] == data.digest
    assert manifest["target_digest"] == target.digest
    assert manifest["totals"]["tokens"] == data.tokens
    assert manifest["totals"]["supervised"] == data.supervised
    assert str(store) not in (store / MANIFEST).read_text()
    progress = json.loads((store / PROGRESS).read_text())
    assert progress["state"] == "complete"
    assert (progress["done"], progress["total"]) == (data.tokens, data.tokens)
    assert (progress["unit"], progress["samples_done"]) == ("tokens", data.samples)


def test_forecast_covers_what_is_written(case: Case, store: Path) -> None:
    manifest = json.loads((case.data / "manifest.json").read_text())
    sidecars = [json.loads(path.read_text()) for path in sorted(store.glob("states-*.json"))]
    written = sum(path.stat().st_size for path in store.iterdir())
    assert written <= total_bytes(manifest, HIDDEN, 3, 100)
    assert remaining_bytes(manifest, sidecars, HIDDEN, 3, 100) == 0
    rest = sum(path.stat().st_size for path in list(store.glob("states-*"))) - sum(
        (store / name).stat().st_size for s in sidecars[:3] for name in (s["file"],)
    )
    assert rest <= remaining_bytes(manifest, sidecars[:3], HIDDEN, 3, 100)


def test_a_complete_store_is_left_alone(case: Case, store: Path) -> None:
    def seen() -> dict[str, Any]:
        return {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in store.iterdir()}

    before = {name: value for name, value in seen().items() if name != LOCK}
    assert extract(case.request(store)).outcome == "unchanged"
    assert extract(case.request(store, trust_recorded=True, threads=None)).outcome == "unchanged"
    assert {name: value for name, value in seen().items() if name != LOCK} == before
    assert (store / LOCK).read_bytes() == b""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layer_ids": (1, 2, 5)}, "layer_ids 1,3,4 there, 1,2,5 here"),
        ({"compute_dtype": "bfloat16"}, "compute_dtype float32 there, bfloat16 here"),
        ({"batch_size": 2}, "batch_size 1 there, 2 here"),
        ({"threads": 2}, "threads 1 there, 2 here"),
        ({"limit": 3}, "limit none there, 3 here"),
        ({"shard_tokens": 200}, "shard_tokens 100 there, 200 here"),
    ],
)
def test_a_store_of_another_plan_is_refused(
    case: Case, store: Path, changes: dict[str, Any], said: str
) -> None:
    before = content(store)
    with pytest.raises(StoreError, match=said):
        extract(case.request(store, **changes))
    assert content(store) == before


def test_a_dataset_of_another_target_is_refused(
    case: Case, tiny_target: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(case.target, other)
    path = other / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings["chat_template"] = settings["chat_template"] + " "
    path.write_text(json.dumps(settings))
    with pytest.raises(StoreError) as caught:
        extract(case.request(tmp_path / "hidden", target=other))
    text = str(caught.value)
    data = Dataset.open(case.data).manifest
    assert (
        "chat template" in text and "tokenizer " not in text.split("target: ")[1].split("chat")[0]
    )
    assert data.target_digest in text and Target.open(other).digest in text
    assert not (tmp_path / "hidden").exists()


def test_foreign_directories_are_not_touched(case: Case, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"notes\.txt"):
        extract(case.request(tmp_path))
    before = content(case.data)
    with pytest.raises(StoreError, match=r"without a plan\.json"):
        extract(case.request(case.data))
    assert {n: b for n, b in content(case.data).items() if n != LOCK} == before
    (case.data / LOCK).unlink()


def test_a_second_extractor_is_refused(case: Case, tmp_path: Path) -> None:
    out = tmp_path / "hidden"
    out.mkdir()
    with store_lock(out / LOCK), pytest.raises(StoreError, match=f"pid {os.getpid()}"):
        extract(case.request(out))
    with store_lock(out / LOCK):
        done = run_command(case.command(out, "--limit", "2"))
    assert done.returncode == 6
    assert "another extractor" in done.stderr


def test_nan_names_the_sample(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = TargetForward.__call__
    calls = 0

    def poisoned(self: TargetForward, rows: Any) -> Any:
        nonlocal calls
        calls += 1
        states = original(self, rows)
        if calls == 9:
            aux, last = (found.clone() for found in states[0])
            last[2, 5] = float("inf")
            return [(aux, last)]
        return states

    monkeypatch.setattr(TargetForward, "__call__", poisoned)
    name = list(Dataset.open(case.data).rows())[8].id
    with pytest.raises(StoreError, match=f"sample words/{name}.*token 2 is NaN or infinite"):
        extract(case.request(tmp_path / "hidden"))
    assert not list((tmp_path / "hidden").glob(".states*"))
    monkeypatch.undo()
    assert extract(case.request(tmp_path / "hidden")).outcome == "resumed"


def test_a_full_disk_leaves_a_store_to_continue(
    case: Case, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "hidden"
    original, left = os.pwrite, 60_000

    def full(handle: int, data: Any, position: int) -> int:
        nonlocal left
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        # As a disk does it: the last write is cut short.
        done = original(handle, memoryview(data)[:left], position)
        left -= done
        return done

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreError, match=r"the disk is full .*are free"):
        extract(case.request(out))
    assert not (out / MANIFEST).exists()
    partial = StateStore.open(out, allow_partial=True)
    partial.verify(full=True)
    assert 0 < partial.samples < 40
    monkeypatch.undo()
    usage = shutil.disk_usage(out)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(StoreError, match="bytes are still to be written, 1,000 are free"):
        extract(case.request(out))
    monkeypatch.undo()
    result = extract(case.request(out))
    assert (result.outcome, result.kept_shards) == ("resumed", len(partial.shards))
    assert content(out) == content(store)


def test_settings_that_make_no_sense(case: Case, tmp_path: Path) -> None:
    for changes in ({"batch_size": 0}, {"limit": 0}, {"backend": "sglang"}, {"layer_ids": (1, 9)}):
        with pytest.raises(UsageError):
            extract(case.request(tmp_path / "hidden", **changes))
    assert not (tmp_path / "hidden").exists()


def test_shallow_target(tiny_target: Path, tmp_path: Path) -> None:
    shallow = make_case(tiny_target, tmp_path, rows=2, layers=6)
    with pytest.raises(TargetError, match="1, 2, 2"):
        extract(shallow.request(tmp_path / "hidden"))
    result = extract(shallow.request(tmp_path / "hidden", layer_ids=(0, 2, 4)))
    assert_same_as_direct(result.directory, shallow.data, shallow.target)


def test_rows_longer_than_the_target_takes(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target.open(case.target)
    monkeypatch.setattr(
        extract_module.Target,
        "open",
        lambda path: target.__class__(**{**vars(target), "max_positions": 20}),
    )
    with pytest.raises(StoreError, match=r"sample words/.*the target takes 20"):
        extract(case.request(tmp_path / "hidden"))


def test_show_reads_a_store(case: Case, store: Path) -> None:
    shown = list(shown_rows(store, load_decoder(store)))
    wanted = list(shown_rows(case.data, load_decoder(case.data)))
    assert shown == wanted


def test_command_line(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EAGLE3_ROOT_DATA", str(tmp_path))
    monkeypatch.setenv("EAGLE3_ROOT_MODEL", str(case.target.parent))
    words = [
        "extract",
        "--target",
        "model:target",
        "--data",
        str(case.data),
        "--out",
        "data:hidden",
    ]
    assert main([*words, "--limit", "3", "--layers", "0,2,5", "--json"]) == 0
    first = capsys.readouterr()
    said = json.loads(first.out)
    assert (said["outcome"], said["totals"]["samples"]) == ("written", 3)
    assert said["layer_ids"] == [0, 2, 5]
    assert "samples  3 in 1 shard\n" in first.err
    assert main([*words, "--limit", "3", "--layers", "0,2,5"]) == 0
    assert "nothing to do" in capsys.readouterr().err
    assert main([*words, "--limit", "3"]) == 6
    assert "layer_ids 0,2,5 there" in capsys.readouterr().err
    assert main([*words[:2], "model:nowhere", *words[3:]]) == 5
    assert main([*words, "--layers", "5,2"]) == 2


@pytest.mark.model
def test_smollm2_is_the_direct_forward(
    smollm2: Path, smollm2_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Target.open(smollm2).load_model(torch.float32)
    # Loading takes 15 and 5 s, and gives the same each time.
    monkeypatch.setattr(tokenizers, "load_tokenizer", lambda directory: smollm2_tokenizer)
    monkeypatch.setattr(extract_module, "load_tokenizer", lambda directory: smollm2_tokenizer)
    monkeypatch.setattr(Target, "load_model", lambda target, dtype: model.to(dtype))
    raw = REPOSITORY / "eagle3" / "data" / "demo"
    merged = tmp_path / "merged"
    sources = [f"{path.stem}={path}" for path in sorted(raw.glob("*.jsonl"))]
    settings = ["--target", str(smollm2), "--max-tokens", "512", "--seed", "42"]
    assert main(["merge", *settings, *sources, "--out", str(merged)]) == 0
    case = Case(smollm2, merged)
    out = tmp_path / "hidden"
    extract(case.request(out, limit=4, shard_tokens=256))
    assert_same_as_direct(out, merged, smollm2)
    found = StateStore.open(out)
    assert found.plan.settings.layer_ids == (1, 14, 26)
    forward = TargetForward(model, (1, 14, 26), 576, 30)
    rows = list(found.rows())
    for row, (aux, last) in zip(
        rows, forward([np.asarray(row.input_ids) for row in rows]), strict=True
    ):
        _assert_within_bound(row.aux_hidden_states, aux, 3)
        _assert_within_bound(row.last_hidden_state, last, 1)


def test_sigterm_ends_at_once_and_continues(case: Case, store: Path, tmp_path: Path) -> None:
    out = tmp_path / "hidden"
    with subprocess.Popen(
        case.command(out), cwd=REPOSITORY, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None and not (out / "states-00001.json").exists():
            pass
        process.terminate()
        errors = process.communicate()[1]
    if process.returncode == 143:
        assert "stopped; the same command continues" in errors
        assert "Traceback" not in errors
        assert not list(out.glob(".states*"))
        assert (out / LOCK).read_bytes() == b""
    else:
        # It may have ended before the signal came.
        assert process.returncode == 0
    assert extract(case.request(out)).outcome in {"resumed", "unchanged"}
    assert content(out) == content(store)
