"""Past runs as their hosts remember them, for a controller that has no journal of its own."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from runbooks.engine.fleet import Fleet
from runbooks.engine.inquiry import Inquiry, inquire
from runbooks.engine.model.probe import Output, Shell
from runbooks.engine.run.journal import COPIED, FILE

__all__ = ["copy_from_hosts"]

# Bytes of copies that one host sends, the newest runs first.
_MOST = 8 << 20

_SCRIPT = rf"""cd -- "${{EAGLE3_STATE:?}}"/runs 2>/dev/null || exit 0
c_left={_MOST}
for c_run in $(ls -r); do
  [ -f "$c_run/{FILE}" ] || continue
  c_size=$(wc -c < "$c_run/{FILE}") || exit 1
  c_left=$((c_left - c_size))
  [ "$c_left" -gt 0 ] || break
  printf 'run\t%s\n' "$c_run"
  cat -- "$c_run/{FILE}" || exit 1
done
"""


def copy_from_hosts(fleet: Fleet, hosts: Sequence[str], runs: Path) -> dict[str, str]:
    """Bring the hosts' copies into `runs`, each as a run's folder; reasons of silent hosts.

    A run that was journalled here is left alone. Lines that several hosts have stand once, in
    the order of the run; a line cut off by a lost connection is left out.
    """
    answers = inquire(fleet, [Inquiry(host, _copies()) for host in hosts])
    silent: dict[str, str] = {}
    lines: dict[str, dict[int, str]] = {}
    sources: dict[str, list[str]] = {}
    for host, answer in zip(hosts, answers, strict=True):
        if answer.value is None:
            silent[host] = answer.unknown or "unknown"
            continue
        for run, found in answer.value.items():
            lines.setdefault(run, {}).update(found)
            sources.setdefault(run, []).append(host)
    for run, found in lines.items():
        _write(runs / run, found, sources[run])
    return silent


def _copies() -> Generator[Shell, Output, Mapping[str, Mapping[int, str]]]:
    output = yield Shell("runs", _SCRIPT, timeout=120)
    runs: dict[str, dict[int, str]] = {}
    current: dict[int, str] = {}
    for line in output.expect().split("\n"):
        if line.startswith("run\t"):
            name = line.partition("\t")[2]
            # Only what can be a folder's name here: it comes from another machine.
            current = {} if "/" in name or name.startswith(".") else runs.setdefault(name, {})
            continue
        if (seq := _number(line)) is not None:
            current[seq] = line
    return {run: found for run, found in runs.items() if found}


def _write(folder: Path, lines: Mapping[int, str], hosts: Sequence[str]) -> None:
    copied = folder / COPIED
    if (folder / FILE).exists() and not copied.exists():
        return  # this controller's own
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (folder / FILE).exists():
        lines = _known(folder / FILE) | dict(lines)
        hosts = sorted({*copied.read_text().split(), *hosts})
    copied.write_text("".join(f"{host}\n" for host in hosts))
    temporary = folder / f".{FILE}"
    temporary.touch(mode=0o600)
    temporary.write_text("".join(f"{lines[seq]}\n" for seq in sorted(lines)))
    temporary.replace(folder / FILE)


def _known(file: Path) -> dict[int, str]:
    lines = file.read_text(errors="replace").splitlines()
    return {seq: line for line in lines if (seq := _number(line)) is not None}


def _number(line: str) -> int | None:
    """The number of a journal line; None for one that was cut off or damaged."""
    try:
        seq = json.loads(line)["seq"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return seq if isinstance(seq, int) else None
