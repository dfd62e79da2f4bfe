"""Which target a directory holds, as one digest that costs no read of the weights.

The engine computes the same mapping over SSH, so every entry can be had with plain tools, for
the files directly in the directory (symlinks followed, names with a leading dot ignored):

    text file (config, tokenizer, template)   stat -L -c %s FILE;  sha256sum FILE
    weight file (*.safetensors, *.gguf)       stat -L -c %s FILE;  head -c 1048576 FILE | sha256sum

The first 1 MiB of a weight file holds its header (names, shapes, offsets; for GGUF also the
metadata), so that two models or quantisations of one size differ. Bytes beyond it are not read:
600 GB of weights would take an hour on every plan. Other files are ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from eagle3.errors import Place, TargetError
from eagle3.files import canonical_json, sha256_file

__all__ = [
    "HEAD_BYTES",
    "TEXT_FILES",
    "WEIGHT_SUFFIXES",
    "is_text_file",
    "is_weight_file",
    "read_target_files",
    "target_digest",
]

HEAD_BYTES = 1 << 20
TEXT_FILES = frozenset(
    {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "merges.txt",
        "special_tokens_map.json",
        "tiktoken.model",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "vocab.json",
    }
)
TEXT_SUFFIX = ".index.json"
WEIGHT_SUFFIXES = (".safetensors", ".gguf")


def is_text_file(name: str) -> bool:
    """Whether the whole content of a file of that name goes into the digest."""
    return name in TEXT_FILES or (name.endswith(TEXT_SUFFIX) and not name.startswith("."))


def is_weight_file(name: str) -> bool:
    """Whether size and first 1 MiB of a file of that name go into the digest."""
    return name.endswith(WEIGHT_SUFFIXES) and not name.startswith(".")


def target_digest(files: Mapping[str, tuple[int, str | None]]) -> str:
    """SHA-256 (hexadecimal) over the canonical JSON of `{name: [size in bytes, sha256]}`.

    `files` is what `read_target_files` gives; names that are neither text nor weight are ignored.
    Raises TargetError when no weight file is among them.
    """
    kept = {
        name: [size, sha256]
        for name, (size, sha256) in files.items()
        if is_text_file(name) or is_weight_file(name)
    }
    if not any(is_weight_file(name) for name in kept):
        raise TargetError(
            "the target has no weights", hint="its directory holds *.safetensors or one *.gguf"
        )
    return hashlib.sha256(canonical_json(kept)).hexdigest()


def read_target_files(directory: Path) -> dict[str, tuple[int, str | None]]:
    """Name to (size in bytes, sha256) of the files of `directory` that `target_digest` wants.

    Raises TargetError when the directory or a file in it cannot be read.
    """
    found: dict[str, tuple[int, str | None]] = {}
    try:
        for path in sorted(directory.iterdir()):
            if is_text_file(path.name) and path.is_file():
                found[path.name] = (path.stat().st_size, sha256_file(path))
            elif is_weight_file(path.name) and path.is_file():
                found[path.name] = (path.stat().st_size, _sha256_head(path))
    except OSError as error:
        place = Place(Path(error.filename or directory))
        raise TargetError(f"cannot be read: {error.strerror}", place=place) from error
    if not any(is_weight_file(name) for name in found):
        raise TargetError(
            "holds no target model",
            place=Place(directory),
            hint="wanted *.safetensors with config.json and tokenizer.json, or one *.gguf",
        )
    return found


def _sha256_head(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.sha256(stream.read(HEAD_BYTES)).hexdigest()
