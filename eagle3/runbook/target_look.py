"""A target on a host: its digest, and the width of its hidden states. Reads no weights."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from eagle3.errors import EagleError
from eagle3.estimate import shape_of_config
from eagle3.runbook.config import reason
from eagle3.runbook.look import GIVE, Seen
from eagle3.target_digest import (
    HEAD_BYTES,
    TEXT_FILES,
    TEXT_SUFFIX,
    WEIGHT_SUFFIXES,
    is_weight_file,
    target_digest,
)
from runbooks.engine.model.probe import Unknown

__all__ = ["DIGEST", "WIDTH", "digest_of", "gguf_width", "width_of"]

# The same mapping as eagle3.target_digest.read_target_files.
DIGEST = (
    r"""digest() {
  look "$1" -L
  case $seen in
    absent) return 0;;
    unknown) unknown "$path/$1: $said";;
  esac
  [ -f "$1" ] || return 0
  [ -r "$1" ] || unknown "$path/$1: Permission denied"
  size=$(stat -L -c %s -- "$1" 2>/dev/null) || unknown "$path/$1: it changed meanwhile"
  sum=$($2 < "$1" 2>/dev/null | sha256sum) || unknown "$path/$1: it cannot be read"
  printf 'target\t%s\t%s\t%s\n' "$size" "${sum%% *}" "$1"
}
for file in *; do
  case $file in
"""
    + f'    {"|".join([*sorted(TEXT_FILES), "*" + TEXT_SUFFIX])}) digest "$file" cat;;\n'
    + f"    {'|'.join('*' + suffix for suffix in WEIGHT_SUFFIXES)}) "
    + f'digest "$file" "head -c {HEAD_BYTES}";;\n'
    + "  esac\ndone\n"
)

# The head of a GGUF file: its scalar metadata come before the vocabulary.
_HEAD, _GGUF_HEAD = "gguf head", 65536
WIDTH = GIVE.format("config.json") + (
    r"""if ! [ -f config.json ]; then
  set -- ./*.gguf
  [ -f "$1" ] || set --
  printf 'gguf\t%s\n' $#
  if [ $# = 1 ]; then
    [ -r "$1" ] || unknown "$path/$1: Permission denied"
"""
    + f"    printf 'file\\t{_HEAD}\\n'; head -c {_GGUF_HEAD} -- \"$1\"; "
    + f"printf '\\nend\\t{_HEAD}\\n'\n  fi\nfi\n"
)
_LINE = re.compile(r"([0-9]+)\t([0-9a-f]{64})\t(.+)")


def digest_of(seen: Seen) -> str | None:
    """The digest of what `DIGEST` saw, equal to eagle3's own; None where there are no weights."""
    files: dict[str, tuple[int, str | None]] = {}
    for value in seen.values("target"):
        match = _LINE.fullmatch(value)
        if match is None:
            raise Unknown(f"{seen.path}: its files cannot be read: {value!r}")
        files[match[3]] = (int(match[1]), match[2])
    if not any(is_weight_file(name) for name in files):
        return None
    return target_digest(files)


def width_of(seen: Seen) -> int:
    """Width of the hidden states, from what `WIDTH` saw. Raises Unknown."""
    if not seen.there:
        raise Unknown(f"target absent: {seen.path}")
    if "config.json" in seen.files:
        path = Path(seen.path) / "config.json"
        try:
            return shape_of_config(seen.json("config.json"), path).hidden
        except EagleError as error:
            raise Unknown(reason(error)) from None
    if _HEAD not in seen.files:
        count = (seen.values("gguf") or ["0"])[0]
        raise Unknown(f"{seen.path}: wanted config.json or exactly one *.gguf; found {count}")
    width = gguf_width(seen.files[_HEAD])
    if width is None:
        raise Unknown(f"{seen.path}: the head of its *.gguf tells no embedding_length")
    return width


def gguf_width(head: bytes) -> int | None:
    """`ARCHITECTURE.embedding_length` in the first bytes of a GGUF file, or None.

    A part of a header, which `eagle3.gguf_header` does not read. Format:
    https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
    """
    found: dict[str, object] = {}
    try:
        for key, value in _scalars(head):
            found[key] = value
            width = found.get(f"{found.get('general.architecture')}.embedding_length")
            if isinstance(width, int) and width > 0:
                return width
    except (struct.error, UnicodeDecodeError):
        pass
    return None


_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


def _scalars(head: bytes) -> Iterator[tuple[str, object]]:
    """Keys and values until the bytes end (struct.error); arrays are skipped."""
    at = 0

    def take(code: str) -> int | float | bool:
        nonlocal at
        value: int | float | bool = struct.unpack_from("<" + code, head, at)[0]
        at += struct.calcsize("<" + code)
        return value

    def text() -> str:
        nonlocal at
        length = int(take("Q"))
        if length > len(head) - at:
            raise struct.error
        at += length
        return head[at - length : at].decode()

    if head[:4] != b"GGUF":
        return
    at = 4
    if take("I") not in (2, 3):
        return
    take("Q")
    for _ in range(int(take("Q"))):
        key, kind = text(), int(take("I"))
        if kind == _STRING:
            yield key, text()
        elif kind == _ARRAY:
            item, count = int(take("I")), int(take("Q"))
            if item == _STRING:
                for _ in range(count):
                    text()
            elif item in _CODES:
                at += count * struct.calcsize("<" + _CODES[item])
            else:
                return
        elif kind in _CODES:
            yield key, take(_CODES[kind])
        else:
            return
