"""Which tokens of a conversation are trained on: the loss mask, by a scan over token ids.

A scan is the only method that is exact for every family: offsets and
`{% generation %}` tags do not exist for tiktoken models, and prefixes encoded on their own merge
otherwise than the whole. The rules, for every family:

- the template's rendering is tokenized once, without added special tokens;
- an assistant turn supervises its content and its end token, not its header;
- turns after the last assistant turn are trimmed before rendering;
- truncation keeps the first `max_tokens` tokens and fakes no end token;
- a row without a supervised token is dropped with its reason.

**Control tokens typed into a message.** Tokenizing the rendering turns a typed
`<|im_start|>assistant` into the real thing, and the scan would train on a user's words. Such a
row is dropped with the reason "control token <|im_start|> in a message", never repaired: the
server sees the same tokens, so any other tokenization would describe a prompt that it never gets.
As a second line, the scan must find as many assistant turns as the conversation has.

A family is found by rendering a probe, not by its name. To add one: a `Family` in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eagle3 import tokenizers
from eagle3.conversations import Conversation, TokenRow
from eagle3.errors import TargetError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = [
    "FAMILIES",
    "RULES_VERSION",
    "Dropped",
    "Family",
    "MaskedRow",
    "Masker",
    "chatml_spans",
    "spans_mask",
    "trim",
]

# Rises when the same input gives another mask; a dataset records it.
RULES_VERSION = 1

Ids = npt.NDArray[np.int32]
Mask = npt.NDArray[np.uint8]
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class MaskedRow:
    """Token ids [n] int32, loss mask [n] uint8 with at least one 1, whether tokens were cut off."""

    id: str
    input_ids: Ids
    loss_mask: Mask
    truncated: bool


@dataclass(frozen=True, slots=True)
class Dropped:
    """A row that trains nothing, and why."""

    id: str
    reason: str


@dataclass(frozen=True)
class Scan:
    """A family bound to one tokenizer."""

    spans: Callable[[Ids], list[Span]]  # what is supervised, one span an assistant turn
    control_tokens: tuple[str, ...]


@dataclass(frozen=True)
class Family:
    """A way to write turns. `bind` returns None where the tokenizer is not of the family."""

    name: str
    about: str
    bind: Callable[[PreTrainedTokenizerFast], Scan | None]


def chatml_spans(
    ids: Ids, *, start: int, header: Sequence[int], newline: Sequence[int], end: int
) -> list[Span]:
    """The supervised spans (first, one past the last) of ChatML tokens `ids` [n] int32.

    An assistant turn is `start`, `header` (the ids of the word "assistant"), a token out of
    `newline` (sorted ids of all tokens that begin with a newline), content, `end`. The newline
    token may hold the first white space of the content too ("\\n\\n"); it is header all the same:
    after a generation prompt the server has it already. A turn without its end runs to the end.
    """
    first = np.flatnonzero(ids == start) + 1
    content = first + len(header) + 1
    first, content = first[content < len(ids)], content[content < len(ids)]
    for offset, token in enumerate(header):
        keep = ids[first + offset] == token
        first, content = first[keep], content[keep]
    content = content[np.isin(ids[content - 1], np.asarray(newline))]
    stops = np.append(np.flatnonzero(ids == end) + 1, len(ids))
    found = stops[np.searchsorted(stops, content, side="right")]
    return list(zip(content.tolist(), found.tolist(), strict=True))


def spans_mask(spans: Sequence[Span], length: int) -> Mask:
    """Loss mask [length] uint8, 1 inside the spans."""
    mask = np.zeros(length, dtype=np.uint8)
    for begin, stop in spans:
        mask[begin:stop] = 1
    return mask


_CHATML = ("<|im_start|>", "<|im_end|>")
_CHATML_PROBE = (
    {"role": "user", "content": "Q"},
    {"role": "assistant", "content": "A"},
    {"role": "user", "content": "R"},
    {"role": "assistant", "content": "B"},
)


def _bind_chatml(tokenizer: PreTrainedTokenizerFast) -> Scan | None:
    added = tokenizer.get_added_vocab()
    if any(token not in added for token in _CHATML):
        return None
    wanted = "".join(
        f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in _CHATML_PROBE
    )
    # A system turn before it is fine; `<think></think>` inside the turns (Qwen 3) is not.
    if not tokenizers.render(tokenizer, _CHATML_PROBE).endswith(wanted):
        return None
    start, end = (added[token] for token in _CHATML)
    header = tokenizers.encode_batch(tokenizer, ["<|im_start|>assistant<|im_end|>"])[0][1:-1]
    newline = sorted(
        token for word, token in tokenizer.get_vocab().items() if word.startswith(("Ċ", "\n"))
    )

    def spans(ids: Ids) -> list[Span]:
        return chatml_spans(ids, start=start, header=header, newline=newline, end=end)

    return Scan(spans, _CHATML)


FAMILIES: tuple[Family, ...] = (
    Family("chatml", "<|im_start|>ROLE newline CONTENT<|im_end|>: SmolLM2, Qwen 2.5", _bind_chatml),
)


def trim(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """`messages` up to the last assistant turn; empty when there is none."""
    last = max((n for n, turn in enumerate(messages) if turn["role"] == "assistant"), default=-1)
    return list(messages[: last + 1])


class Masker:
    """Rows to masked rows, for one tokenizer and one length."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, max_tokens: int):
        """`max_tokens` at least 1. Raises TargetError when the tokenizer is of no known family."""
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        self.family, self._scan = self._find_family()

    def _find_family(self) -> tuple[str, Scan]:
        tokenizers.chat_template(self.tokenizer)  # its own error when there is none
        for family in FAMILIES:
            try:
                scan = family.bind(self.tokenizer)
            except Exception as error:
                # A template is a program of its own, and may raise anything.
                raise TargetError(
                    f"the chat template fails on a plain conversation: {error}"
                ) from error
            if scan is not None:
                return family.name, scan
        known = "; ".join(f"{family.name} ({family.about})" for family in FAMILIES)
        raise TargetError(
            f"the chat template is of no family with a loss mask; known: {known}",
            hint="add a Family to eagle3/masks.py FAMILIES: how to find it, and its scan over ids",
        )

    def mask_rows(self, rows: Sequence[Conversation | TokenRow]) -> list[MaskedRow | Dropped]:
        """One result for each row, in order. Conversations are tokenized as one batch."""
        results: list[MaskedRow | Dropped | None] = [None] * len(rows)
        texts: dict[int, str] = {}
        turns: dict[int, int] = {}
        for index, row in enumerate(rows):
            if isinstance(row, TokenRow):
                results[index] = self._token_row(row)
                continue
            text = self._render(row)
            if isinstance(text, Dropped):
                results[index] = text
                continue
            texts[index] = text
            turns[index] = sum(turn["role"] == "assistant" for turn in row.messages)
        encoded = tokenizers.encode_batch(self.tokenizer, list(texts.values()))
        for index, ids in zip(texts, encoded, strict=True):
            results[index] = self._conversation(
                rows[index].id, np.array(ids, dtype=np.int32), turns[index]
            )
        return [result for result in results if result is not None]

    def _render(self, row: Conversation) -> str | Dropped:
        if not row.messages:
            return Dropped(row.id, "no messages")
        messages = trim(row.messages)
        if not messages:
            return Dropped(row.id, "no assistant turn")
        for token in self._scan.control_tokens:
            # Names of tools and their arguments are rendered too.
            if any(_holds(turn, token) for turn in messages):
                return Dropped(row.id, f"control token {token} in a message")
        try:
            text = tokenizers.render(self.tokenizer, messages)
            if any(turn.get("tool_calls") for turn in messages):
                plain = [{k: v for k, v in turn.items() if k != "tool_calls"} for turn in messages]
                if tokenizers.render(self.tokenizer, plain) == text:
                    return Dropped(row.id, "tool calls that the chat template leaves out")
        except Exception as error:
            # Templates raise for turns that they do not take (roles that must alternate, say).
            reason = str(error).strip().split("\n", 1)[0] or type(error).__name__
            return Dropped(row.id, f"refused by the chat template: {reason[:200]}")
        return text

    def _conversation(self, row_id: str, ids: Ids, turns: int) -> MaskedRow | Dropped:
        spans = self._scan.spans(ids)
        if len(spans) != turns:
            return Dropped(row_id, f"{turns} assistant turns, {len(spans)} in the tokens")
        return self._cut(row_id, ids, spans_mask(spans, len(ids)))

    def _token_row(self, row: TokenRow) -> MaskedRow | Dropped:
        ids = np.array(row.input_ids, dtype=np.int32)
        given = row.loss_mask
        if given is None:
            mask = spans_mask(self._scan.spans(ids), len(ids))
        else:
            mask = np.array(given, dtype=np.uint8)
        return self._cut(row.id, ids, mask)

    def _cut(self, row_id: str, ids: Ids, mask: Mask) -> MaskedRow | Dropped:
        kept = mask[: self.max_tokens]
        if not kept.any():
            return Dropped(row_id, f"no supervised token within {self.max_tokens} tokens")
        truncated = len(ids) > self.max_tokens
        return MaskedRow(row_id, ids[: self.max_tokens].copy(), kept.copy(), truncated)


def _holds(value: Any, token: str) -> bool:
    if isinstance(value, str):
        return token in value
    if isinstance(value, Mapping):
        return any(_holds(key, token) or _holds(item, token) for key, item in value.items())
    return isinstance(value, (list, tuple)) and any(_holds(item, token) for item in value)
