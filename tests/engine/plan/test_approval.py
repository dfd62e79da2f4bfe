"""Approvals: readable, for one measured thing, and parsed with a clear error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from runbooks.engine.model.operation import Preview
from runbooks.engine.plan.approval import Approval, approval_of, parse_approvals, phrase

PREVIEW = Preview(frees={"data": 992_137_445_376}, identity="data:hidden-10k 64769:12")


def test_the_phrase_holds_step_host_and_measured_amount() -> None:
    assert phrase("purge-old", "llm-two", PREVIEW) == "purge-old llm-two 992.1 GB"


def test_a_digest_round_trips() -> None:
    approval = approval_of("purge-old", "llm-two", PREVIEW)
    assert parse_approvals([f"purge-old={approval}"]) == {"purge-old": (approval,)}


@pytest.mark.parametrize("word", ["", "purge", "purge=", "=1-0123456789ab", "purge=yes", "p=1-xyz"])
def test_anything_else_is_a_usage_error(word: str) -> None:
    with pytest.raises(RunbookError) as caught:
        parse_approvals([word])
    assert caught.value.code is ExitCode.USAGE
    assert "STEP=DIGEST" in str(caught.value.diagnostics[0].hint)


@given(st.integers(1, 10**15), st.floats(-0.2, 0.2))
def test_one_percent_is_the_line(approved: int, change: float) -> None:
    measured = max(0, round(approved * (1 + change)))
    refusal = Approval(approved, "0" * 12).refusal(Approval(measured, "0" * 12))
    assert (refusal is None) == (abs(measured - approved) <= approved * 0.01)


def test_another_step_host_or_identity_has_another_hash() -> None:
    base = approval_of("a", "one", PREVIEW)
    others = [
        approval_of("b", "one", PREVIEW),
        approval_of("a", "two", PREVIEW),
        approval_of("a", "one", Preview(frees=PREVIEW.frees, identity="else")),
    ]
    assert all(base.refusal(other) is not None for other in others)


def test_the_id_of_a_matrix_step_holds_an_equals_sign():
    (step,) = parse_approvals(["purge[shard=2]=1000-0123456789ab"])
    assert step == "purge[shard=2]"
