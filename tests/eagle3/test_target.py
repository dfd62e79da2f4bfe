from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from eagle3.errors import TargetError
from eagle3.target import Target
from tests.eagle3.extract_cases import HIDDEN, LAYERS, VOCABULARY, save_llama


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("llama")
    save_llama(directory)
    return directory


def test_sizes_and_frozen_weights(llama: Path) -> None:
    target = Target.open(llama)
    assert (target.hidden_size, target.num_layers, target.vocab_size) == (
        HIDDEN,
        LAYERS,
        VOCABULARY,
    )
    assert len(target.digest) == 64
    model = target.load_model(torch.float32)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_nested_text_config(llama: Path, tmp_path: Path) -> None:
    config = json.loads((llama / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "x", "text_config": config}))
    shutil.copy(llama / "model.safetensors", tmp_path)
    assert Target.open(tmp_path).hidden_size == HIDDEN
    with pytest.raises(TargetError, match="cannot be loaded"):
        Target.open(tmp_path).load_model(torch.float32)


def test_missing_and_misshapen_weights_are_refused(llama: Path, tmp_path: Path) -> None:
    weights = load_file(llama / "model.safetensors")
    name = "model.layers.3.mlp.up_proj.weight"
    shutil.copy(llama / "config.json", tmp_path)
    kept = {key: value for key, value in weights.items() if key != name}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(TargetError, match=f"missing keys: {name}"):
        Target.open(tmp_path).load_model(torch.float32)
    kept[name] = torch.zeros(2, 2)
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(TargetError):
        Target.open(tmp_path).load_model(torch.float32)


def test_places_that_hold_no_target(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no directory"):
        Target.open(tmp_path / "nowhere")
    with pytest.raises(TargetError, match="no weights"):
        Target.open(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(TargetError, match="pickles"):
        Target.open(tmp_path)
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(TargetError, match=r"2 GGUF files: a\.gguf, b\.gguf"):
        Target.open(tmp_path)
    (tmp_path / "b.gguf").unlink()
    with pytest.raises(TargetError, match="ends early"):
        Target.open(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"short")
    with pytest.raises(TargetError, match=r"config\.json"):
        Target.open(tmp_path)
    shutil.copy(llama / "config.json", tmp_path)
    with pytest.raises(TargetError, match="cannot be loaded"):
        Target.open(tmp_path).load_model(torch.float32)
