"""A tiny random Llama with the tiny tokenizer, a dataset for it, and requests to extract."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from eagle3.extract import ExtractRequest
from eagle3.merge import merge
from eagle3.merge_config import config_from_arguments
from eagle3.states_manifest import PROGRESS, VERIFIED
from tests.targets import REPOSITORY

HIDDEN, LAYERS, VOCABULARY = 32, 8, 264


@dataclass(frozen=True)
class Case:
    """A target and a dataset merged for it."""

    target: Path
    data: Path

    def request(self, out: Path, **changes: Any) -> ExtractRequest:
        request = ExtractRequest(
            target=self.target,
            data=self.data,
            out=out,
            backend="transformers",
            layer_ids=None,
            batch_size=1,
            shard_tokens=100,
            compute_dtype="float32",
            limit=None,
            threads=1,
            trust_recorded=False,
        )
        return replace(request, **changes)

    def command(self, out: Path, *words: str) -> list[str]:
        """The real `eagle3 extract` with the settings of `request`."""
        head = [sys.executable, "-m", "eagle3.cli", "extract", "--target", str(self.target)]
        paths = ["--data", str(self.data), "--out", str(out)]
        return [*head, *paths, "--shard-tokens", "100", "--threads", "1", *words]


def run_command(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, cwd=REPOSITORY, env=environment()
    )


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY)}


def make_case(tokenizer: Path, directory: Path, *, rows: int = 40, layers: int = LAYERS) -> Case:
    """Weights and words are seeded: every session gets the same."""
    target = directory / "target"
    shutil.copytree(tokenizer, target)
    save_llama(target, layers)
    source = directory / "words.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in _conversations(rows)))
    config = config_from_arguments(
        target=str(target), max_tokens=120, seed=3, sources=[f"words={source}"], exclude=[]
    )
    merge(config, directory / "data")
    return Case(target, directory / "data")


def save_llama(directory: Path, layers: int = LAYERS) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=256,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    # The default 0.02 leaves states so small that a swapped layer would hardly show.
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(directory)


def _conversations(rows: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(5)
    for number in range(rows):
        words = " ".join(chance.choice(["sun", "rain", "wind"]) for _ in range(1 + number % 9))
        yield {
            "id": f"row-{number}",
            "messages": [
                {"role": "user", "content": f"{number}?"},
                {"role": "assistant", "content": words},
            ],
        }


def content(out: Path) -> dict[str, bytes]:
    """Every file of a store that must be the same bytes after any interruption."""
    return {
        path.name: path.read_bytes()
        for path in sorted(out.iterdir())
        if path.name not in {VERIFIED, PROGRESS}
    }
