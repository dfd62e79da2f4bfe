"""The inputs of a merged dataset as they are now, beside those that its manifest names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from deploy.shell import locate, mounted_root, quote
from eagle3.dataset_manifest import VERIFIED, Manifest
from eagle3.runbook.look import Entry, Seen, entry_of
from eagle3.runbook.wholeness import Beside
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Unknown

__all__ = ["judge_inputs", "look_at_inputs"]

# In a subshell for each input, where `unknown` says it of that one only: a dataset of another
# config is known to be one, whatever its inputs are.
_INPUT = r"""input() {
  look "$2" -L
  case $seen in
    absent) printf 'input\t%s\tabsent\n' "$1"; return 0;;
    unknown) unknown "$2: $said";;
  esac
  printf 'input\t%s\tstat\t' "$1"
  stat -L -c '%f	%s	%i	%y' -- "$2" 2>/dev/null || printf 'failed\n'
}
"""
_SUM = r"""printf 'inputsum\t%s\t%s\n' {index} "$( {{ sha256sum < {path}; }} 2>/dev/null)"
"""


def look_at_inputs(paths: Mapping[str, str], context: Context) -> str:
    """Shell text for the body of a part. `paths`: source name to path on the host."""
    return _INPUT + "".join(_one(index, path, context) for index, path in enumerate(paths.values()))


def _one(index: int, path: str, context: Context, before: str = "") -> str:
    _, root = locate(path, context)
    unknown = (
        f"""unknown() {{ printf 'input\\t{index}\\tunknown\\t%s\\n' "$(line "$1")"; exit 0; }}\n"""
    )
    return f"(\n{unknown}{mounted_root(root)}{before}input {index} {quote(path)}\n)\n"


def _other_inputs(manifest: Manifest, paths: Mapping[str, str], seen: Seen) -> str | None:
    """Which input is not the one that was merged, by its size and, where verified.json has them,
    mtime and inode. An input that is gone is no fault: the dataset outlives its inputs.
    """
    recorded = _recorded(seen)
    for name, entry in _entries(seen, paths).items():
        if entry is None:
            continue
        shown = PurePosixPath(paths[name]).name
        if problem := _other_size(manifest, name, shown, entry):
            return problem
        was = recorded.get(name)
        if isinstance(was, dict) and was.get("sha256") == manifest.sources[name].input.sha256:
            now = {"inode": (was.get("inode"), entry.inode)}
            if entry.mtime_ns is not None:
                now["mtime"] = (was.get("mtime_ns"), entry.mtime_ns)
            if differing := [word for word, (then, found) in now.items() if then != found]:
                return f"input {shown} is not as it was when it was merged ({', '.join(differing)})"
    return None


def judge_inputs(
    manifest: Manifest, paths: Mapping[str, str], seen: Seen, full: bool, context: Context
) -> str | Beside | None:
    """What is wrong with the inputs; None for nothing.

    With `full` their sizes are judged, and what is still to be read of them comes back. Raises
    Unknown where an input may not be looked at.
    """
    if not full:
        return _other_inputs(manifest, paths, seen)
    before = _entries(seen, paths)
    there = {name: entry for name, entry in before.items() if entry is not None}
    for name, entry in there.items():
        if problem := _other_size(manifest, name, PurePosixPath(paths[name]).name, entry):
            return problem

    def judge(after: Seen) -> str | None:
        now = _entries(after, paths)
        sums = dict(value.partition("\t")[::2] for value in after.values("inputsum"))
        for index, (name, path) in enumerate(paths.items()):
            if name not in there:
                continue
            found, _, _ = sums.get(str(index), "").partition(" ")
            if not found:
                raise Unknown(f"{path}: it cannot be read")
            if now[name] != there[name]:
                raise Unknown(f"{path} changed while it was read")
            if found != manifest.sources[name].input.sha256:
                return f"of other inputs: {PurePosixPath(path).name} has another sha256"
        return None

    body = _INPUT
    for index, (name, path) in enumerate(paths.items()):
        before_it = _SUM.format(index=index, path=quote(path)) if name in there else ""
        body += _one(index, path, context, before_it)
    return Beside(body, sum(entry.size for entry in there.values()), judge)


def _other_size(manifest: Manifest, name: str, shown: str, entry: Entry) -> str | None:
    if not entry.regular:
        return f"of other inputs: {shown} is no file"
    if name not in manifest.sources:
        return f"of other inputs: {name} is none of its sources"
    wanted = manifest.sources[name].input.size
    if entry.size != wanted:
        return f"of other inputs: {shown} has {entry.size:,} bytes, want {wanted:,}"
    return None


def _entries(seen: Seen, paths: Mapping[str, str]) -> dict[str, Entry | None]:
    """What the look saw of each source; None of one that is gone."""
    said = dict(value.partition("\t")[::2] for value in seen.values("input"))
    found: dict[str, Entry | None] = {}
    for index, (name, path) in enumerate(paths.items()):
        match said.get(str(index), "").split("\t"):
            case ["absent"]:
                found[name] = None
            case ["unknown", reason]:
                raise Unknown(reason)
            case ["stat", mode, size, inode, modified]:
                try:
                    found[name] = entry_of(mode, size, inode, modified)
                except ValueError:
                    raise Unknown(f"{path}: stat said {modified!r}") from None
            case _:
                raise Unknown(f"{path}: it changed meanwhile, or the look at it ended early")
    return found


def _recorded(seen: Seen) -> Mapping[str, Any]:
    """The inputs in verified.json; older ones have none."""
    record = seen.json(VERIFIED) if VERIFIED in seen.files else None
    inputs = record.get("inputs") if isinstance(record, dict) else None
    return inputs if isinstance(inputs, dict) else {}
