"""The hosts' own copies of the journal, so that a second controller knows what was done.

    ${EAGLE3_STATE}/runs/RUN/journal.jsonl

Lines wait here until something changes their host anyway, and travel in front of it: no round
trip of their own, and the intent of a step stands on the host before its first command. What
is left goes with the release of the lock. A line sent twice (a connection that broke) is known
by its number. Copies are best effort: a host whose disk is full still gets its commands.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from runbooks.engine.fleet import Fenced, Unreachable
from runbooks.engine.plan.checkpoint import append_script
from runbooks.engine.run.journal import FILE

__all__ = ["Mirror", "run_folder"]

# Events of the run as a whole.
_EVERYWHERE = frozenset({"run", "end"})
# Copies of earlier runs that a host keeps.
_KEPT = 50


def run_folder(run: str) -> str:
    """The folder of a run's copy as a shell word."""
    return f'"${{EAGLE3_STATE:?}}"/runs/{quote(re.sub(r"[^A-Za-z0-9_.-]", "_", run))}'


@dataclass
class Mirror:
    """Collects the lines of one run for each of `hosts`; fed by `Journal`'s `copy`."""

    run: str
    runbook: str
    hosts: Collection[str]
    _lines: dict[str, list[str]] = field(init=False)
    _checkpoints: dict[str, list[str]] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self._lines = {host: [] for host in self.hosts}
        self._checkpoints = {host: [] for host in self.hosts}

    def copy(self, record: Mapping[str, Any], line: str) -> None:
        """Keep a journal line for the hosts that it concerns."""
        with self._lock:
            for host, lines in self._lines.items():
                if record["event"] in _EVERYWHERE or record.get("host") == host:
                    lines.append(line)

    def checkpoint(self, host: str, line: str) -> None:
        """Keep a checkpoint for its host; one that this run does not lock gets none."""
        with self._lock:
            if host in self._checkpoints:
                self._checkpoints[host].append(line)

    @contextmanager
    def sending(self, host: str) -> Iterator[str]:
        """Shell text that writes what waits for a host; what it did not get waits on."""
        with self._lock:
            lines, self._lines[host] = self._lines.get(host, []), []
            checkpoints, self._checkpoints[host] = self._checkpoints.get(host, []), []
        script = "umask 077\n" if lines or checkpoints else ""
        if lines:
            script += _append(self.run, lines)
        if checkpoints:
            script += append_script(self.runbook, checkpoints)
        try:
            yield script
        except (Unreachable, Fenced):
            with self._lock:
                self._lines[host][:0] = lines
                self._checkpoints[host][:0] = checkpoints
            raise


def _append(run: str, lines: Sequence[str]) -> str:
    words = " ".join(map(quote, lines))
    return f"""m_folder={run_folder(run)}
[ -d "$m_folder" ] || (
  mkdir -p "$m_folder"
  set -- "${{m_folder%/*}}"/*/
  while [ $# -gt {_KEPT} ]; do rm -rf -- "$1"; shift; done
) 2>/dev/null
printf '%s\\n' {words} 2>/dev/null >> "$m_folder/{FILE}" || :
"""
