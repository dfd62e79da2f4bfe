"""Checkpoints: the durable facts as they were when a step last ended, kept on its host."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from shlex import quote

from runbooks.engine.model.check import Finding
from runbooks.engine.redact import Redactor

__all__ = ["append_script", "checkpoint_line"]


def checkpoint_line(
    step: str, host: str, findings: Sequence[Finding], run: str, at: float, redactor: Redactor
) -> str:
    """One JSON line: the durable fields of every fact that the step ensures, masked."""
    record = {
        "v": 1,
        "step": step,
        "host": host,
        "at": round(at, 3),
        "run": run,
        "facts": [
            {
                "subject": finding.check.subject,
                "on": finding.host,
                "values": dict(finding.durable),
            }
            for finding in findings
        ],
    }
    text = json.dumps(redactor.value(record), ensure_ascii=False, default=str)
    return text.encode(errors="backslashreplace").decode()


def append_script(runbook: str, lines: Sequence[str]) -> str:
    """Shell text that appends lines to the runbook's checkpoints; it never fails its caller."""
    words = " ".join(map(quote, lines))
    return f"""[ -d "$EAGLE3_STATE"/checkpoints ] ||
  (umask 077; mkdir -p "$EAGLE3_STATE"/checkpoints) 2>/dev/null
printf '%s\\n' {words} 2>/dev/null >> "$EAGLE3_STATE"/checkpoints/{quote(_segment(runbook))}.jsonl || :
"""


def _segment(name: str) -> str:
    """A safe file name; two names stay two."""
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    if safe == name and name.strip("."):
        return name
    return f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
