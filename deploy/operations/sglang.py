"""Patch and run SGLang."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, ClassVar

from deploy.operations.common import text_of
from deploy.shell import assign
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import (
    Acting,
    Operation,
    OperationFailed,
    Previewing,
)
from runbooks.engine.model.probe import Output, Shell
from runbooks.engine.model.values import Boolean, Choice

# Asked of the metadata: importing sglang takes seconds and may touch a GPU.
_VERSION = r"""command -v -- "$python" >/dev/null 2>&1 || { echo absent; exit 0; }
"$python" -c '
from importlib.metadata import PackageNotFoundError, version
try:
    print(version("sglang"))
except PackageNotFoundError:
    print("absent")
'
"""


class SglangPatch(Operation):
    """`sglang_patch: {patch: hidden-state-dump}`."""

    name = "sglang_patch"
    about = "Make SGLang write hidden states (or take that back)."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "patch": Argument(Choice(("hidden-state-dump",)), "Which patch.", required=True),
        "reverse": Argument(Boolean(), "Take the patch back.", default=False),
    }

    def preview(self, args: Mapping[str, Any], context: Context) -> Previewing:
        """Which SGLang is there; this version ships no patch for it."""
        version = yield from _installed(context)
        raise OperationFailed(_why_not(version, f"the patch {args['patch']}"))

    def act(self, args: Mapping[str, Any], context: Context) -> Acting:
        """Refuses: nothing is pretended."""
        version = yield from _installed(context)
        raise OperationFailed(_why_not(version, f"the patch {args['patch']}"))


class SglangServer(Operation):
    """`sglang_server: {mode: extract}`."""

    name = "sglang_server"
    about = "Run SGLang for extraction or for serving, or stop it."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "mode": Argument(
            Choice(("extract", "serve", "stopped")), "What the server is for.", required=True
        ),
    }

    def preview(self, args: Mapping[str, Any], context: Context) -> Previewing:
        """Which SGLang is there; this version cannot run it."""
        version = yield from _installed(context)
        raise OperationFailed(_why_not(version, f"the unit for mode {args['mode']}"))

    def act(self, args: Mapping[str, Any], context: Context) -> Acting:
        """Refuses: nothing is pretended."""
        version = yield from _installed(context)
        raise OperationFailed(_why_not(version, f"the unit for mode {args['mode']}"))


def _installed(context: Context) -> Generator[Shell, Output, str | None]:
    """The version of SGLang in the host's SGLang environment, or None."""
    python = (
        f"{context.host.data['sglang_venv']}/bin/python"
        if "sglang_venv" in context.host.data
        else "python3"
    )
    script = assign("python", python) + _VERSION
    text = text_of((yield Shell("sglang version", script)), "sglang").strip()
    return None if text == "absent" else text


def _why_not(version: str | None, missing: str) -> str:
    if version is None:
        return "SGLang is not installed on this host"
    return f"SGLang {version} is installed, but {missing} is not shipped in this version"
