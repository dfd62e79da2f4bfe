"""Types: what they take, what they refuse and say, and that their schema agrees."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbooks.engine.model import values
from runbooks.engine.model.values import show_duration, show_size

GIB = 2**30


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (values.Size(), "3.5 TiB", int(3.5 * 2**40)),
        (values.Size(), "924 GB", 924 * 10**9),
        (values.Size(), "924GB", 924 * 10**9),
        (values.Duration(), "72h", 259200),
        (values.Duration(), "1d12h", 129600),
        (values.Duration(), "90m", 5400),
        (values.Percent(), "2%", 0.02),
        (values.Boolean(), True, True),
        (values.Integer(), 37_312, 37312),
        (values.RootPath(), "data:merged", "data:merged"),
        (values.RootPath(), "data:", "data:"),
        (values.HostPath(), "/etc/fstab", "/etc/fstab"),
        (values.ListOf(), ["a", "b"], ("a", "b")),
        (values.MapOf(), {"A_B": "c"}, {"A_B": "c"}),
    ],
)
def test_values(kind, raw, value) -> None:
    assert kind.parse(raw) == value
    jsonschema.validate(raw, kind.schema())


@pytest.mark.parametrize(
    ("kind", "raw", "says"),
    [
        (values.Size(), 3500, "3500 GiB"),
        (values.Size(), "3500", "3500 GiB"),
        (values.Size(), "3 G", "unit"),
        (values.Size(), "1 GiB\n", "not a size"),
        (values.Duration(), "72:00:00", "write 72h"),
        (values.Duration(), "22:22", "write 22h22m"),
        (values.Duration(), "1.5h", "not a duration"),
        (values.Duration(), 90, "90s, 90m or 90h"),
        (values.Duration(), "", "not a duration"),
        (values.Duration(), "72h\n", "not a duration"),
        (values.Duration(), "30m1h", "not a duration"),
        (values.Boolean(), "false", "'false' is not a boolean; write false"),
        (values.Boolean(), "no", "write false"),
        (values.Boolean(), 1, "write true"),
        (values.Integer(), True, "whole number"),
        (values.Integer(), "5", "whole number"),
        (values.Integer(), 1.0, "whole number"),
        (values.Number(), float("nan"), "number"),
        (values.Text(), 3.1, "quotes"),
        (values.Text(), "", "empty"),
        (values.Choice(("a", "b")), "c", "none of: a, b"),
        (values.RootPath(), "merged", "below a root"),
        (values.RootPath(), "data:x/../..", "leaves its root"),
        (values.RootPath(), "data:/etc", "absolute behind its root"),
        (values.RootPath(inside=True), "data:", "root itself"),
        (values.RootPath(inside=True), "data:./", "root itself"),
        (values.RootPath(inside=True), "data://", "absolute"),
        (values.HostPath(), "etc/fstab", "not a path"),
        (values.ListOf(), "a", "not a list"),
        (values.ListOf(), [], "empty"),
    ],
)
def test_refusals_say_what_to_write(kind, raw, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        kind.parse(raw)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "kind",
    [
        values.Size(),
        values.Size(estimate=True),
        values.Duration(),
        values.Percent(),
        values.Integer(),
    ],
)
@given(raw=st.one_of(st.text(alphabet="0123456789.hmsd GiBTk%\n", max_size=9), st.integers()))
def test_what_parses_is_what_the_schema_takes(kind, raw) -> None:
    try:
        kind.parse(raw)
        parses = True
    except ValueError:
        parses = False
    valid = jsonschema.Draft202012Validator(kind.schema()).is_valid(raw)
    assert valid == parses


@given(st.integers(1, 10**9))
def test_a_duration_of_whole_minutes_reads_back(minutes: int) -> None:
    text = show_duration(minutes * 60)
    parsed = values.Duration().parse(text)
    assert abs(parsed - minutes * 60) < 86400 if "d" in text else parsed == minutes * 60


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (924 * 10**9, "860.5 GiB (924.0 GB)"),
        (3517 * GIB, "3.4 TiB (3.8 TB)"),
    ],
)
def test_sizes_are_shown_in_both_units(count: int, text: str) -> None:
    assert show_size(count) == text
