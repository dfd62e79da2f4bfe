"""The operator's approval of an irreversible step: for one step, one host, one measured thing.

Its digest reads `BYTES-HASH`: the bytes measured, and a hash over step, host and the identity
of what was measured. So an approval typed or pasted from an old plan does not pass for
another host, another step, or a directory that grew by more than one percent.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.operation import Preview
from runbooks.engine.model.values import show_size

__all__ = ["TOLERANCE", "Approval", "approval_of", "parse_approvals", "phrase", "refusal_of"]

TOLERANCE = 0.01
_DIGEST = re.compile(r"([0-9]{1,18})-([0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class Approval:
    """The bytes and the identity hash that an operator approved."""

    bytes: int
    hash: str

    def __str__(self) -> str:
        return f"{self.bytes}-{self.hash}"

    def refusal(self, measured: Approval) -> str | None:
        """Why this approval does not cover what is measured now, or None."""
        if self.hash != measured.hash:
            return "what would be lost is not what was approved (its identity differs)"
        if abs(measured.bytes - self.bytes) > TOLERANCE * self.bytes:
            return (
                f"approved {show_size(self.bytes)}, measured {show_size(measured.bytes)} now,"
                f" more than {TOLERANCE:.0%} apart"
            )
        return None


def approval_of(step: str, host: str, preview: Preview) -> Approval:
    """What an approval of this measurement would be."""
    subject = json.dumps([step, host, preview.identity]).encode()
    return Approval(sum(preview.frees.values()), hashlib.sha256(subject).hexdigest()[:12])


def refusal_of(approved: Sequence[Approval], measured: Approval) -> str | None:
    """Why none of several approvals covers what is measured now, or None."""
    # The one for this thing says how its amount differs; another is for another host.
    nearest = sorted(approved, key=lambda one: one.hash != measured.hash)
    refusals = [one.refusal(measured) for one in nearest]
    return None if None in refusals else refusals[0]


def phrase(step: str, host: str, preview: Preview) -> str:
    """What the operator types: `purge-old llm-two 924.1 GB`, with the measured amount."""
    count = sum(preview.frees.values())
    amount = f"{count} B"
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            amount = f"{count / size:.1f} {unit}"
            break
    return f"{step} {host} {amount}"


def parse_approvals(given: Iterable[str]) -> Mapping[str, tuple[Approval, ...]]:
    """`STEP=DIGEST` words by step; raises RunbookError (usage) on anything else."""
    approvals: dict[str, tuple[Approval, ...]] = {}
    for word in given:
        # The id of a matrix step holds `=` too.
        step, equals, digest = word.rpartition("=")
        match = _DIGEST.fullmatch(digest)
        if not equals or not step or match is None:
            raise RunbookError.usage(
                f"{word!r} is not an approval",
                where="--approve",
                hint="write STEP=DIGEST, with the digest that the plan prints",
            )
        approvals[step] = (*approvals.get(step, ()), Approval(int(match[1]), match[2]))
    return approvals
