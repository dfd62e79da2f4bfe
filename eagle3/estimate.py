"""Storage and time of an extraction, by arithmetic.

Bytes a token = what is stored of it: aux hidden states are needed at every position; the last
hidden state only where it is a training target, which is at supervised positions. Pure functions
on plain numbers; sizes are without the few bytes a row of ids, masks and headers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3.errors import Place, TargetError, UsageError
from eagle3.gguf_header import read_gguf_metadata
from eagle3.units import did_you_mean

__all__ = [
    "AUX_LAYERS",
    "SHAPES",
    "VARIANTS",
    "Estimate",
    "Shape",
    "Variant",
    "estimate_bytes",
    "estimate_seconds",
    "estimate_variants",
    "known_shape",
    "read_shape",
    "shape_of_config",
]

AUX_LAYERS = 3
BF16_BYTES = 2
FP8_BYTES = 1
FP8_SCALE_BYTES = 4  # one fp32 scale for each stored vector
TOP_K = 64
TOP_K_BYTES = TOP_K * (2 + 4) + 4  # bf16 value and int32 id of each, and the fp32 logsumexp


@dataclass(frozen=True)
class Shape:
    """What of a target counts here: width of its hidden states, number of layers."""

    name: str
    hidden: int
    layers: int


SHAPES: Mapping[str, Shape] = {
    "kimi-k2.5": Shape("kimi-k2.5", hidden=7168, layers=61),
    "smollm2-135m": Shape("smollm2-135m", hidden=576, layers=30),
}


@dataclass(frozen=True)
class Variant:
    """One way to store a token: bytes at every position, and bytes at supervised ones only."""

    key: str
    about: str
    bytes_per_token: int
    bytes_per_supervised_token: int = 0


def _bf16_bytes(vectors: int, hidden: int) -> int:
    return vectors * hidden * BF16_BYTES


def _fp8_bytes(vectors: int, hidden: int) -> int:
    return vectors * (hidden * FP8_BYTES + FP8_SCALE_BYTES)


def _variants(hidden: int) -> tuple[Variant, ...]:
    aux, last = _bf16_bytes(AUX_LAYERS, hidden), _bf16_bytes(1, hidden)
    return (
        Variant("aux", "3 aux bf16", aux),
        Variant("aux+top64", "3 aux bf16 + target top-64 and logsumexp", aux + TOP_K_BYTES),
        Variant("aux+last-fp8", "3 aux bf16 + last fp8", aux + _fp8_bytes(1, hidden)),
        Variant("aux+last", "3 aux + last bf16, all positions", aux + last),
        Variant("aux+last-supervised", "3 aux bf16 + last bf16, supervised only", aux, last),
        Variant("aux-fp8+last", "3 aux fp8 + last bf16", _fp8_bytes(AUX_LAYERS, hidden) + last),
        Variant("all-fp8", "3 aux + last fp8", _fp8_bytes(AUX_LAYERS + 1, hidden)),
    )


VARIANTS = tuple(variant.key for variant in _variants(1))


@dataclass(frozen=True)
class Estimate:
    """A variant's size. `bytes_per_token` is the mean over all positions where they differ."""

    variant: Variant
    bytes_per_token: float
    total_bytes: int


def estimate_bytes(variant: Variant, tokens: int, supervised_tokens: int) -> int:
    """Total bytes of `tokens` positions, `supervised_tokens` of them supervised."""
    return variant.bytes_per_token * tokens + variant.bytes_per_supervised_token * supervised_tokens


def estimate_seconds(tokens: int, tokens_per_second: float) -> float:
    """Seconds for `tokens` at a measured rate; UsageError when the rate is not above zero."""
    if not tokens_per_second > 0:
        raise UsageError(f"a rate of {tokens_per_second:g} tokens/s; it must be above 0")
    return tokens / tokens_per_second


def estimate_variants(hidden: int, tokens: int, supervised_tokens: int) -> list[Estimate]:
    """Every variant that is in use, for hidden states of width `hidden`."""
    return [
        Estimate(
            variant,
            total / tokens if tokens else float(variant.bytes_per_token),
            total,
        )
        for variant in _variants(hidden)
        for total in [estimate_bytes(variant, tokens, supervised_tokens)]
    ]


def read_shape(target: Path) -> Shape:
    """The shape of the target in a directory: from config.json, or the header of its one *.gguf.

    Raises TargetError.
    """
    path = target / "config.json"
    if path.is_file():
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise TargetError(f"cannot be read: {error}", place=Place(path)) from error
        return shape_of_config(value, path)
    found = sorted(target.glob("*.gguf")) if target.is_dir() else []
    if len(found) != 1:
        raise TargetError(
            f"wanted config.json or exactly one *.gguf; found {len(found)} *.gguf",
            place=Place(target),
        )
    metadata = read_gguf_metadata(found[0])
    name = metadata.get("general.architecture")
    sizes = [metadata.get(f"{name}.{key}") for key in ("embedding_length", "block_count")]
    return _shape(str(metadata.get("general.name", found[0].stem)), sizes[0], sizes[1], found[0])


def shape_of_config(config: Any, path: Path) -> Shape:
    """The shape in a parsed config.json; multimodal ones (Kimi-K2.5) nest it in `text_config`."""
    if not isinstance(config, dict):
        raise TargetError("is not an object", place=Place(path))
    nested = config.get("text_config")
    inner = nested if isinstance(nested, dict) and "hidden_size" in nested else config
    name = str(config.get("model_type") or path.parent.name)
    return _shape(name, inner.get("hidden_size"), inner.get("num_hidden_layers"), path)


def _shape(name: str, hidden: object, layers: object, path: Path) -> Shape:
    if type(hidden) is not int or type(layers) is not int or hidden < 1 or layers < 1:
        raise TargetError(
            "does not say the width of the hidden states and the number of layers",
            place=Place(path),
            hint="give --hidden N --layers N",
        )
    return Shape(name, hidden, layers)


def known_shape(name: str) -> Shape:
    """A shape by name; UsageError with the ones there are."""
    if name not in SHAPES:
        raise UsageError(f"shape {name!r} is unknown", hint=did_you_mean(name, SHAPES))
    return SHAPES[name]
