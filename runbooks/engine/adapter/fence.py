"""The fence of a change, in front of it in the same script: where it refuses, nothing runs."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["fenced", "refusal"]


def fenced(fence: str, token: str) -> str:
    """Shell text that runs `fence` and ends the whole script where it does not exit with 0.

    The fence runs in a subshell, so that nothing it sets reaches the change; `$$` is still the
    pid of the shell that runs the change.
    """
    return (
        f"k_said=$(\n{fence}\n) || {{\n"
        f"printf '\\n@{token} refused\\n%s\\n@{token} .\\n' \"$k_said\"; exit 0\n}}"
    )


def refusal(lines: Sequence[str], token: str) -> str | None:
    """What the fence printed when it refused, or None where it did not."""
    opening = f"@{token} refused"
    if opening not in lines:
        return None
    said = list(lines[list(lines).index(opening) + 1 :])
    closing = f"@{token} ."
    return "\n".join(said[: said.index(closing)] if closing in said else said)
