from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3.units import (
    count_up_to,
    did_you_mean,
    parse_count,
    parse_share,
    show_duration,
    show_gb,
    show_gib,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("87.8M", 87_800_000),
        ("23.1M", 23_100_000),
        ("37_312", 37_312),
        ("37,312", 37_312),
        ("0", 0),
        ("1.5k", 1500),
        ("2 B", 2_000_000_000),
    ],
)
def test_counts_are_exact(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "M", "-3", "1.5", "87.8 MB", "1e6", "½", "٣"])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"count|whole"):
        parse_count(text)


@given(st.integers(min_value=0, max_value=10**15))
def test_a_count_with_separators_reads_back(number: int) -> None:
    assert parse_count(f"{number:,}") == parse_count(f"{number:_}") == number


def test_shares() -> None:
    assert parse_share("70%") == parse_share("0.7") == 0.7
    for text in ("1.1", "101%", "-0.1", "half"):
        with pytest.raises(ValueError, match="share"):
            parse_share(text)


def test_sizes_and_durations_as_people_write_them() -> None:
    assert show_gib(43_008 * 87_800_000) == "3,517 GiB"
    assert show_gb(43_008 * 87_800_000) == "3,776 GB"
    assert show_gib(512) == show_gb(512) == "512 B"
    assert show_gib(3 << 20) == "3.0 MiB"
    assert show_duration(87_800_000 / 338) == "72 h"
    assert show_duration(90) == "90 s"


def test_did_you_mean() -> None:
    assert did_you_mean("sed", ["seed", "target"]) == "did you mean 'seed'?"
    assert did_you_mean("xyz", ["b", "a"]) == "known: a, b"
    assert did_you_mean("xyz", []) is None


@pytest.mark.parametrize("text", ["0", "-1", "1025", "9" * 40, "many", "1.5"])
def test_a_number_that_no_machine_has_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        count_up_to(1024)(text)
    assert count_up_to(1024)("1_024") == 1024
