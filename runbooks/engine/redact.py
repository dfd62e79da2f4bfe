"""The one redactor: replaces every secret, in every spelling it takes, before any sink."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

__all__ = ["MASK", "Redactor"]

MASK = "[secret]"
# A shorter value would mask half of every line; secrets are refused below this length.
MINIMUM = 4


class Redactor:
    """Masks secrets raw, base64, URL-encoded, JSON-escaped and in hexadecimal."""

    def __init__(self, secrets: Iterable[str] = ()):
        spellings = {form for secret in secrets if secret for form in _spellings(secret)}
        ordered = sorted(spellings, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

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


def _spellings(secret: str) -> set[str]:
    raw = secret.encode()
    forms = {
        secret,
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        raw.hex(),
    }
    # Base64 of the secret inside a longer text: the middle of each of the three alignments.
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            encoded = encode(b"\0" * shift + raw).decode().rstrip("=")
            start = (0, 2, 3)[shift]
            end = len(encoded) - (1 if (len(raw) + shift) % 3 else 0)
            if end - start >= MINIMUM:
                forms.add(encoded[start:end])
    # A secret of several lines is often printed line by line.
    forms.update(line for line in secret.splitlines() if len(line) >= MINIMUM)
    return {form for form in forms if len(form) >= MINIMUM}
