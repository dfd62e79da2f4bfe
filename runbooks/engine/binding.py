"""Late references: what `${{ … }}` stands for once the host, the estimate or the run is known.

`${{ vars.x }}` is gone by then (`load` resolves it). `root` belongs to a host, `estimate` to a
plan or a step about to run, `secrets` to the moment of the act; they stay text until then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runbooks.engine.model.check import Check
from runbooks.engine.model.diagnostic import RunbookError, did_you_mean
from runbooks.engine.model.host import Host

__all__ = ["ESTIMATE_BYTES", "bind_args", "bind_check", "wants_estimate"]

_REFERENCE = re.compile(r"\$\{\{ *(root|secrets)\.([A-Za-z_][A-Za-z0-9_-]*) *\}\}")
ESTIMATE_BYTES = re.compile(r"\$\{\{ *estimate\.bytes *\}\}")


def bind_args(
    args: Mapping[str, Any], host: Host, secrets: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Arguments with roots as paths of `host`; secrets too where they are given."""
    return {name: _bind(value, host, secrets) for name, value in args.items()}


def _bind(value: Any, host: Host, secrets: Mapping[str, str] | None) -> Any:
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: _replacement(match, host, secrets), value)
    if isinstance(value, tuple):
        return tuple(_bind(item, host, secrets) for item in value)
    if isinstance(value, Mapping):
        return {key: _bind(item, host, secrets) for key, item in value.items()}
    return value


def _replacement(match: re.Match[str], host: Host, secrets: Mapping[str, str] | None) -> str:
    kind, name = match[1], match[2]
    if kind == "root":
        if name not in host.roots:
            raise RunbookError.usage(
                f"root '{name}' is not declared for host {host.name}",
                where=host.name,
                hint=did_you_mean(name, host.roots),
            )
        return str(host.roots[name].path)
    if secrets is None:
        return match[0]
    return secrets[name]


def wants_estimate(check: Check) -> bool:
    """Whether a comparison of the check stands for the step's estimate."""
    return any(
        isinstance(want.value, str) and ESTIMATE_BYTES.fullmatch(want.value) for want in check.wants
    )


def bind_check(check: Check, host: Host, estimate_bytes: int | None = None) -> Check:
    """The check with roots of the host it reads and, where asked, the estimate's bytes."""
    wants = check.wants
    if estimate_bytes is not None and wants_estimate(check):
        wants = tuple(
            replace(want, value=estimate_bytes)
            if isinstance(want.value, str) and ESTIMATE_BYTES.fullmatch(want.value)
            else want
            for want in wants
        )
    return replace(check, args=bind_args(check.args, host), wants=wants)
