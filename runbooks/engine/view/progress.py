"""What is seen while a run goes on: a line an event, one line that moves on a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from runbooks.engine.model.values import show_duration
from runbooks.engine.view.text import clock, printable

__all__ = ["RunView"]

_STYLES = {
    "satisfied": ("=", "green"),
    "held": ("=", "green"),
    "ran": ("~", "yellow"),
    "not wanted": ("·", "dim"),
    "left as it is": ("·", "dim"),
    "released": ("~", "yellow"),
}
# Without a terminal a progress line at most this often, in seconds.
_QUIET = 15.0


class RunView:
    """A sink that prints records as they come."""

    def __init__(self, console: Console, *, verbose: bool = False):
        self._console = console
        self._verbose = verbose
        self._last: dict[tuple[str, str], float] = {}

    def take(self, record: Mapping[str, Any]) -> None:
        handler = getattr(self, f"_{record['event']}", None)
        if handler is not None:
            handler(record)

    def _line(self, record: Mapping[str, Any], text: str, style: str = "") -> None:
        head = f"[{clock(record['at'])}] {record.get('step', '')}  {record.get('host', '')}  "
        self._console.print(Text(printable(head + text), style=style))

    def _run(self, record: Mapping[str, Any]) -> None:
        text = f"Run {record['run']}  {record['runbook']}  by {record['operator']}"
        self._console.print(Text(printable(text), style="bold"))

    def _intent(self, record: Mapping[str, Any]) -> None:
        self._line(record, f"acts: {record['operation']}", "cyan")

    def _command(self, record: Mapping[str, Any]) -> None:
        if self._verbose or record["exit"] != 0:
            end = "" if record["exit"] == 0 else f" → exit {record['exit']}"
            self._line(record, f"$ {record['command']}{end}", "dim")

    def _facts(self, record: Mapping[str, Any]) -> None:
        if self._verbose:
            for check in record["checks"]:
                text = f"{record['part']} {check['check']}: {check['read']} ({check['truth']})"
                self._line(record, text, "dim")

    def _note(self, record: Mapping[str, Any]) -> None:
        self._line(record, record["text"], "yellow")

    def _progress(self, record: Mapping[str, Any]) -> None:
        key = (record.get("step", ""), record.get("host", ""))
        if time.monotonic() - self._last.get(key, float("-inf")) < _QUIET:
            return
        self._last[key] = time.monotonic()
        self._line(record, _progress_text(record), "cyan")

    def _outcome(self, record: Mapping[str, Any]) -> None:
        symbol, style = _STYLES.get(record["result"], ("!", "red"))
        reason = f"  {record['reason']}" if record["reason"] else ""
        seconds = record.get("seconds", 0)
        took = f" in {show_duration(seconds)}" if seconds >= 1 else ""
        self._line(record, f"{symbol} {record['result']}{took}{reason}", style)


def _progress_text(record: Mapping[str, Any]) -> str:
    parts = [record["text"]]
    done, total = record.get("done"), record.get("total")
    if done is not None and total:
        parts.append(f"{done:,.0f}/{total:,.0f} {record.get('unit', '')} {done / total:.0%}")
    if record.get("eta") is not None:
        parts.append(f"left {show_duration(record['eta'])}")
    if record.get("beat") is not None:
        parts.append(f"last change {show_duration(record['beat'])} ago")
    return "  ".join(part.strip() for part in parts if part)
