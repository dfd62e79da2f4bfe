"""How far a job has come: where to look, the script that looks, and its answer read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.operations.job_folder import JobState
from deploy.shell import quote
from runbooks.engine.model.host import Host
from runbooks.engine.model.job import Progress
from runbooks.engine.model.values import split_root

__all__ = ["Count", "progress_script", "read_progress", "recorded", "resolved"]


@dataclass
class Count:
    """What the attached controller saw of a counted progress: for a rate and a beat."""

    begun: float
    first: float
    moved: float
    done: float


def resolved(progress: Mapping[str, Any] | None, host: Host) -> dict[str, Any] | None:
    """The argument `progress` with the host's paths, as `meta.json` keeps it.

    `{file: PATH}` or `{count: [BASE, PATTERN], of: N}`; nothing in BASE is special.
    """
    if not progress:
        return None
    if "file" in progress:
        return {"file": host.resolve(progress["file"])}
    parts = split_root(progress["count"])
    place = [host.resolve(f"{parts[0]}:") + "/", parts[1]] if parts else ["", progress["count"]]
    return {"count": place, "of": progress["of"]}


def recorded(meta: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What `resolved` gave, as a job's `meta.json` has it; None where it has nothing of the kind."""
    match (meta or {}).get("progress"):
        case {"file": str(file)}:
            return {"file": file}
        case {"count": [str(base), str(rest)], "of": int(of)}:
            return {"count": [base, rest], "of": of}
    return None


def progress_script(progress: Mapping[str, Any] | None) -> str:
    """Looks at the log's last line and the progress of the run whose folder is `j_place`."""
    script = r"""if [ -e "$j_place/log" ]; then
  printf 'said\t%s\n' "$(tail -c 2000 "$j_place/log" | tr '\r\t' '\n ' | sed -n '/./h;${x;p;}')"
fi
"""
    if progress and "file" in progress:
        file = quote(progress["file"])
        script += (
            f"if [ -r {file} ]; then\n"
            f"  printf 'moved\\t%s\\n' \"$(stat -c %Y {file})\"\n"
            # The run's spec is written right before its program begins.
            f"  if [ \"$j_place/spec\" -nt {file} ]; then printf 'stale\\tyes\\n'; fi\n"
            f"  printf 'progress\\t%s\\n' \"$(head -c 65536 {file} | tr '\\n\\t' '  ')\"\nfi\n"
        )
    elif progress:
        script += f"set -- {_pattern(*progress['count'])}\n"
        script += '[ -e "$1" ] || [ -L "$1" ] || shift\n'
        script += "printf 'count\\t%s\\n' \"$#\"\n"
    return script


def _pattern(base: str, rest: str) -> str:
    """A shell word in which only `*` and `?` of the pattern's own part are special."""
    word = quote(base) if base else ""
    literal = ""
    for character in rest + "\0":
        if character not in "*?\0":
            literal += character
            continue
        word += (quote(literal) if literal else "") + character.strip("\0")
        literal = ""
    return word


def read_progress(
    state: JobState, found: Mapping[str, str], of: float | None, count: Count | None
) -> tuple[Progress, Count | None]:
    """The answer of `progress_script`; `of` is how many files a counted progress ends with."""
    said = found.get("said", "").strip()
    beat = state.now - state.log_time if state.log_time is not None else None
    if of is not None and found.get("count", "").isdecimal():
        counted = float(found["count"])
        if count is None:
            count = Count(state.now, counted, state.now, counted)
        if counted != count.done:
            count.done, count.moved = counted, state.now
        rate = (counted - count.first) / (state.now - count.begun) if state.now > count.begun else 0
        eta = (of - counted) / rate if rate > 0 else None
        beat = state.now - count.moved
        return Progress(said, counted, of, "files", eta=eta, beat=max(0.0, beat)), count
    if "progress" in found and not _of_another_run(state, found):
        return _written(state, found, said), count
    return Progress(said, beat=max(0.0, beat) if beat is not None else None), count


def _written(state: JobState, found: Mapping[str, str], said: str) -> Progress:
    """What the job itself wrote into its progress file."""
    written = _object(found["progress"])
    try:
        beat = state.now - float(found.get("moved", "nan"))
    except ValueError:
        beat = math.nan
    done, total = _number(written.get("done")), _number(written.get("total"))
    unit = str(written.get("unit") or "")
    text = str(written.get("text") or written.get("stage") or said)
    if done is not None and total is not None:
        text = _rate(_number(written.get("rate")), unit)  # the rest would say them again
    return Progress(
        text,
        done,
        total,
        unit,
        eta=_number(written.get("eta_s")),
        beat=max(0.0, beat) if math.isfinite(beat) else None,
    )


def _of_another_run(state: JobState, found: Mapping[str, str]) -> bool:
    """Whether the progress file is older than the run: one that was resumed has not written yet."""
    moved = found.get("moved", "")
    older = moved.isdecimal() and state.started is not None and int(moved) < int(state.started)
    return older or found.get("stale") == "yes"


def _rate(rate: float | None, unit: str) -> str:
    """`238 tokens/s`, or nothing."""
    if rate is None or rate <= 0:
        return ""
    shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
    return f"{shown} {unit}/s" if unit else f"{shown}/s"


def _object(text: str) -> Mapping[str, Any]:
    """The job's progress file; a damaged one is no reason to stop waiting."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)
