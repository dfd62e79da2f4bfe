"""Which target layers EAGLE-3 trains on, and how their ids are spelt.

Two conventions are in use and differ by one:

    output   "output of layer i"      SpecForge, TorchSpec, ModelOpt; 1, N//2-1, N-4
    before   "before layer i"         EAGLE, vLLM, SGLang inside; 2, N//2, N-3

This project stores output ids, and the convention beside them in every manifest. Output id i is
`hidden_states[i + 1]` of transformers, whose `hidden_states[0]` is the embedding.
"""

from __future__ import annotations

from collections.abc import Sequence

from eagle3.errors import TargetError, UsageError

__all__ = [
    "CONVENTION",
    "before_from_output",
    "check_layer_ids",
    "default_layer_ids",
    "output_from_before",
    "parse_layer_ids",
]

CONVENTION = "output"


def default_layer_ids(num_layers: int) -> tuple[int, int, int]:
    """1, N//2-1, N-4 in the output convention: (1, 29, 57) of Kimi-K2.5's 61 layers.

    Raises TargetError where these collide (N = 5 and 6) or do not exist.
    """
    low, middle, high = 1, num_layers // 2 - 1, num_layers - 4
    if not 0 <= low < middle < high < num_layers:
        raise TargetError(
            f"a target of {num_layers} layers is too shallow for the default aux layers "
            f"1, N//2-1, N-4 = {low}, {middle}, {high}: they must differ and rise",
            hint="name others, for example --layers 0,1,2",
        )
    return low, middle, high


def check_layer_ids(ids: Sequence[int], num_layers: int) -> tuple[int, ...]:
    """`ids` as given, when each is an output id of `num_layers` layers and they rise.

    The last layer is refused: transformers returns its output after the final norm, and it is
    stored apart as `last_hidden_state`. Raises UsageError naming the ids at fault.
    """
    if not ids:
        raise UsageError("no aux layer is named", hint="for example --layers 1,14,26")
    shown = ",".join(str(index) for index in ids)
    if outside := [index for index in ids if not 0 <= index < num_layers - 1]:
        raise UsageError(
            f"layers {shown}: {', '.join(map(str, outside))} not within 0 to {num_layers - 2} "
            f"of a target of {num_layers} layers",
            hint="ids are outputs of layers, counted from 0; the last layer is stored anyway",
        )
    twice = sorted({index for index in ids if list(ids).count(index) > 1})
    if twice:
        raise UsageError(f"layers {shown}: {', '.join(map(str, twice))} is named more than once")
    if list(ids) != sorted(ids):
        raise UsageError(
            f"layers {shown} do not rise; write {','.join(map(str, sorted(ids)))}",
            hint="the drafter's fc layer expects low, middle, high",
        )
    return tuple(ids)


def parse_layer_ids(text: str) -> tuple[int, ...]:
    """`1,14,26` as numbers; UsageError for anything else."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 7 for word in words):
        raise UsageError(f"--layers {text!r}: write numbers, for example 1,14,26")
    return tuple(int(word) for word in words)


def before_from_output(ids: Sequence[int]) -> tuple[int, ...]:
    """From the output to the before convention: (1, 29, 57) becomes (2, 30, 58)."""
    return tuple(index + 1 for index in ids)


def output_from_before(ids: Sequence[int]) -> tuple[int, ...]:
    """The way back. Raises UsageError for 0, which is the embedding and no layer's output."""
    if any(index < 1 for index in ids):
        raise UsageError("'before layer 0' is the embedding, not the output of a layer")
    return tuple(index - 1 for index in ids)
