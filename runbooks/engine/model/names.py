"""Names of runbooks and steps as file names on hosts."""

from __future__ import annotations

import hashlib
import re

__all__ = ["file_name"]


def file_name(name: str) -> str:
    """A safe file name; two names stay two."""
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    if safe == name and name.strip("."):
        return name
    return f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
