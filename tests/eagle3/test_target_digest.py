from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from eagle3.errors import TargetError
from eagle3.target_digest import HEAD_BYTES, read_target_files, target_digest


def target(directory: Path) -> Path:
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model-00001.safetensors").write_bytes(b"w" * (HEAD_BYTES + 10))
    (directory / "model.safetensors.index.json").write_text("{}")
    (directory / "README.md").write_text("ignored")
    (directory / ".model.gguf").write_text("a half-written file, ignored")
    return directory


def test_the_mapping_is_that_of_plain_tools(tmp_path: Path) -> None:
    directory = target(tmp_path / "t")
    found = read_target_files(directory)
    assert sorted(found) == [
        "config.json",
        "model-00001.safetensors",
        "model.safetensors.index.json",
    ]
    for name, (size, sha256) in found.items():
        cut = f"head -c {HEAD_BYTES} {name}" if name.endswith(".safetensors") else f"cat {name}"
        shell = subprocess.run(
            ["sh", "-c", f"stat -L -c %s {name}; {cut} | sha256sum"],
            cwd=directory,
            capture_output=True,
            text=True,
            check=True,
        )
        assert shell.stdout.split()[:2] == [str(size), sha256]


def test_what_changes_the_digest(tmp_path: Path) -> None:
    directory = target(tmp_path / "t")
    first = target_digest(read_target_files(directory))
    (directory / "README.md").write_text("another")
    assert target_digest(read_target_files(directory)) == first
    weights = directory / "model-00001.safetensors"
    weights.write_bytes(b"v" + weights.read_bytes()[1:])
    second = target_digest(read_target_files(directory))
    weights.write_bytes(weights.read_bytes() + b"w")
    third = target_digest(read_target_files(directory))
    (directory / "config.json").write_text("{ }")
    assert len({first, second, third, target_digest(read_target_files(directory))}) == 4


def test_the_digest_is_a_plain_function_of_the_mapping() -> None:
    files = {"model.gguf": (5, "ab"), "notes.txt": (1, None)}
    wanted = hashlib.sha256(b'{"model.gguf":[5,"ab"]}').hexdigest()
    assert target_digest(files) == target_digest(dict(reversed(files.items()))) == wanted


def test_no_target(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="holds no target model"):
        read_target_files(tmp_path)
    with pytest.raises(TargetError, match="cannot be read"):
        read_target_files(tmp_path / "absent")
    with pytest.raises(TargetError, match="no weights"):
        target_digest({"config.json": (2, "ab")})
