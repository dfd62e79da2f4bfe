from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle3.conversations import Conversation, SourceReader, TokenRow
from eagle3.errors import EagleError, InputError, Place
from eagle3.json_lines import JsonLines

GOOD = {"id": "a", "messages": [{"role": "user", "content": "Hi"}]}


def read(path: Path, vocabulary: int | None = 100) -> list[Conversation | TokenRow]:
    return list(SourceReader(path, vocabulary))


def fails(path: Path, line: int, words: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read(path)
    assert caught.value.place is not None
    assert (caught.value.place.file, caught.value.place.line) == (path, line)
    assert words in str(caught.value)
    return caught.value


def test_both_kinds_and_sharegpt(write_lines: Callable[..., Path]) -> None:
    path = write_lines(
        "in.jsonl",
        GOOD | {"source": "metadata is ignored"},
        {
            "id": "b",
            "conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}],
        },
        {"id": "c", "input_ids": [1, 2], "loss_mask": [0, 1]},
        {"id": "d", "input_ids": [1, 2]},
    )
    a, b, c, d = read(path)
    assert a == Conversation("a", ({"role": "user", "content": "Hi"},))
    assert isinstance(b, Conversation)
    assert [turn["role"] for turn in b.messages] == ["user", "assistant"]
    assert c == TokenRow("c", (1, 2), (0, 1))
    assert d == TokenRow("d", (1, 2), None)


def test_text_parts_are_joined_and_tool_calls_kept(write_lines: Callable[..., Path]) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    call = {"type": "function", "function": {"name": "clock", "arguments": "{}"}}
    path = write_lines(
        "in.jsonl",
        {
            "id": "a",
            "messages": [
                {"role": "user", "content": parts, "weight": 1},
                {"role": "assistant", "content": None, "tool_calls": [call]},
            ],
        },
    )
    (row,) = read(path)
    assert isinstance(row, Conversation)
    assert row.messages[0] == {"role": "user", "content": "ab"}
    assert row.messages[1] == {"role": "assistant", "content": "", "tool_calls": [call]}


def test_bom_crlf_blank_lines_and_a_missing_last_line_end_are_tolerated(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    second = json.dumps(GOOD | {"id": "b"}).encode()
    data = b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r\n\r\n  \n" + second
    path.write_bytes(data)
    reader = SourceReader(path)
    assert [row.id for row in reader] == ["a", "b"]
    assert reader.size == len(data)
    assert reader.sha256 == hashlib.sha256(data).hexdigest()


def test_the_same_row_twice_is_counted_and_given_once(write_lines: Callable[..., Path]) -> None:
    path = write_lines("in.jsonl", GOOD, GOOD | {"note": "metadata differs"}, GOOD | {"id": "b"})
    reader = SourceReader(path)
    assert [row.id for row in reader] == ["a", "b"]
    assert reader.duplicates == 1


def test_one_id_with_two_contents_names_both_lines(write_lines: Callable[..., Path]) -> None:
    other = {"id": "a", "messages": [{"role": "user", "content": "Ho"}]}
    fails(write_lines("in.jsonl", GOOD, "", other), 3, "than in line 1")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ("[]", "not an object but list"),
        ("3", "not an object"),
        ('{"id": "a", "id": "b", "messages": []}', "'id' is there twice"),
        ('{"id": "a", "messages": [], "score": NaN}', "NaN is no JSON number"),
        ('{"id": "a", "messages": [], "score": -Infinity}', "-Infinity"),
        ('{"id": "a", "messages": [], "score": 1e999}', "too large"),
        ('{"id": "a", "text": "hello"}', "has none of messages, conversations, input_ids"),
        ('{"id": "a", "message": []}', "did you mean 'messages'?"),
        ('{"id": "a", "messages": [], "input_ids": [1]}', "has both"),
        ('{"messages": []}', "has no id"),
        ('{"id": 7, "messages": []}', "id is 7"),
        ('{"id": "", "messages": []}', "id is ''"),
        ('{"id": "\\ud800", "messages": []}', "surrogate"),
        ('{"id": "a", "messages": {}}', "not a list"),
        ('{"id": "a", "messages": ["hi"]}', "message 1 is 'hi'"),
        ('{"id": "a", "messages": [{"role": "asistant", "content": ""}]}', "'assistant'?"),
        ('{"id": "a", "messages": [{"content": ""}]}', "role is null"),
        ('{"id": "a", "messages": [{"role": "user", "content": 3}]}', "content is 3"),
        ('{"id": "a", "messages": [{"role": "user"}]}', "content is null"),
        ('{"id": "a", "messages": [{"role": "user", "content": "\\udc00"}]}', "surrogate"),
        (
            '{"id": "a", "messages": [{"role": "user", "content": [{"type": "image"}]}]}',
            "a part that is not text",
        ),
        (
            '{"id": "a", "messages": [{"role": "user", "content": "", "tool_calls": 1}]}',
            "tool_calls",
        ),
        ('{"id": "a", "conversations": [{"from": "humn", "value": ""}]}', "'human'?"),
        ('{"id": "a", "input_ids": "x"}', "not a list"),
        ('{"id": "a", "input_ids": [1, 2], "loss_mask": [1]}', "1 values for 2 input_ids"),
        ('{"id": "a", "input_ids": [1], "loss_mask": [0, 1]}', "2 values for 1 input_ids"),
        ('{"id": "a", "input_ids": [1], "loss_mask": [2]}', "loss_mask[0] is 2"),
        ('{"id": "a", "input_ids": [1], "loss_mask": [true]}', "loss_mask[0] is true"),
        ('{"id": "a", "input_ids": [1], "loss_mask": [1.0]}', "loss_mask[0] is 1.0"),
        ('{"id": "a", "input_ids": [-1]}', "input_ids[0] is -1"),
        ('{"id": "a", "input_ids": [0, true]}', "input_ids[1] is true"),
        ('{"id": "a", "input_ids": [100]}', "from 0 to 99"),
        ('{"id": "a", "input_ids": [1.0]}', "input_ids[0] is 1.0"),
    ],
)
def test_a_bad_line_names_file_line_and_fault(
    write_lines: Callable[..., Path], line: str, words: str
) -> None:
    fails(write_lines("in.jsonl", GOOD | {"id": "first"}, line), 2, words)


def test_a_half_written_last_line_says_so(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + json.dumps(GOOD)[:20])
    fails(path, 2, "half written")


@pytest.mark.parametrize(
    ("line", "end", "words"),
    [
        (
            '{"id": "b", x}',
            "\n",
            "the line is not JSON: Expecting property name enclosed in double quotes at column 13",
        ),
        (
            '{"id": "b",',
            "\n",
            "the line is not JSON: Expecting property name enclosed in double "
            "quotes at the end of the line",
        ),
        (
            '{"id": "b", "me',
            "",
            "the last line is half written: Unterminated string starting at column 13",
        ),
    ],
)
def test_a_line_has_one_number(tmp_path: Path, line: str, end: str, words: str) -> None:
    """The file's, not the one that the JSON parser counts within the line."""
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + line + end)
    with pytest.raises(InputError) as caught:
        list(JsonLines(path))
    assert (caught.value.place, caught.value.message) == (Place(path, line=2), words)


def test_bytes_that_are_not_utf8_name_their_line(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b'\n{"id": "\xff"}\n')
    fails(path, 2, "byte 9 of the line is not UTF-8")


def test_deep_nesting_is_an_error_of_the_line(write_lines: Callable[..., Path]) -> None:
    fails(write_lines("in.jsonl", "[" * 100_000), 1, "not JSON")


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read(path)


def test_token_ids_without_a_vocabulary_fit_int32(write_lines: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match="not a token id"):
        read(write_lines("in.jsonl", {"id": "a", "input_ids": [2**31]}), None)


LINES = (
    json.dumps(GOOD).encode(),
    b'{"id": "t", "input_ids": [1, 2, 3], "loss_mask": [0, 1, 1]}',
    b'{"id": "s", "conversations": [{"from": "human", "value": "Q\\u00e9"}]}',
)
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "messages", "role", "content", "input_ids", "loss_mask", "from"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_mutated_bytes_raise_nothing_but_eagle_errors(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(b"\n".join(data.draw(st.lists(st.sampled_from(LINES), max_size=4))))
    for _ in range(data.draw(st.integers(0, 4))):
        position = data.draw(st.integers(0, len(content)))
        if data.draw(st.booleans()):
            content[position : position + data.draw(st.integers(0, 6))] = b""
        else:
            content[position:position] = data.draw(st.binary(max_size=3))
    path = tmp_path / "fuzz.jsonl"
    path.write_bytes(content)
    try:
        rows = read(path)
    except EagleError as error:
        assert str(path) in str(error)
    else:
        assert len({row.id for row in rows}) == len(rows)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(value=st.dictionaries(st.sampled_from(["id", "messages", "input_ids"]), VALUES, max_size=3))
def test_any_object_is_read_or_refused(tmp_path: Path, value: dict[str, Any]) -> None:
    path = tmp_path / "fuzz.jsonl"
    path.write_text(json.dumps(value))
    try:
        read(path)
    except EagleError as error:
        assert f"{path}:1" in str(error)
