from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from eagle3 import tokenizers
from eagle3.errors import TargetError
from tests.eagle3.conftest import CHATML, write_tiny_target


def test_a_hugging_face_directory(tiny_target: Path) -> None:
    tokenizer = tokenizers.load_tokenizer(tiny_target)
    assert tokenizers.encode_batch(tokenizer, ["a", "<|im_end|>"])[1] == [258]
    assert tokenizers.vocabulary_size(tokenizer) == 259
    assert tokenizers.template_digest(tokenizer) == hashlib.sha256(CHATML.encode()).hexdigest()


def test_the_stored_form_loads_to_the_same_tokens(tiny_target: Path) -> None:
    import tokenizers as backend

    tokenizer = tokenizers.load_tokenizer(tiny_target)
    stored = tokenizers.tokenizer_json(tokenizer)
    assert hashlib.sha256(stored).hexdigest() == tokenizers.tokenizer_digest(tokenizer)
    again = backend.Tokenizer.from_str(stored.decode())
    text = tokenizers.PROBE + "<|im_end|>"
    assert again.encode(text).ids == tokenizers.encode_batch(tokenizer, [text])[0]
    assert again.decode(again.encode(text).ids, skip_special_tokens=False) == text


def test_settings_of_a_training_run_in_the_file_do_not_cut_or_pad(tmp_path: Path) -> None:
    target = write_tiny_target(tmp_path / "t")
    path = target / "tokenizer.json"
    value = json.loads(path.read_text())
    value["truncation"] = {
        "direction": "Right",
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    path.write_text(json.dumps(value))
    tokenizer = tokenizers.load_tokenizer(target)
    assert len(tokenizers.encode_batch(tokenizer, ["a" * 9, "b"])[0]) == 9


def test_a_tokenizer_that_loses_spaces_is_refused(tmp_path: Path) -> None:
    target = write_tiny_target(tmp_path / "t")
    path = target / "tokenizer.json"
    value = json.loads(path.read_text())
    value["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": ""}
    path.write_text(json.dumps(value))
    with pytest.raises(TargetError, match="does not give text back unchanged"):
        tokenizers.load_tokenizer(target)


def test_directories_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="is no directory"):
        tokenizers.load_tokenizer(tmp_path / "absent")
    with pytest.raises(TargetError, match="found none"):
        tokenizers.load_tokenizer(tmp_path)
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(TargetError, match=r"found a\.gguf, b\.gguf"):
        tokenizers.load_tokenizer(tmp_path)
    (tmp_path / "b.gguf").unlink()
    with pytest.raises(TargetError, match="cannot be loaded"):
        tokenizers.load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(TargetError, match="cannot be loaded"):
        tokenizers.load_tokenizer(tmp_path)


@pytest.mark.model
def test_smollm2(smollm2_tokenizer: Any) -> None:
    assert tokenizers.vocabulary_size(smollm2_tokenizer) == 49_152
    ids = tokenizers.encode_batch(smollm2_tokenizer, ["<|endoftext|><|im_start|><|im_end|>"])[0]
    assert ids == [0, 1, 2]
    text = tokenizers.render(smollm2_tokenizer, [{"role": "user", "content": "Hi"}])
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    )


@pytest.mark.model
def test_smollm2_splits_off_each_digit_as_it_was_trained(smollm2_tokenizer: Any) -> None:
    """tokenizer.ggml.pre = smollm: white space before a digit is one piece of its own."""
    backend = smollm2_tokenizer.backend_tokenizer
    assert backend.encode("a\n\n1. b  12").tokens == ["a", "ĊĊ", "1", ".", "Ġb", "ĠĠ", "1", "2"]
