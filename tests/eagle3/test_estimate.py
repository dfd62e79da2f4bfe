from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3.cli import main
from eagle3.errors import TargetError, UsageError
from eagle3.estimate import (
    SHAPES,
    VARIANTS,
    estimate_seconds,
    estimate_variants,
    known_shape,
    read_shape,
    shape_of_config,
)

GIB = 2**30
# Widths, bytes a token and totals; the last for the supervised positions alone:
# bytes a token, GiB for 23.1M tokens (where the table has it), GiB for 87.8M tokens.
SECTION_4 = {
    "aux": (43_008, 925.2, 3516.7),
    "aux+top64": (43_396, 933.6, 3548),
    "aux+last-fp8": (50_180, 1080, 4103),
    "aux+last": (57_344, 1233.7, 4689),
    "aux+last-supervised": (53_043.2, None, 4337),
    "aux-fp8+last": (35_852, 771, 2932),
    "all-fp8": (28_688, 617, 2346),
}


def test_the_table_of_section_4() -> None:
    hidden = SHAPES["kimi-k2.5"].hidden
    small = estimate_variants(hidden, 23_100_000, 16_170_000)
    large = estimate_variants(hidden, 87_800_000, 61_460_000)
    assert [found.variant.key for found in large] == list(SECTION_4) == list(VARIANTS)
    for less, more in zip(small, large, strict=True):
        per_token, gib_small, gib_large = SECTION_4[more.variant.key]
        assert more.bytes_per_token == pytest.approx(per_token)
        # The table has tenths or whole GiB; cut off rather than rounded (925.26, 3516.77).
        if gib_small is not None:
            unit = 0.1 if isinstance(gib_small, float) else 0.5
            assert less.total_bytes / GIB == pytest.approx(gib_small, abs=unit)
        unit = 0.1 if isinstance(gib_large, float) else 0.5
        assert more.total_bytes / GIB == pytest.approx(gib_large, abs=unit)


def test_the_production_time() -> None:
    assert round(estimate_seconds(87_800_000, 338) / 3600) == 72
    assert round(estimate_seconds(23_100_000, 338) / 3600) == 19
    for rate in (0.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="above 0"):
            estimate_seconds(1, rate)


@given(hidden=st.integers(1, 20_000), tokens=st.integers(0, 10**9), share=st.floats(0, 1, width=16))
def test_storing_more_takes_more(hidden: int, tokens: int, share: float) -> None:
    size = {
        found.variant.key: found.total_bytes
        for found in estimate_variants(hidden, tokens, round(tokens * share))
    }
    assert size["aux"] <= size["aux+last-supervised"] <= size["aux+last"]
    assert size["aux"] <= size["aux+top64"]


@pytest.mark.parametrize(
    "arguments", [[], ["--shape", "kimi-k2.5", "--tokens", "87.8M", "--rate", "338"]]
)
def test_the_command_prints_the_production_numbers(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", *arguments]) == 0
    out = capsys.readouterr().out
    for words in ("43,008 B/token", "3,517 GiB", "72 h", "4,337 GiB", "3,776 GB"):
        assert words in out


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    """The lines before the table: name to text."""
    assert main(["estimate", *arguments]) == 0
    lines = capsys.readouterr().out.partition("what else could be stored")[0].splitlines()
    return {line[:14].rstrip(): line[16:] for line in lines}


def test_what_extract_writes_stands_below_the_aux_states(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = said(capsys)
    assert list(found) == ["target", "tokens", "aux states", "size", "extract writes", "time"]
    assert found["aux states"] == "43,008 B/token (3 aux bf16)"
    # 4 × 7,168 × 2 + 4 (id) + 1 (mask), times 87.8M.
    assert found["extract writes"] == (
        "57,349 B/token, 4,689 GiB = 4.58 TiB (5,035 GB): "
        "3 aux + last hidden state of all positions, ids and mask"
    )


def test_assumptions_are_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = "(assumed: Kimi-K2.5 on the fleet)"
    found = said(capsys)
    assert found["tokens"] == f"87,800,000 (the production run), 70% supervised {fleet}"
    assert found["time"] == f"72 h at 338 tokens/s {fleet}"
    found = said(capsys, "--tokens", "1M", "--supervised", "50%", "--rate", "338")
    assert found["tokens"] == "1,000,000, 50% supervised"
    assert found["time"] == "49 min at 338 tokens/s"


def test_another_target_has_no_time_without_a_rate(capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "--shape", "smollm2-135m")
    assert found["time"] == "unknown: give --rate N, measured tokens/s of this target"
    assert said(capsys, "--shape", "smollm2-135m", "--rate", "1000")["time"] == (
        "24 h at 1,000 tokens/s"
    )
    assert main(["estimate", "--shape", "smollm2-135m", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["seconds"] is None and values["tokens_per_second"] is None
    assert values["extract_bytes_per_token"] == 4 * 576 * 2 + 5
    # The same shape by its numbers is the fleet's target.
    assert "72 h" in said(capsys, "--hidden", "7168", "--layers", "61")["time"]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "--hidden", "8", "--layers", "4", "--tokens", "1k", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bytes_per_token"] == 48
    assert found["total_bytes"] == 48_000
    assert found["supervised_tokens"] == 700
    assert [variant["variant"] for variant in found["variants"]] == list(VARIANTS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shape", "kimi-k2"], "did you mean 'kimi-k2.5'?"),
        (["--shape", "kimi-k2.5", "--hidden", "1", "--layers", "1"], "give one of"),
        (["--hidden", "1"], "go together"),
        (["--hidden", "0", "--layers", "1"], "at least 1"),
        (["--tokens", "many"], "--tokens: 'many' is not a count"),
        (["--supervised", "2"], "--supervised: '2' is not a share"),
        (["--rate", "0"], "above 0"),
        (["--dataset", "x", "--tokens", "1"], "leave --tokens"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_shapes_of_targets(tmp_path: Path, tiny_target: Path) -> None:
    assert read_shape(tiny_target).hidden == 8
    text = {"hidden_size": 7168, "num_hidden_layers": 61}
    nested = shape_of_config(
        {"model_type": "kimi_k25", "text_config": text}, tmp_path / "config.json"
    )
    assert (nested.name, nested.hidden, nested.layers) == ("kimi_k25", 7168, 61)
    (tmp_path / "config.json").write_text('{"hidden_size": true, "num_hidden_layers": 2}')
    with pytest.raises(TargetError, match="does not say"):
        read_shape(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(TargetError, match="cannot be read"):
        read_shape(tmp_path)
    with pytest.raises(TargetError, match="wanted config"):
        read_shape(tmp_path / "absent")
    with pytest.raises(UsageError):
        known_shape("x")


@pytest.mark.model
def test_the_shape_of_a_gguf(smollm2: Path) -> None:
    shape = read_shape(smollm2)
    known = SHAPES["smollm2-135m"]
    assert (shape.hidden, shape.layers) == (known.hidden, known.layers)
