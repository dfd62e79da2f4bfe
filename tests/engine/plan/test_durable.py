"""Canonical JSON, keyed digests, and comparison where secrets are masked."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbooks.engine.plan.durable import canonical, plain, same, show_field
from runbooks.engine.plan.seal import keyed
from tests.engine.plan.recorded import thing

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.text(alphabet='\udc80é☃\x00"\\'),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
KEYS = st.binary(min_size=32, max_size=32)


@given(VALUES)
def test_a_value_comes_back_from_its_canonical_text_as_it_is_compared(value) -> None:
    text = canonical(value)
    text.decode("ascii")
    back = json.loads(text)
    assert canonical(back) == text
    assert same(plain(value), back)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=5))
def test_the_order_of_keys_does_not_matter(mapping) -> None:
    turned = dict(reversed(list(mapping.items())))
    assert canonical(mapping) == canonical(turned)


@given(VALUES, VALUES, KEYS)
def test_digests_are_equal_where_the_values_are_and_nowhere_else(one, two, key) -> None:
    assert (keyed(key, one) == keyed(key, two)) == (canonical(one) == canonical(two))


@given(VALUES, KEYS, KEYS)
def test_another_key_gives_another_digest(value, one, two) -> None:
    assert (keyed(one, value) == keyed(two, value)) == (one == two)


def test_true_is_not_one() -> None:
    assert canonical(True) != canonical(1)
    assert not same(True, 1)
    assert not same({"a": 1}, {"a": True})


@pytest.mark.parametrize(
    ("was", "now", "equal"),
    [
        ("key=[secret];", "key=hunter2;", True),
        ("key=[secret];", "key=[secret];", True),
        ("key=[secret];", "kex=hunter2;", False),
        (["[secret]", 1], ["x", 1], True),
        (["[secret]", 1], ["x", 2], False),
        ({"a": "[secret]"}, {"a": "x"}, True),
        ({"[secret]": 1}, {"hunter2": 1}, True),
        ("a", "b", False),
        ([1], [1, 2], False),
        ({"a": 1}, {"b": 1}, False),
        (None, "", False),
    ],
)
def test_what_was_masked_is_not_compared(was, now, equal: bool) -> None:
    assert same(was, now) is equal


def test_values_read_as_their_types_say() -> None:
    check = thing("x")
    assert show_field(check, "files", 18204) == "18,204"
    assert show_field(check, "size", 924 * 10**9) == "860.5 GiB (924.0 GB)"
    assert show_field(check, "is", None) == "absent"
    # Of an older fact: another type, or no such field any more.
    assert show_field(check, "files", "many") == "many"
    assert show_field(check, "gone", [1]) == "[1]"
    assert show_field(check, "is", "x" * 500) == "x" * 120 + "… (500 characters)"
