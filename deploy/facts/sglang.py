"""SGLang: its patch, its server, and whether it is fit for extraction."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any, ClassVar

from deploy.facts.net import answer_of, get_script
from deploy.shell import LOOK, PYTHON, answers, begin, known
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Asking, Output, Shell, Unknown
from runbooks.engine.model.values import ABSENT, Boolean, Choice, Integer, Text

_PORT = Argument(Integer(1), "The server's port on this host.", default=30000)

# Asked of the metadata: importing sglang takes seconds and may touch a GPU. The pristine digest
# of each file stands in the wheel's own RECORD.
_PROGRAM = """import base64, hashlib
from importlib.metadata import PackageNotFoundError, distribution, distributions
try:
    found = distribution("sglang")
except PackageNotFoundError:
    found = None
print(f"version\\t{found.version if found else ''}")
for file in found.files or [] if found else []:
    if file.as_posix() == "sglang/srt/models/deepseek_v2.py" and file.hash:
        try:
            digest = hashlib.new(file.hash.mode, file.locate().read_bytes()).digest()
            same = base64.urlsafe_b64encode(digest).decode().rstrip("=") == file.hash.value
            print(f"file\\t{'pristine' if same else 'changed'}")
        except FileNotFoundError:
            print("file\\tmissing")
for one in distributions():
    for point in one.entry_points:
        if point.group == "sglang.srt.plugins":
            print(f"plugin\\t{point.name}")
"""


class SglangPatchFact(Fact):
    """`sglang_patch: {patch: hidden-state-dump, is: applied}`."""

    name = "sglang_patch"
    about = "Whether SGLang on this host writes hidden states."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "patch": Argument(Choice(("hidden-state-dump",)), "Which patch.", required=True),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "is": Field(
            Choice(("applied", "absent", "unknown-file")),
            "`unknown-file`: a file is neither SGLang's own nor the patched one.",
        ),
        "version": Field(Text(), "SGLang's version."),
    }
    value = "is"
    defaults: ClassVar[Mapping[str, Any]] = {"is": "applied"}

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Compare SGLang's file with its wheel's record, and look for the plug-in.

        This version ships neither plug-in nor file patch, so it never says `applied`.
        """
        venv = context.host.data.get("sglang_venv")
        python = f"{context.host.resolve(venv)}/bin/python" if venv else "python3"
        script = begin(python=python, program=_PROGRAM) + LOOK + PYTHON
        output = yield Shell(f"sglang_patch {args['patch']}", script)
        found = known(output)
        if "version" not in found:
            raise Unknown(f"{python} gave no version")
        if not found["version"]:
            return {"is": ABSENT, "version": ABSENT}
        names = [name.replace("_", "-") for name in answers(output.text, "plugin")]
        state: Any
        if any(args["patch"] in name for name in names):
            state = Unknown("a plug-in of that name is installed; this version cannot verify it")
        elif found.get("file") in ("changed", "missing"):
            state = "unknown-file"
        elif found.get("file") == "pristine":
            state = "absent"
        else:
            state = Unknown("SGLang's installation records no digest of deepseek_v2.py")
        return {"is": state, "version": found["version"]}


class SglangServerFact(Fact):
    """`sglang_server: {mode: extract, healthy: true, dump: loaded, flags: safe}`."""

    name = "sglang_server"
    about = "The SGLang server on this host: what it is for, its health, its flags."
    arguments: ClassVar[Mapping[str, Argument]] = {"port": _PORT}
    fields: ClassVar[Mapping[str, Field]] = {
        "mode": Field(
            Choice(("extract", "serve", "stopped")),
            "What its flags fit: extraction, serving; `stopped` when nothing listens.",
            volatile=True,
        ),
        "healthy": Field(Boolean(), "Whether it generates a token.", volatile=True),
        "dump": Field(
            Choice(("loaded", "absent", "stale")),
            "Whether this very process writes hidden states.",
            volatile=True,
        ),
        "flags": Field(
            Text(), "`safe` for extraction, or what is not safe about them.", volatile=True
        ),
        "version": Field(Text(), "SGLang's version.", volatile=True),
        "model": Field(Text(), "The path of the model it serves.", volatile=True),
        "speculative": Field(
            Text(), "Its speculative algorithm; absent without one.", volatile=True
        ),
    }
    value = "mode"

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Ask /server_info, then /health_generate (which generates a token)."""
        port = args.get("port") or _PORT.default
        info = yield from _server_info(port)
        if info is None:
            return dict.fromkeys(self.fields, ABSENT) | {"mode": "stopped", "healthy": False}
        flags = unsafe_flags(info)
        words = flags if isinstance(flags, Unknown) else ", ".join(flags) or "safe"
        url = f"http://127.0.0.1:{port}/health_generate"
        shell = Shell(f"sglang_server health {port}", get_script(url, 30), timeout=90)
        healthy: Any
        try:
            answer = answer_of((yield shell))
            healthy = answer is not None and answer[0] == 200
        except Unknown as reason:
            healthy = Unknown(f"/health_generate: {reason.reason}")
        return {
            "mode": words
            if isinstance(words, Unknown)
            else "extract"
            if words == "safe"
            else "serve",
            "healthy": healthy,
            "dump": Unknown("no endpoint tells of plug-ins; this version cannot read its marker"),
            "flags": words,
            "version": _text(info, "version"),
            "model": _text(info, "model_path"),
            "speculative": _text(info, "speculative_algorithm"),
        }


class ExtractionReady(Fact):
    """`extraction_ready: {probes: all}`."""

    name = "extraction_ready"
    about = "Whether the running server passes the probes that extraction rests on."
    arguments: ClassVar[Mapping[str, Argument]] = {"port": _PORT}
    fields: ClassVar[Mapping[str, Field]] = {
        "probes": Field(Choice(("all", "some", "none")), "Which probes it passes.", volatile=True),
    }
    value = "probes"
    defaults: ClassVar[Mapping[str, Any]] = {"probes": "all"}

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """What can be told without the probes; `all` is never claimed for less than all."""
        info = yield from _server_info(args.get("port") or _PORT.default)
        if info is None:
            return {"probes": ABSENT}
        flags = unsafe_flags(info)
        if isinstance(flags, Unknown):
            raise flags
        if flags:
            raise Unknown(f"the server's flags are not safe: {', '.join(flags)}")
        raise Unknown("this version does not send the probes (width, repeat, batch, ranks) yet")


def _server_info(port: int) -> Generator[Shell, Output, Mapping[str, Any] | None]:
    """The resolved configuration of the running server; None when nothing listens."""
    url = f"http://127.0.0.1:{port}/server_info"
    output = yield Shell(f"sglang_server info {port}", get_script(url, 25), timeout=90)
    try:
        answer = answer_of(output)
    except Unknown as reason:
        raise Unknown(f"/server_info: {reason.reason}") from None
    if answer is None:
        return None
    status, body = answer
    if status in (401, 403):
        raise Unknown("/server_info asks for an API key")
    if status != 200:
        raise Unknown(f"/server_info answers {status}; is it SGLang that listens on {port}?")
    try:
        info = json.loads(body)
    except ValueError:
        info = None
    if not isinstance(info, dict) or "model_path" not in info:
        raise Unknown(f"/server_info is not SGLang's; another program listens on {port}")
    return info


def unsafe_flags(info: Mapping[str, Any]) -> list[str] | Unknown:
    """What makes dumped hidden states wrong or partial.

    Cached and chunked prompts are not computed as one; a drafter mixes its forwards in; at the
    replay of a graph no Python of the model runs.
    """
    needed = ("disable_radix_cache", "chunked_prefill_size", "speculative_algorithm")
    missing = [name for name in needed if name not in info]
    if missing:
        return Unknown(f"/server_info has no {', '.join(missing)}")
    found = []
    if info["disable_radix_cache"] is not True:
        found.append("radix cache on")
    if info["chunked_prefill_size"] != -1:
        found.append(f"chunked prefill {info['chunked_prefill_size']}")
    if info["speculative_algorithm"] is not None:
        found.append(f"speculative {info['speculative_algorithm']}")
    config = info.get("cuda_graph_config")
    prefill = config.get("prefill") if isinstance(config, dict) else None
    backend = prefill.get("backend") if isinstance(prefill, dict) else None
    if info.get("disable_cuda_graph") is not True and backend != "disabled":
        found.append("CUDA graphs on")
    if info.get("enable_flashinfer_allreduce_fusion"):
        found.append("all-reduce fusion on")
    return found


def _text(info: Mapping[str, Any], name: str) -> Any:
    value = info.get(name)
    return ABSENT if value is None else str(value)
