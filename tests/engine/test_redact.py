"""The redactor masks every spelling that a secret takes."""

from __future__ import annotations

import base64
import html
import json
import shlex
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbooks.engine.redact import MASK, Redactor

SECRET = 'p@ss "word"/ü+1'


def spellings(secret: str) -> dict[str, str]:
    raw = secret.encode()
    return {
        "raw": secret,
        "base64": base64.b64encode(raw).decode(),
        "base64 in a longer text": base64.b64encode(b"user:" + raw + b"\n").decode(),
        "url": quote(secret, safe=""),
        "form": quote_plus(secret),
        "json": json.dumps(secret),
        "json, not ASCII": json.dumps(secret, ensure_ascii=False),
        "hex": raw.hex(),
        "HEX": raw.hex().upper(),
        "lower percent": quote(secret, safe="").lower().replace("%c3%bc", "%c3%bc"),
        "url that keeps slashes": quote(secret),
        "json with escaped slashes": json.dumps(secret).replace("/", "\\/"),
        "html": html.escape(secret),
        "shell": shlex.quote(f"{secret}'"),
        "wrapped base64": base64.encodebytes(b"y" * 50 + raw + b"z" * 50).decode(),
    }


@pytest.mark.parametrize("spelling", spellings(SECRET).values(), ids=list(spellings(SECRET)))
def test_each_spelling_is_masked(spelling: str) -> None:
    masked = Redactor([SECRET]).text(f"before {spelling} after")
    assert MASK in masked
    assert masked.startswith("before ") and masked.endswith(" after")
    assert "p@ss" not in masked


@given(st.text(min_size=8, max_size=40), st.binary(max_size=9), st.binary(max_size=9))
def test_base64_of_any_alignment_keeps_nothing_to_decode(secret: str, head: bytes, tail: bytes):
    """All but the characters that the neighbours share is masked."""
    raw = secret.encode(errors="ignore")
    if len(raw) < 8:
        return
    redactor = Redactor([raw.decode()])
    left = redactor.text(base64.b64encode(head + raw + tail).decode())
    assert MASK in left
    # What stays are the neighbours and at most one character on either side.
    assert len(left.replace(MASK, "")) <= 4 * ((len(head) + len(tail)) // 3 + 3)


def test_values_are_masked_through_their_structure() -> None:
    redactor = Redactor(["hunter2"])
    assert redactor.value({"hunter2": ["a hunter2", {"b": ("hunter2", 3)}]}) == {
        MASK: [f"a {MASK}", {"b": [MASK, 3]}]
    }


def test_without_secrets_nothing_changes() -> None:
    value = {"a": [1, None, "x"]}
    assert Redactor().value(value) is value


def test_lines_of_a_secret_are_masked_alone() -> None:
    key = "-----BEGIN-----\nAAAABBBBCCCC\n-----END-----"
    assert "AAAABBBBCCCC" not in Redactor([key]).text("log: AAAABBBBCCCC")
