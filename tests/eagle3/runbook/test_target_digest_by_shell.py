"""The target's digest, taken by a shell on the host, is eagle3's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle3.runbook.look import Part, look
from eagle3.runbook.target_look import DIGEST, digest_of
from eagle3.target_digest import HEAD_BYTES, read_target_files, target_digest
from runbooks.engine.model.probe import Unknown
from tests.eagle3.runbook.here import Here


def by_shell(here: Here, path: Path) -> str | None:
    asking = look("target", [Part("target", str(path), DIGEST)], here.context)
    return digest_of(here.ask(asking)["target"])


def own(path: Path) -> str:
    return target_digest(read_target_files(path))


def test_of_the_tiny_target(here: Here) -> None:
    path = here.folder / "model" / "tiny"
    assert by_shell(here, path) == own(path)


def test_of_a_directory_full_of_oddities(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "odd target"
    path.mkdir()
    (path / "model 1.safetensors").write_bytes(b"a" * (HEAD_BYTES + 5))
    (path / "-n.safetensors").write_bytes(b"b" * HEAD_BYTES)
    (path / "empty.gguf").touch()
    (path / "$HOME*.gguf").write_bytes(b"c")
    (path / "back\\slash.gguf").write_bytes(b"d")
    (path / "ünïcode.gguf").write_bytes(b"e")
    (path / ".hidden.safetensors").write_bytes(b"f")
    (path / "model.safetensors.index.json").write_text("{}")
    (path / ".x.index.json").write_text("{}")
    (path / "config.json").write_bytes(b"{}\n\n")
    (path / "README.md").write_text("ignored")
    (path / "folder.safetensors").mkdir()
    (path / "tokenizer.json").symlink_to(path / "config.json")
    (path / "gone.gguf").symlink_to(path / "nowhere")
    assert by_shell(here, path) == own(path)
    before = own(path)
    with open(path / "model 1.safetensors", "r+b") as stream:
        stream.write(b"z")
    assert by_shell(here, path) == own(path) != before


def test_without_weights_and_absent(here: Here, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert by_shell(here, tmp_path) is None
    assert by_shell(here, tmp_path / "nowhere") is None


def test_a_loop_of_links_is_unknown(here: Here, tmp_path: Path) -> None:
    (tmp_path / "a.gguf").symlink_to(tmp_path / "a.gguf")
    with pytest.raises(Unknown, match="symbolic links"):
        by_shell(here, tmp_path)


@pytest.mark.model
def test_of_the_embedded_target(here: Here, smollm2: Path) -> None:
    assert by_shell(here, smollm2) == own(smollm2)
