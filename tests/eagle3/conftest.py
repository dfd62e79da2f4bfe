"""Targets for tests: the real SmolLM2 tokenizer, and a tiny ChatML one that loads at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.targets import REPOSITORY, smollm2_directory

CASES = REPOSITORY / "tests" / "cases" / "conversations"

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
)

WriteLines = Callable[..., Path]


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The directory of the embedded target."""
    return smollm2_directory()


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2: Path) -> Any:
    from eagle3.tokenizers import load_tokenizer

    return load_tokenizer(smollm2)


def write_tiny_target(directory: Path, template: str = CHATML) -> Path:
    """A target whose tokens are bytes, with ChatML control tokens; its weights are four bytes."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    # Two newlines are one token, as in real vocabularies.
    vocabulary = {token: index for index, token in enumerate([*alphabet, "ĊĊ"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("Ċ", "Ċ")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(word, normalized=False) for word in ("<|im_start|>", "<|im_end|>")]
    )
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "chat_template": template,
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    (directory / "config.json").write_text(
        json.dumps(
            {
                "model_type": "llama",
                "hidden_size": 8,
                "num_hidden_layers": 8,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
            }
        )
    )
    (directory / "model.safetensors").write_bytes(b"tiny")
    return directory


@pytest.fixture(scope="session")
def tiny_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_target(tmp_path_factory.mktemp("tiny") / "target")


@pytest.fixture
def write_lines(tmp_path: Path) -> WriteLines:
    """Write objects (as JSON) or strings (as they are) as the lines of a file."""

    def write(name: str, *lines: object) -> Path:
        path = tmp_path / name
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
        return path

    return write


def conversation(row_id: str, *turns: tuple[str, str]) -> dict[str, Any]:
    """A line of a conversations file."""
    messages = [{"role": role, "content": content} for role, content in turns]
    return {"id": row_id, "messages": messages}


@pytest.fixture
def chat() -> Callable[..., dict[str, Any]]:
    return conversation
