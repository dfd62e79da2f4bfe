"""Training inputs: JSONL of conversations, or of rows that are tokens already.

    {"id": "a", "messages": [{"role": "user", "content": "Hi"}, ...]}
    {"id": "b", "conversations": [{"from": "human", "value": "Hi"}, ...]}     ShareGPT
    {"id": "c", "input_ids": [1, 9690, ...], "loss_mask": [0, 1, ...]}        mask optional

Told apart by their keys. Other keys of a line and of a message are metadata and ignored, except
those that a chat template reads (`TEMPLATE_KEYS`). A bad line is an `InputError`, never a
dropped row: dropping is for rows that are well formed and train nothing (see `masks`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagle3.errors import InputError, Place
from eagle3.files import canonical_json
from eagle3.json_lines import JsonLines
from eagle3.units import did_you_mean

__all__ = ["ROLES", "TEMPLATE_KEYS", "Conversation", "SourceReader", "TokenRow"]

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
SHAREGPT_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "tool": "tool",
    "observation": "tool",
}
TEMPLATE_KEYS = frozenset({"name", "reasoning_content", "tool_calls", "tool_call_id"})
_KINDS = ("messages", "conversations", "input_ids")
_LARGEST_ID = 2**31 - 1  # input_ids are stored as int32


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns as a chat template takes them: `role`, `content` (a string), `TEMPLATE_KEYS`."""

    id: str
    messages: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class TokenRow:
    """Token ids [n] and, where the line has one, the loss mask [n] of 0 and 1."""

    id: str
    input_ids: tuple[int, ...]
    loss_mask: tuple[int, ...] | None


@dataclass
class SourceReader:
    """One pass over one input file. After it: `sha256`, `size` in bytes, `duplicates`."""

    path: Path
    vocabulary_size: int | None = None
    duplicates: int = 0
    _lines: JsonLines = field(init=False)

    def __post_init__(self) -> None:
        self._lines = JsonLines(self.path)

    @property
    def sha256(self) -> str:
        return self._lines.sha256

    @property
    def size(self) -> int:
        return self._lines.size

    def __iter__(self) -> Iterator[Conversation | TokenRow]:
        """Yields each row once, in file order; the same row again is counted in `duplicates`.

        Raises InputError with file and line at the first bad line.
        """
        seen: dict[str, tuple[int, bytes]] = {}
        for number, value in self._lines:
            place = Place(self.path, line=number)
            row = _row(value, place, self.vocabulary_size)
            content = _content_digest(row)
            if (first := seen.get(row.id)) is None:
                seen[row.id] = (number, content)
                yield row
            elif first[1] == content:
                self.duplicates += 1
            else:
                raise InputError(
                    f"id {row.id!r} has another content than in line {first[0]}", place=place
                )


def _content_digest(row: Conversation | TokenRow) -> bytes:
    if isinstance(row, Conversation):
        content: Any = ["conversation", row.messages]
    else:
        content = ["tokens", row.input_ids, row.loss_mask]
    return hashlib.sha256(canonical_json(content)).digest()[:16]


def _row(
    value: dict[str, Any], place: Place, vocabulary_size: int | None
) -> Conversation | TokenRow:
    kinds = [key for key in _KINDS if key in value]
    if len(kinds) != 1:
        raise _kind_error(value, kinds, place)
    row_id = _row_id(value, place)
    place = Place(place.file, line=place.line, item=f"id {row_id}")
    if kinds[0] == "input_ids":
        return _token_row(row_id, value, place, vocabulary_size)
    turns = value[kinds[0]]
    if not isinstance(turns, list):
        raise InputError(f"{kinds[0]} is {_spelt(turns)}, not a list", place=place)
    read = _sharegpt_turn if kinds[0] == "conversations" else _message
    return Conversation(
        row_id, tuple(read(turn, n, place) for n, turn in enumerate(turns, start=1))
    )


def _kind_error(value: dict[str, Any], kinds: list[str], place: Place) -> InputError:
    if kinds:
        return InputError(f"has both {' and '.join(kinds)}; wanted one of them", place=place)
    keys = ", ".join(sorted(value)) or "none"
    hints = [hint for key in sorted(value) if "mean" in (hint := did_you_mean(key, _KINDS) or "")]
    return InputError(
        f"has none of {', '.join(_KINDS)}; its keys: {keys[:200]}",
        place=place,
        hint=hints[0] if hints else None,
    )


def _row_id(value: dict[str, Any], place: Place) -> str:
    if "id" not in value:
        raise InputError("has no id", place=place, hint='add for example "id": "source-000001"')
    row_id = value["id"]
    if not isinstance(row_id, str) or not row_id:
        raise InputError(f"id is {_spelt(row_id)}, not a string with something in it", place=place)
    return _text(row_id, "id", place)


def _text(text: str, what: str, place: Place) -> str:
    """JSON may hold halves of surrogate pairs, which have no UTF-8 and no tokens."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{what} holds half of a surrogate pair", place=place) from None
    return text


def _spelt(value: object) -> str:
    """A value as an error shows it: short, in the words of JSON."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = ascii(value)
    return text if len(text) <= 40 else text[:40] + "…"


def _message(turn: object, number: int, place: Place) -> dict[str, Any]:
    if not isinstance(turn, dict):
        raise InputError(f"message {number} is {_spelt(turn)}, not an object", place=place)
    role = turn.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise InputError(
            f"message {number}: role is {_spelt(role)}",
            place=place,
            hint=did_you_mean(str(role), ROLES),
        )
    extra = {key: turn[key] for key in sorted(TEMPLATE_KEYS & turn.keys())}
    _check_extra(extra, number, place)
    content = turn.get("content")
    if content is None and extra.get("tool_calls"):
        content = ""  # the OpenAI spelling of a turn that only calls tools
    return {"role": role, "content": _content(content, number, place), **extra}


def _check_extra(extra: dict[str, Any], number: int, place: Place) -> None:
    calls = extra.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise InputError(
            f"message {number}: tool_calls is {_spelt(calls)}, not a list", place=place
        )
    for key in ("name", "reasoning_content", "tool_call_id"):
        if not isinstance(extra.get(key), str | None):
            raise InputError(
                f"message {number}: {key} is {_spelt(extra[key])}, not a string", place=place
            )
    try:
        canonical_json(extra)
    except UnicodeEncodeError:
        raise InputError(f"message {number} holds half of a surrogate pair", place=place) from None


def _content(content: object, number: int, place: Place) -> str:
    """A string, or a list of text parts, which are joined without anything between them."""
    what = f"message {number}: content"
    if isinstance(content, list):
        parts = []
        for part in content:
            text = (
                part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
            )
            if not isinstance(text, str):
                raise InputError(f"{what} has a part that is not text", place=place)
            parts.append(text)
        content = "".join(parts)
    if not isinstance(content, str):
        raise InputError(f"{what} is {_spelt(content)}, not a string", place=place)
    return _text(content, what, place)


def _sharegpt_turn(turn: object, number: int, place: Place) -> dict[str, Any]:
    if not isinstance(turn, dict):
        raise InputError(f"turn {number} is {_spelt(turn)}, not an object", place=place)
    speaker = turn.get("from")
    if not isinstance(speaker, str) or speaker not in SHAREGPT_ROLES:
        raise InputError(
            f"turn {number}: from is {_spelt(speaker)}",
            place=place,
            hint=did_you_mean(str(speaker), SHAREGPT_ROLES),
        )
    return {"role": SHAREGPT_ROLES[speaker], "content": _content(turn.get("value"), number, place)}


def _token_row(
    row_id: str, value: dict[str, Any], place: Place, vocabulary_size: int | None
) -> TokenRow:
    ids = value["input_ids"]
    if not isinstance(ids, list):
        raise InputError(f"input_ids is {_spelt(ids)}, not a list", place=place)
    largest = _LARGEST_ID if vocabulary_size is None else vocabulary_size - 1
    for index, token in enumerate(ids):
        # bool is an int in Python, and not here.
        if type(token) is not int or not 0 <= token <= largest:
            raise InputError(
                f"input_ids[{index}] is {_spelt(token)}, not a token id from 0 to {largest:,}",
                place=place,
            )
    mask = value.get("loss_mask")
    if mask is None:
        return TokenRow(row_id, tuple(ids), None)
    if not isinstance(mask, list):
        raise InputError(f"loss_mask is {_spelt(mask)}, not a list", place=place)
    if len(mask) != len(ids):
        raise InputError(f"loss_mask has {len(mask)} values for {len(ids)} input_ids", place=place)
    for index, bit in enumerate(mask):
        if type(bit) is not int or bit not in (0, 1):
            raise InputError(f"loss_mask[{index}] is {_spelt(bit)}, not 0 or 1", place=place)
    return TokenRow(row_id, tuple(ids), tuple(mask))
