"""Storage and time of an extraction, before it starts.

Without arguments: the production run, Kimi-K2.5 with 87.8M tokens at 338 tokens/s, which the
fleet was measured at. For another target a time needs --rate.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from eagle3.errors import UsageError
from eagle3.estimate import (
    AUX_LAYERS,
    SHAPES,
    Estimate,
    Shape,
    estimate_seconds,
    estimate_variants,
    known_shape,
    read_shape,
)
from eagle3.forecast import bytes_per_token
from eagle3.merge_config import resolve_path
from eagle3.units import parse_count, parse_share, show_duration, show_gb, show_gib

NAME = "estimate"
ABOUT = "bytes a token, total size and time of an extraction"

# The production run of Kimi-K2.5: what the command says when nothing is asked for.
DEFAULT_SHAPE = "kimi-k2.5"
DEFAULT_TOKENS = "87.8M"
DEFAULT_RATE = 338.0
DEFAULT_SUPERVISED = "0.7"

Value = TypeVar("Value")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", metavar="DIR", help="read the shape from a target's directory")
    parser.add_argument("--shape", metavar="NAME", help=f"a known shape (default {DEFAULT_SHAPE})")
    parser.add_argument("--hidden", type=int, metavar="N", help="width of the hidden states")
    parser.add_argument("--layers", type=int, metavar="N", help="layers of the target")
    parser.add_argument(
        "--tokens", metavar="N", help=f"for example 87.8M (default {DEFAULT_TOKENS})"
    )
    parser.add_argument(
        "--supervised", metavar="SHARE", help=f"share of tokens (default {DEFAULT_SUPERVISED})"
    )
    parser.add_argument("--dataset", metavar="DIR", help="tokens and share of a merged dataset")
    parser.add_argument(
        "--rate",
        type=float,
        metavar="N",
        help=f"measured tokens/s (default for {DEFAULT_SHAPE}: {DEFAULT_RATE:g}, on the fleet)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> int:
    shape = _shape(arguments)
    tokens, supervised = _tokens(arguments)
    rate = arguments.rate
    known = SHAPES[DEFAULT_SHAPE]
    if rate is None and (shape.hidden, shape.layers) == (known.hidden, known.layers):
        rate = DEFAULT_RATE
    seconds = estimate_seconds(tokens, rate) if rate is not None else None
    variants = estimate_variants(shape.hidden, tokens, supervised)
    if arguments.json:
        print(json.dumps(_as_json(shape, tokens, supervised, rate, seconds, variants)))
        return 0
    fleet = "assumed: Kimi-K2.5 on the fleet"
    tokens_given = arguments.tokens is not None or arguments.dataset is not None
    share_given = arguments.supervised is not None or arguments.dataset is not None
    share = supervised / tokens if tokens else 0.0
    time = "unknown: give --rate N, measured tokens/s of this target"
    if seconds is not None:
        time = f"{show_duration(seconds)} at {rate:,g} tokens/s"
        time += "" if arguments.rate is not None else f" ({fleet})"
    _print(
        (
            ("target", f"{shape.name}: hidden {shape.hidden:,}, {shape.layers} layers"),
            (
                "tokens",
                f"{tokens:,}{'' if tokens_given else ' (the production run)'}, "
                f"{share:.0%} supervised{'' if share_given else f' ({fleet})'}",
            ),
            *_stored(shape, tokens, variants[0]),
            ("time", time),
        ),
        variants,
    )
    return 0


def _stored(shape: Shape, tokens: int, aux: Estimate) -> tuple[tuple[str, str], ...]:
    """The aux states alone, which the production numbers are of; then all that is written."""
    per_token = bytes_per_token(shape.hidden, AUX_LAYERS)
    return (
        ("aux states", f"{aux.variant.bytes_per_token:,} B/token ({aux.variant.about})"),
        ("size", _size(aux.total_bytes)),
        (
            "extract writes",
            f"{per_token:,} B/token, {_size(per_token * tokens)}: "
            f"{AUX_LAYERS} aux + last hidden state of all positions, ids and mask",
        ),
    )


def _shape(arguments: argparse.Namespace) -> Shape:
    by_hand = arguments.hidden is not None or arguments.layers is not None
    given = [arguments.target is not None, arguments.shape is not None, by_hand]
    if sum(given) > 1:
        raise UsageError("give one of --target, --shape, or --hidden with --layers")
    if arguments.target is not None:
        return read_shape(resolve_path(arguments.target))
    if by_hand:
        if arguments.hidden is None or arguments.layers is None:
            raise UsageError("--hidden and --layers go together")
        if arguments.hidden < 1 or arguments.layers < 1:
            raise UsageError("--hidden and --layers: write at least 1")
        return Shape("given", arguments.hidden, arguments.layers)
    return known_shape(arguments.shape or DEFAULT_SHAPE)


def _tokens(arguments: argparse.Namespace) -> tuple[int, int]:
    """Tokens, and supervised tokens among them."""
    if arguments.dataset is not None:
        if arguments.tokens is not None or arguments.supervised is not None:
            raise UsageError("--dataset says the tokens; leave --tokens and --supervised out")
        from eagle3.dataset_manifest import read_manifest

        manifest = read_manifest(resolve_path(arguments.dataset))
        return manifest.tokens, manifest.supervised
    tokens = _parsed("--tokens", parse_count, arguments.tokens or DEFAULT_TOKENS)
    share = _parsed("--supervised", parse_share, arguments.supervised or DEFAULT_SUPERVISED)
    return tokens, round(tokens * share)


def _parsed(option: str, parse: Callable[[str], Value], text: str) -> Value:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _as_json(
    shape: Shape,
    tokens: int,
    supervised: int,
    rate: float | None,
    seconds: float | None,
    variants: list[Estimate],
) -> dict[str, object]:
    return {
        "shape": shape.name,
        "hidden": shape.hidden,
        "layers": shape.layers,
        "tokens": tokens,
        "supervised_tokens": supervised,
        "tokens_per_second": rate,
        "seconds": seconds,
        "bytes_per_token": variants[0].variant.bytes_per_token,
        "total_bytes": variants[0].total_bytes,
        "extract_bytes_per_token": bytes_per_token(shape.hidden, AUX_LAYERS),
        "extract_bytes": bytes_per_token(shape.hidden, AUX_LAYERS) * tokens,
        "variants": [
            {
                "variant": found.variant.key,
                "about": found.variant.about,
                "bytes_per_token": found.bytes_per_token,
                "total_bytes": found.total_bytes,
            }
            for found in variants
        ],
    }


def _size(count_bytes: int) -> str:
    binary = show_gib(count_bytes)
    if count_bytes >= 2**40:
        binary += f" = {count_bytes / 2**40:,.2f} TiB"
    return f"{binary} ({show_gb(count_bytes)})"


def _print(facts: Sequence[tuple[str, str]], variants: list[Estimate]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="what else could be stored", title_justify="left")
    for column in ("stored of a token", "B/token", "size", "decimal"):
        table.add_column(column, justify="left" if column.startswith("stored") else "right")
    for found in variants:
        table.add_row(
            found.variant.about,
            f"{found.bytes_per_token:,.0f}",
            show_gib(found.total_bytes),
            show_gb(found.total_bytes),
        )
    console = Console()
    for name, value in facts:
        # No wrapping: these lines are grepped.
        console.print(f"{name:<14}  {value}", markup=False, highlight=False, soft_wrap=True)
    console.print(table)
