from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3.aux_layers import (
    before_from_output,
    check_layer_ids,
    default_layer_ids,
    output_from_before,
    parse_layer_ids,
)
from eagle3.errors import TargetError, UsageError
from eagle3.extract_plan import batch_ranges, plan_shards
from eagle3.forecast import bytes_per_token, remaining_bytes, total_bytes

lengths = st.lists(st.integers(1, 300), max_size=60)


@given(lengths, st.integers(1, 400))
def test_every_row_is_in_one_shard_in_order(rows: list[int], budget: int) -> None:
    shards = plan_shards(rows, budget)
    assert [n for s in shards for n in range(s.first, s.first + s.rows)] == list(range(len(rows)))
    for shard in shards:
        mine = rows[shard.first : shard.first + shard.rows]
        assert shard.tokens == sum(mine)
        assert shard.tokens <= budget or len(mine) == 1
    # None could have taken the first row of the next one.
    for one, two in itertools.pairwise(shards):
        assert one.tokens + rows[two.first] > budget


@given(lengths, st.integers(1, 400), st.integers(1, 9))
def test_batches_cover_a_shard_in_order(rows: list[int], budget: int, size: int) -> None:
    for shard in plan_shards(rows, budget):
        found = [row for batch in batch_ranges(shard, size) for row in batch]
        assert found == list(range(shard.first, shard.first + shard.rows))
        assert max(len(batch) for batch in batch_ranges(shard, size)) <= size


@pytest.mark.parametrize(
    ("layers", "ids"), [(61, (1, 29, 57)), (30, (1, 14, 26)), (8, (1, 3, 4)), (7, (1, 2, 3))]
)
def test_default_layers(layers: int, ids: tuple[int, ...]) -> None:
    assert default_layer_ids(layers) == ids


@pytest.mark.parametrize(("layers", "shown"), [(6, "1, 2, 2"), (5, "1, 1, 1"), (1, "1, -1, -3")])
def test_shallow_targets_are_refused_with_their_ids(layers: int, shown: str) -> None:
    with pytest.raises(TargetError, match=shown):
        default_layer_ids(layers)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ((), "no aux layer"),
        ((1, 3, 3), "3 is named more than once"),
        ((3, 1), "write 1,3"),
        ((1, 7), "7 not within 0 to 6"),
        ((-1, 3), "-1 not within"),
    ],
)
def test_bad_layers(ids: tuple[int, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_layer_ids(ids, 8)


def test_layer_conventions() -> None:
    assert before_from_output((1, 29, 57)) == (2, 30, 58)
    assert output_from_before((2, 30, 58)) == (1, 29, 57)
    with pytest.raises(UsageError, match="embedding"):
        output_from_before((0,))
    assert parse_layer_ids("1, 14,26") == (1, 14, 26)
    with pytest.raises(UsageError, match="write numbers"):
        parse_layer_ids("1,x")


def test_forecast_of_production() -> None:
    assert bytes_per_token(7168, 3) == 57_344 + 5
    manifest = {"totals": {"samples": 37_312, "tokens": 87_800_000}}
    total = total_bytes(manifest, 7168, 3)
    assert 57_349 * 87_800_000 < total < 57_349 * 87_800_000 * 1.001
    half = [{"rows": 20_000, "tokens": 43_900_000}]
    assert 0.49 < remaining_bytes(manifest, half, 7168, 3) / total < 0.51
    with pytest.raises(ValueError, match="another"):
        remaining_bytes(manifest, half * 3, 7168, 3)
    with pytest.raises(ValueError, match="totals"):
        remaining_bytes({}, [], 7168, 3)


def test_forecast_module_is_standard_library_only() -> None:
    code = (
        "import sys, eagle3.forecast, json;"
        "print(json.dumps([m for m in ('torch', 'numpy', 'pyarrow', 'yaml') if m in sys.modules]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert json.loads(found.stdout) == []
