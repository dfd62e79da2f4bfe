"""The one redactor: replaces every secret, in every spelling it takes, before any sink."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["MASK", "Redactor"]

MASK = "[secret]"
# A shorter value would mask half of every line; secrets are refused below this length.
MINIMUM = 4


class Redactor:
    """Masks secrets however they are spelled: character by character raw or as URL, JSON,
    HTML and shell escape them, in base64 (of any alignment, either alphabet, wrapped or not),
    and in hexadecimal."""

    def __init__(self, secrets: Iterable[str] = ()):
        patterns = [form for secret in secrets if secret for form in _patterns(secret)]
        ordered = sorted(set(patterns), key=len, reverse=True)
        self._pattern = re.compile("|".join(ordered)) if ordered else None

    def text(self, text: str) -> str:
        return self._pattern.sub(MASK, text) if self._pattern else text

    def value(self, value: Any) -> Any:
        """A JSON-like value with every string masked, keys too."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value


def _patterns(secret: str) -> Iterator[str]:
    """Regular expressions for one secret; its lines too, which are often printed alone."""
    for text in {secret, *(line for line in secret.splitlines() if len(line) >= MINIMUM)}:
        yield "".join(map(_character, re.findall(r"\\+|[^\\]", text)))
    raw = secret.encode(errors="surrogateescape")
    # As one word, wrapped (xxd -p), or byte by byte (od, xxd, a fingerprint's colons).
    yield r"(?i:" + r"[\s:]*".join(f"{byte:02x}" for byte in raw) + ")"
    # Base64 of the secret inside a longer text: the middle of each of the three alignments.
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        start = (0, 2, 3)[shift]
        end = len(encoded) - (1 if (len(raw) + shift) % 3 else 0)
        if end - start >= MINIMUM:
            yield r"\s*".join(_ALPHABETS.get(one, one) for one in encoded[start:end])


_ALPHABETS = {"+": "[+-]", "/": "[/_]"}


def _character(one: str) -> str:
    """Every spelling of one character (or of several backslashes), the longest first."""
    if one[0] == "\\":
        count = len(one)
        url, entity = f"(?i:%5c){{{count}}}", f"(?i:&#92;|&#x5c;){{{count}}}"
        return rf"(?:\\{{{count},{4 * count}}}|{url}|{entity}|(?i:\\x5c){{{count}}}|(?i:\\{{1,4}}u005c){{{count}}})"
    code = ord(one)
    utf16 = one.encode("utf-16-be", errors="surrogatepass")
    units = [utf16[at : at + 2].hex() for at in range(0, len(utf16), 2)]
    escaped = "".join(rf"\\x{byte:02x}" for byte in one.encode(errors="surrogateescape"))
    octal = "".join(rf"\\{byte:03o}" for byte in one.encode(errors="surrogateescape"))
    percent = "".join(f"%{byte:02x}" for byte in one.encode(errors="surrogateescape"))
    spellings = {
        re.escape(one),
        re.escape(json.dumps(one)[1:-1]),
        re.escape(html.escape(one)),
        f"(?i:{percent})",
        # Python's bytes and ascii(), a shell's $'…', systemd, git.
        f"(?i:{escaped})",
        octal,
        *((rf"(?i:\\x{code:02x})",) if code < 256 else ()),
        "(?i:" + "".join(rf"\\{{1,4}}u{unit}" for unit in units) + ")",
        f"&#{code};",
        f"(?i:&#x{code:x};)",
        *_OTHER.get(one, ()),
    }
    # A shell's %q, and JSON within JSON, put backslashes before it.
    quoted = "" if one.isascii() and one.isalnum() else r"\\{0,3}"
    return f"{quoted}(?:" + "|".join(sorted(spellings, key=len, reverse=True)) + ")"


# Form encoding, JSON's optional escape, a quote inside shell quotes (and Python's, and YAML's),
# systemd's own escape.
_OTHER = {
    " ": (r"\+",),
    "/": (r"\\/",),
    "'": (r"'\\''", r"""'"'"'""", r"\\'", "''"),
    "%": ("%%",),
}
