from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eagle3 import tokenizers
from eagle3.conversations import Conversation, SourceReader, TokenRow
from eagle3.errors import TargetError
from eagle3.masks import Dropped, MaskedRow, Masker, chatml_spans, spans_mask, trim
from tests.eagle3.conftest import CASES, CHATML, write_tiny_target

BIG = 100_000


@pytest.fixture(scope="module")
def tiny(tiny_target: Path) -> Masker:
    return Masker(tokenizers.load_tokenizer(tiny_target), BIG)


@pytest.fixture(scope="module")
def real(smollm2_tokenizer: Any) -> Masker:
    return Masker(smollm2_tokenizer, BIG)


def turns(*pairs: tuple[str, str]) -> Conversation:
    return Conversation("row", tuple({"role": role, "content": text} for role, text in pairs))


def one(masker: Masker, row: Conversation | TokenRow) -> MaskedRow | Dropped:
    (result,) = masker.mask_rows([row])
    return result


def supervised_text(masker: Masker, row: MaskedRow) -> str:
    ids = row.input_ids[row.loss_mask == 1].tolist()
    return masker.tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=False)


def by_offsets(masker: Masker, text: str) -> np.ndarray:
    """A second, independent method: character spans of the rendering, and the encoder's offsets.

    A token is supervised when it starts inside CONTENT<|im_end|> of an assistant turn.
    """
    pattern = re.compile(r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)", re.DOTALL)
    spans = [found.span(1) for found in pattern.finditer(text)]
    encoded = masker.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
    return np.array(
        [any(a <= start < b for a, b in spans) for start, _ in encoded.offsets], dtype=np.uint8
    )


@pytest.mark.model
def test_the_cases_of_the_readme(smollm2_tokenizer: Any) -> None:
    expected = json.loads((CASES / "masks.expected.json").read_text())
    masker = Masker(smollm2_tokenizer, expected["max_tokens"])
    found = []
    for row in masker.mask_rows(list(SourceReader(CASES / "masks.jsonl"))):
        if isinstance(row, Dropped):
            found.append({"id": row.id, "dropped": row.reason})
            continue
        found.append(
            {
                "id": row.id,
                "tokens": len(row.input_ids),
                "supervised": int(row.loss_mask.sum()),
                "supervised_text": supervised_text(masker, row),
                "truncated": row.truncated,
            }
        )
    assert found == expected["rows"]


TEXT = st.text(
    alphabet=st.one_of(
        st.sampled_from("ab 1\n\t.<|>é日🙂\r"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=12,
)
CONVERSATION = st.lists(
    st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), TEXT),
    min_size=1,
    max_size=5,
)


def check_against_offsets(masker: Masker, pairs: list[tuple[str, str]]) -> None:
    row = turns(*pairs)
    result = one(masker, row)
    wanted = trim(row.messages)
    if not wanted:
        assert result == Dropped("row", "no assistant turn")
        return
    if isinstance(result, Dropped):
        assert "control token" in result.reason
        return
    text = tokenizers.render(masker.tokenizer, wanted)
    assert result.input_ids.dtype == np.int32 and result.loss_mask.dtype == np.uint8
    assert len(result.input_ids) == len(result.loss_mask)
    assert np.array_equal(result.loss_mask, by_offsets(masker, text))
    assert not result.truncated
    # The rendering, tokenized once.
    assert result.input_ids.tolist() == tokenizers.encode_batch(masker.tokenizer, [text])[0]


@settings(deadline=None)
@given(pairs=CONVERSATION)
def test_the_scan_agrees_with_offsets(tiny: Masker, pairs: list[tuple[str, str]]) -> None:
    check_against_offsets(tiny, pairs)


@pytest.mark.model
@settings(deadline=None)
@given(pairs=CONVERSATION)
def test_the_scan_agrees_with_offsets_on_smollm2(
    real: Masker, pairs: list[tuple[str, str]]
) -> None:
    check_against_offsets(real, pairs)


@pytest.mark.model
@settings(deadline=None)
@given(pairs=CONVERSATION)
def test_supervised_runs_decode_to_the_answers(real: Masker, pairs: list[tuple[str, str]]) -> None:
    """A third method: runs of supervised tokens, decoded, are the assistant turns."""
    row = turns(*pairs)
    result = one(real, row)
    if isinstance(result, Dropped):
        return
    # SmolLM2 has no token for some bytes (U+0006, 0xF1), and leaves them out.
    backend = real.tokenizer.backend_tokenizer
    text = tokenizers.render(real.tokenizer, trim(row.messages))
    ids = result.input_ids.tolist()
    assume(backend.decode(ids, skip_special_tokens=False) == text)
    answers = [turn["content"] for turn in trim(row.messages) if turn["role"] == "assistant"]
    text = supervised_text(real, result)
    # The token of the header's newline may hold the first white space of an answer.
    runs = text.split("<|im_end|>")[:-1]
    assert len(runs) == len(answers)
    for run, answer in zip(runs, answers, strict=True):
        assert answer.endswith(run)
        assert not answer.removesuffix(run).strip()


@settings(deadline=None)
@given(pairs=CONVERSATION, length=st.integers(1, 80))
def test_truncation_is_a_prefix_and_fakes_nothing(
    tiny: Masker, pairs: list[tuple[str, str]], length: int
) -> None:
    row = turns(*pairs)
    whole = one(tiny, row)
    short = Masker(tiny.tokenizer, length)
    cut = one(short, row)
    if isinstance(whole, Dropped):
        assert cut == whole
    elif isinstance(cut, Dropped):
        assert cut.reason == f"no supervised token within {length} tokens"
        assert not whole.loss_mask[:length].any()
    else:
        assert np.array_equal(cut.input_ids, whole.input_ids[:length])
        assert np.array_equal(cut.loss_mask, whole.loss_mask[:length])
        assert cut.truncated == (len(whole.input_ids) > length)


@pytest.mark.parametrize("token", ["<|im_start|>", "<|im_end|>"])
@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_a_typed_control_token_drops_the_row(tiny: Masker, role: str, token: str) -> None:
    """Tokenizing the rendering would make a real header of a user's words."""
    row = turns((role, f"I write {token}assistant\nand more"), ("assistant", "Fine."))
    assert one(tiny, row) == Dropped("row", f"control token {token} in a message")


def test_a_control_token_after_the_last_answer_is_trimmed_away(tiny: Masker) -> None:
    result = one(tiny, turns(("assistant", "Fine."), ("user", "<|im_start|>assistant\n")))
    assert isinstance(result, MaskedRow)
    assert supervised_text(tiny, result) == "Fine.<|im_end|>"


def test_a_control_token_inside_a_tool_call_drops_the_row(tiny: Masker) -> None:
    call = {"function": {"name": "f", "arguments": '{"x": "<|im_end|>"}'}}
    row = Conversation("row", ({"role": "assistant", "content": "", "tool_calls": [call]},))
    assert one(tiny, row) == Dropped("row", "control token <|im_end|> in a message")


def test_tool_calls_that_the_template_leaves_out_drop_the_row(tiny: Masker) -> None:
    call = {"function": {"name": "f", "arguments": "{}"}}
    row = Conversation("row", ({"role": "assistant", "content": "", "tool_calls": [call]},))
    assert one(tiny, row) == Dropped("row", "tool calls that the chat template leaves out")


def test_a_newline_token_that_holds_content_is_header(tiny: Masker) -> None:
    result = one(tiny, turns(("assistant", "\n\nA")))
    assert isinstance(result, MaskedRow)
    assert supervised_text(tiny, result) == "\nA<|im_end|>"


def test_token_rows_keep_their_mask_and_get_one_where_they_have_none(tiny: Masker) -> None:
    ids = tokenizers.encode_batch(
        tiny.tokenizer, ["<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"]
    )[0]
    scanned = one(tiny, TokenRow("row", tuple(ids), None))
    assert isinstance(scanned, MaskedRow)
    assert supervised_text(tiny, scanned) == "A<|im_end|>"
    given_mask = tuple(int(n == 0) for n in range(len(ids)))
    kept = one(tiny, TokenRow("row", tuple(ids), given_mask))
    assert isinstance(kept, MaskedRow)
    assert kept.loss_mask.tolist() == list(given_mask)
    nothing = one(tiny, TokenRow("row", (1, 2), (0, 0)))
    assert nothing == Dropped("row", f"no supervised token within {BIG} tokens")


def test_results_keep_the_order_of_mixed_rows(tiny: Masker) -> None:
    rows = [
        TokenRow("a", (1, 2), (0, 1)),
        Conversation("b", ()),
        Conversation("c", ({"role": "assistant", "content": "x"},)),
        TokenRow("d", (), None),
    ]
    assert [row.id for row in tiny.mask_rows(rows)] == ["a", "b", "c", "d"]


def test_a_turn_that_is_cut_in_its_header_or_has_no_end() -> None:
    """start 9, header 5 6, newline 7 or 8, end 4."""

    def mask(*ids: int) -> list[int]:
        array = np.array(ids, dtype=np.int32)
        spans = chatml_spans(array, start=9, header=[5, 6], newline=[7, 8], end=4)
        return spans_mask(spans, len(ids)).tolist()

    assert mask() == []
    assert mask(9) == [0]
    assert mask(9, 5, 6) == [0, 0, 0]
    assert mask(9, 5, 6, 7) == [0, 0, 0, 0]
    assert mask(9, 5, 6, 7, 4) == [0, 0, 0, 0, 1]
    assert mask(9, 5, 6, 8, 1, 1) == [0, 0, 0, 0, 1, 1]
    assert mask(9, 5, 6, 1, 1, 4) == [0] * 6
    assert mask(9, 5, 1, 7, 1, 4) == [0] * 6
    assert mask(4, 9, 5, 6, 7, 1, 4, 7, 9, 5, 6, 7, 4) == [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1]


def test_an_unknown_family_says_what_to_add(tmp_path: Path) -> None:
    thinking = CHATML.replace(
        "message['content']",
        "('<think></think>' if message['role'] == 'assistant' else '') + message['content']",
    )
    target = write_tiny_target(tmp_path / "t", thinking)
    with pytest.raises(TargetError, match="no family") as caught:
        Masker(tokenizers.load_tokenizer(target), 8)
    assert "chatml" in str(caught.value)
    assert "FAMILIES" in str(caught.value)


def test_a_template_that_refuses_a_row_drops_it_with_its_words(tmp_path: Path) -> None:
    strict = (
        "{% if messages[0]['role'] == 'tool' %}{{ raise_exception('tool first') }}{% endif %}"
        + CHATML
    )
    masker = Masker(tokenizers.load_tokenizer(write_tiny_target(tmp_path / "t", strict)), BIG)
    refused, kept = masker.mask_rows(
        [turns(("tool", "x"), ("assistant", "y")), turns(("user", "x"), ("assistant", "y"))]
    )
    assert refused == Dropped("row", "refused by the chat template: tool first")
    assert isinstance(kept, MaskedRow)


def test_a_target_without_a_template(tmp_path: Path) -> None:
    target = write_tiny_target(tmp_path / "t", "")
    with pytest.raises(TargetError, match="no chat template"):
        Masker(tokenizers.load_tokenizer(target), 8)
