"""A hidden-state store on a host: its manifest, or how far an unfinished one has come."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eagle3.dataset_manifest import FileEntry, dataset_digest
from eagle3.extract_plan import PLAN, PLAN_FORMAT
from eagle3.runbook.look import GIVE, LIST, Seen, entries
from eagle3.states_manifest import FORMAT, MANIFEST, PROGRESS, VERSION
from runbooks.engine.model.probe import Unknown

__all__ = [
    "SIDECARS",
    "LayersSeen",
    "StatesSeen",
    "finished_shards",
    "layers_of",
    "plan_of",
    "rate_of",
    "states_of",
]

# Four lines of each sidecar, which eagle3.files.write_json writes one key a line: the samples in
# them would be megabytes. /dev/null makes grep name the file.
_GREP = r"""find . ! -name . -prune -name 'states-*.json' -exec grep -E \
  '^  "(bytes|plan|rows|tokens)": ' /dev/null {} + | sed 's/^/sidecar	/'
"""
# What an estimate needs of a store: it may be unfinished, or of other inputs.
SIDECARS = GIVE.format(PLAN) + GIVE.format(PROGRESS) + LIST + _GREP
_SIDECAR = re.compile(r"\./(states-[0-9]+)\.json:  \"(\w+)\": \"?([0-9a-f]+)\"?,?")
_SHA256 = re.compile("[0-9a-f]{64}")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class LayersSeen:
    """Which layers a store or a plan is of. `ids` as text: `1,14,26`."""

    ids: str
    convention: str
    num_layers: int
    storage_dtype: str


@dataclass(frozen=True)
class StatesSeen:
    """What a complete store's manifest says. Digests are SHA-256 in hexadecimal."""

    digest: str
    dataset_digest: str
    target_digest: str
    samples: int
    tokens: int
    supervised: int
    layers: LayersSeen
    files: Mapping[str, FileEntry]


def states_of(seen: Seen) -> StatesSeen:
    """The manifest, validated as far as it can be without the sidecars. Raises Unknown.

    Sidecars and plan are among the files that it vouches for.
    """
    where = f"{seen.path}/{MANIFEST}"
    value = seen.json(MANIFEST)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise Unknown(f"{where}: is no manifest of {FORMAT}")
    if (version := value.get("version")) != VERSION:
        raise Unknown(
            f"{where}: is of format version {version}; this program reads version {VERSION}"
        )
    try:
        totals, shards = value["totals"], value["shards"]
        made = StatesSeen(
            digest=_sha256(value["digest"]),
            dataset_digest=_sha256(value["dataset_digest"]),
            target_digest=_sha256(value["target_digest"]),
            samples=_count(value["samples"]),
            tokens=_count(value["tokens"]),
            supervised=_count(totals["supervised"]),
            layers=layers_of(value),
            files={
                _name(name): FileEntry(_count(entry["bytes"]), _sha256(entry["sha256"]))
                for name, entry in value["files"].items()
            },
        )
        sums = {
            "samples": made.samples,
            "tokens": made.tokens,
            "shards": len(shards),
            "bytes": sum(made.files[name].bytes for name in shards),
        }
        _agree({key: totals[key] for key in sums}, sums, "totals")
        _agree({name: made.files[name].sha256 for name in shards}, shards, "shards")
        _agree(dataset_digest(shards), made.digest, "digest")
        for name in [PLAN, *(name.replace(".safetensors", ".json") for name in shards)]:
            _agree(name in made.files, True, f"files: {name}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unknown(f"{where}: damaged: {error}") from None
    return made


def plan_of(seen: Seen) -> Mapping[str, Any]:
    """The plan's JSON, with `settings` and `digest`. Raises Unknown."""
    value = seen.json(PLAN)
    where = f"{seen.path}/{PLAN}"
    if not isinstance(value, dict) or value.get("format") != PLAN_FORMAT:
        raise Unknown(f"{where}: is no plan of an extraction")
    try:
        settings = value["settings"]
        for key in ("samples", "tokens", "hidden_size", "shard_tokens"):
            _count(settings[key])
        layers_of(settings)
        _sha256(settings["dataset_digest"])
        _sha256(value["digest"])
    except (KeyError, TypeError, ValueError) as error:
        raise Unknown(f"{where}: damaged: {error}") from None
    return value


def layers_of(settings: Mapping[str, Any]) -> LayersSeen:
    """Of a plan's settings, or of a manifest, which has them at its top. Raises ValueError."""
    ids, convention, dtype = (
        settings[key] for key in ("layer_ids", "layer_convention", "storage_dtype")
    )
    if not isinstance(ids, list) or not ids:
        raise ValueError("layer_ids is no list of layers")
    if not (isinstance(convention, str) and isinstance(dtype, str)):
        raise ValueError("layer_convention or storage_dtype is no text")
    text = ",".join(str(_count(item)) for item in ids)
    return LayersSeen(text, convention, _count(settings["num_layers"]), dtype)


def finished_shards(seen: Seen, plan: Mapping[str, Any]) -> Sequence[Mapping[str, int]]:
    """`rows` and `tokens` of each shard of this plan that is there with its size.

    One that is not is written again. Needs `SIDECARS`.
    """
    sidecars: dict[str, dict[str, str]] = {}
    for value in seen.values("sidecar"):
        if match := _SIDECAR.fullmatch(value):
            sidecars.setdefault(match[1], {})[match[2]] = match[3]
    there = entries(seen)
    finished = []
    for name, found in sorted(sidecars.items()):
        shard = there.get(f"{name}.safetensors")
        if found.get("plan") != plan["digest"] or shard is None:
            continue
        if found.get("bytes") == str(shard.size):
            try:
                finished.append({key: int(found[key]) for key in ("rows", "tokens")})
            except (KeyError, ValueError):
                continue
    return finished


def rate_of(seen: Seen) -> float | None:
    """Tokens a second of the last run, from progress.json; None where it has not said."""
    try:
        rate = seen.json(PROGRESS)["rate"]
    except (Unknown, KeyError, TypeError):
        return None
    return rate if type(rate) in (int, float) and rate > 0 else None


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _sha256(value: Any) -> str:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise ValueError(f"{value!r} is no SHA-256")
    return value


def _name(value: Any) -> str:
    # Names come from a file: they must not lead out of the store.
    if not isinstance(value, str) or not _FILE_NAME.fullmatch(value):
        raise ValueError(f"{value!r} is no name of a file")
    return value


def _agree(found: Any, wanted: Any, what: str) -> None:
    if found != wanted:
        raise ValueError(f"{what} does not fit the rest")
