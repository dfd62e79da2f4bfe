"""What is seen while a run goes on: a line an event, one line that moves on a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from runbooks.engine.model.job import Progress
from runbooks.engine.model.values import show_duration
from runbooks.engine.view.job import progress_text
from runbooks.engine.view.text import clock, printable

__all__ = ["ProgressLine", "RunView"]

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

    def _lock(self, record: Mapping[str, Any]) -> None:
        if record["action"] != "taken":
            self._line(record, f"lock {record['action']}: {record['text']}", "yellow")

    def _note(self, record: Mapping[str, Any]) -> None:
        self._line(record, record["text"], "yellow")

    def _progress(self, record: Mapping[str, Any]) -> None:
        key = (record.get("step", ""), record.get("host", ""))
        if time.monotonic() - self._last.get(key, float("-inf")) < _QUIET:
            return
        self._last[key] = time.monotonic()
        self._line(record, progress_text(_progress_of(record)), "cyan")

    def _outcome(self, record: Mapping[str, Any]) -> None:
        symbol, style = _STYLES.get(record["result"], ("!", "red"))
        reason = f"  {record['reason']}" if record["reason"] else ""
        seconds = record.get("seconds", 0)
        took = f" in {show_duration(seconds)}" if seconds >= 1 else ""
        self._line(record, f"{symbol} {record['result']}{took}{reason}", style)


def _progress_of(record: Mapping[str, Any]) -> Progress:
    known = ("done", "total", "unit", "eta", "beat")
    return Progress(record["text"], **{name: record[name] for name in known if name in record})


class ProgressLine:
    """One job's progress: a line that moves on a terminal, else a line now and then."""

    def __init__(self, console: Console):
        self._console = console
        self._last = float("-inf")
        self._open = False

    def show(self, name: str, host: str, progress: Progress) -> None:
        text = printable(f"[{clock(time.time())}] {name}  {host}  {progress_text(progress)}")
        if self._console.is_terminal:
            self._console.file.write(f"\r{text[: self._console.width - 1]}\x1b[K")
            self._console.file.flush()
            self._open = True
        elif time.monotonic() - self._last >= _QUIET:
            self._last = time.monotonic()
            self._console.print(text)

    def end(self) -> None:
        """Leave the line as it stands."""
        if self._open:
            self._console.file.write("\n")
