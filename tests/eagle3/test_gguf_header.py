from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle3.errors import TargetError
from eagle3.gguf_header import read_gguf_metadata


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


HEADER = b"".join(
    [
        b"GGUF",
        struct.pack("<IQQ", 3, 0, 4),
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
        text("numbers") + struct.pack("<IIQ", 9, 4, 3) + bytes(12),
        text("llama.block_count") + struct.pack("<II", 4, 30),
    ]
)


def test_scalars_are_read_and_arrays_skipped(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(HEADER)
    assert read_gguf_metadata(path) == {"general.architecture": "llama", "llama.block_count": 30}


def test_what_is_no_gguf(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for data, words in (
        (b"", "does not start with GGUF"),
        (b"GGUF", "ends early"),
        (b"GGUF" + struct.pack("<I", 1), "version 1"),
    ):
        path.write_bytes(data)
        with pytest.raises(TargetError, match=words):
            read_gguf_metadata(path)
    with pytest.raises(TargetError, match="cannot be read"):
        read_gguf_metadata(tmp_path / "absent.gguf")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(position=st.integers(0, len(HEADER) - 1), byte=st.binary(max_size=2))
def test_damage_raises_nothing_but_target_errors(
    tmp_path: Path, position: int, byte: bytes
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(HEADER[:position] + byte + HEADER[position + 1 :])
    try:
        read_gguf_metadata(path)
    except TargetError as error:
        assert str(path) in str(error)


@pytest.mark.model
def test_the_embedded_target(smollm2: Path) -> None:
    (path,) = smollm2.glob("*.gguf")
    metadata = read_gguf_metadata(path)
    assert metadata["llama.embedding_length"] == 576
    assert metadata["llama.block_count"] == 30
    assert metadata["tokenizer.ggml.pre"] == "smollm"
