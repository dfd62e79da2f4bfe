"""One past run as people read it: who ran what, then every step on every host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import localtime, strftime
from typing import Any

from rich.text import Text

from runbooks.engine.history.runs import Record, RunRecord, Unit, number, text
from runbooks.engine.model.values import show_duration
from runbooks.engine.view.history import day, ending
from runbooks.engine.view.text import clock, printable

__all__ = ["clock_over", "event_line", "identity", "run_lines", "symbol", "unit_lines"]

_SYMBOLS = {
    "satisfied": ("=", "green"),
    "held": ("=", "green"),
    "ran": ("~", "yellow"),
    "released": ("-", "yellow"),
    "not wanted": ("·", "dim"),
    "left as it is": ("·", "dim"),
    "not ended": ("?", "yellow"),
    "interrupted": ("?", "yellow"),
}
_MARKS = {"true": ("✔", "green"), "false": ("✘", "yellow")}
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
# Commands of one step that the view of a whole run lists.
_COMMANDS = 10


def clock_over(begun: float, last: float) -> Callable[[float], str]:
    """How times between these two are shown: with their day where there are several."""
    if day(begun)[:10] == day(last)[:10]:
        return clock
    return lambda at: strftime("%m-%d %H:%M:%S", localtime(at))


def symbol(unit: Unit) -> tuple[str, str]:
    """The sign of how a step ended, and its style."""
    return _SYMBOLS.get(unit.result, ("!", "red"))


def identity(record: RunRecord, faults: Sequence[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """Labels with values, of what is known of the run as a whole; `faults` of its chain."""
    run = record.run
    took = show_duration(record.last - record.begun)
    yield "result", ending(record.end is not None, record.exit, record.lives)
    yield "begun", f"{day(record.begun)}, took {took}{'' if record.end else ' so far as is known'}"
    if record.end:
        yield "ended", day(record.last)
    yield "operator", f"{text(run, 'operator') or '?'} on {text(run, 'controller') or '?'}"
    process = f"process {run['pid']}" if number(run, "pid") is not None else ""
    boot = f"boot {text(run, 'boot')}" if text(run, "boot") else ""
    yield "door", ", ".join(part for part in (text(run, "door"), process, boot) if part)
    yield "hosts", _words(run.get("hosts"))
    yield "runbook", "  ".join(filter(None, (text(run, "file"), _digest(run, "digest"))))
    yield "variables", _digest(run, "variables_digest")
    yield "inventory", _digest(run, "inventory_digest")
    yield "versions", _words(run.get("versions"))
    for name in ("limit", "selected", "plan"):
        yield name, _words(run.get(name))
    known = ", ".join(record.copied)
    yield "copied from", f"{known}; other hosts know more" if known else ""
    yield "left", _words(record.end.get("left") if record.end else None)
    whole = "chain whole" if record.end else "chain whole as far as it goes"
    if faults:
        whole = f"line {faults[0][0]} {faults[0][1]}"
    count = len(record.records) + len(record.faults)
    yield "journal", f"{record.path}  {count:,} lines, {whole}"


def _digest(record: Record, name: str) -> str:
    return f"sha256 {text(record, name)}" if text(record, name) else ""


def _words(value: Any) -> str:
    """A value of any shape on one line; empty for nothing."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_words, value))
    return "" if value is None else str(value)


def run_lines(record: RunRecord, faults: Sequence[tuple[int, str]]) -> Iterator[Text]:
    """The whole run."""
    yield _line(f"Run {record.id}  {text(record.run, 'runbook') or '?'}", "bold")
    known = [(label, value) for label, value in identity(record, faults) if value]
    width = max(len(label) for label, _ in known)
    for label, value in known:
        yield _line(f"  {label:<{width}}  {value}", "red" if label == "journal" and faults else "")
    for number_, message in record.faults:
        yield _line(f"  damaged: {record.path}:{number_} {message}", "red")
    units = list(record.units.values())
    steps = max((len(unit.step) for unit in units), default=0)
    hosts = max((len(unit.host) for unit in units), default=0)
    words = max((len(unit.result) for unit in units), default=0)
    when = clock_over(record.begun, record.last)
    if units:
        yield _line("Steps", "bold")
    for unit in units:
        yield from _row(unit, (steps, hosts, words), when)
    for title, event in (("Locks", "lock"), ("Notes", "note")):
        found = record.of(event)
        if found:
            yield _line(title, "bold")
        for item in found:
            yield from _event(item, 2, when)


def _row(unit: Unit, widths: tuple[int, int, int], when: Callable[[float], str]) -> Iterator[Text]:
    steps, hosts, words = widths
    sign, style = symbol(unit)
    took = show_duration(unit.last - unit.begun)
    head = f" {sign} {unit.step:<{steps}}  {unit.host:<{hosts}}  "
    yield _line(
        f"{head}{unit.result:<{words}}  {when(unit.begun)}  {took:>6}  {unit.reason}", style
    )
    commands = 0
    for record in unit.records:
        if record["event"] == "command":
            commands += 1
            if commands > _COMMANDS:
                continue
        if record["event"] in ("intent", "command", "checkpoint") or text(record, "warning"):
            yield from _event(record, 6, when)
    if commands > _COMMANDS:
        rest = unit.of("command")[_COMMANDS:]
        bad = sum(record.get("exit") != 0 for record in rest)
        more = f"… {len(rest):,} more commands, {bad:,} of them failed"
        yield _line(f"      {more}: runbook show RUN/{unit.step}@{unit.host}", "dim")
    if unit.outcome is not None and unit.of("intent"):
        yield from _event(unit.outcome, 6, when)


def unit_lines(units: Iterable[Unit]) -> Iterator[Text]:
    """Steps in full: every check with what it wanted and read, diffs, commands, outputs."""
    for unit in units:
        sign, style = symbol(unit)
        took = show_duration(unit.last - unit.begun)
        acted = "acted" if unit.acted else "changed nothing"
        head = f"{sign} {unit.step}  {unit.host}  {unit.result}"
        when = clock_over(unit.begun, unit.last)
        yield _line(
            f"{head}  {day(unit.begun)}, took {took}, {acted}",
            f"bold {style}" if style != "dim" else "bold",
        )
        for record in unit.records:
            yield from _event(record, 2, when)
            yield from _details(record, when)


def event_line(record: Record) -> str:
    """What happened, in one sentence; the same on a terminal and in a report."""
    match record["event"]:
        case "facts":
            checks = record.get("checks")
            return f"{text(record, 'part')}{'' if checks else ': none'}"
        case "intent":
            summary = text(record, "summary")
            return f"intent: {text(record, 'operation')}{' · ' if summary else ''}{summary}"
        case "command":
            took = seconds_text(number(record, "seconds"))
            code = record.get("exit")
            return f"$ {text(record, 'command')} → exit {code}{' in ' if took else ''}{took}"
        case "outcome":
            reason = text(record, "reason")
            return f"outcome: {text(record, 'result')}{': ' if reason else ''}{reason}"
        case "lock":
            said = text(record, "text") or text(record, "note")
            generation = number(record, "generation")
            numbered = f", generation {generation:g}" if generation is not None else ""
            host = f"{text(record, 'host')}: " if text(record, "host") else ""
            return f"{host}lock {text(record, 'action')}{numbered}{': ' if said else ''}{said}"
        case "note":
            kind = text(record, "warning")
            return f"{f'warning, {kind}' if kind else 'note'}: {text(record, 'text')}"
    return str(record["event"])


def seconds_text(seconds: float | None) -> str:
    """A command's time: short ones in parts of a second."""
    if seconds is None:
        return ""
    return show_duration(seconds) if seconds >= 10 else f"{seconds:.2f}s"


def _details(record: Record, when: Callable[[float], str]) -> Iterator[Text]:
    checks = record.get("checks")
    for check in checks if isinstance(checks, list) else []:
        if isinstance(check, Mapping):
            yield _check(check, text(record, "host"), when)
    for line in text(record, "diff").splitlines():
        yield _line(f"      {line}", _DIFF_STYLES.get(line[:1], ""))
    for name in ("stdout", "stderr", "traceback"):
        for line in text(record, name).splitlines():
            yield _line(f"      {name} | {line}", "dim")


def _check(check: Record, host: str, when: Callable[[float], str]) -> Text:
    truth = text(check, "truth")
    mark, style = _MARKS.get(truth, ("?", "red"))
    wanted = f", wanted {text(check, 'wanted')}" if text(check, "wanted") else ""
    read = text(check, "read") or "nothing"
    reason = f" ({text(check, 'reason')})" if text(check, "reason") else ""
    read_on = text(check, "host")
    elsewhere = f" on {read_on}" if read_on and read_on != host else ""
    at = number(check, "at")
    read_at = f"  [{when(at)}]" if at is not None and at >= 0 else ""
    body = f"{text(check, 'check')}: {truth or 'unknown'}{wanted}, read {read}{reason}"
    return _line(f"      {mark} {body}{elsewhere}{read_at}", style)


def _event(record: Record, indent: int, when: Callable[[float], str]) -> Iterator[Text]:
    """What happened: the first line behind the time, further ones below it."""
    style = "yellow" if record["event"] == "note" else ""
    if record["event"] == "command" and record.get("exit") != 0:
        style = "red"
    head = " " * indent + when(record["at"]) + "  "
    for position, line in enumerate(event_line(record).splitlines() or [""]):
        yield _line((head if position == 0 else " " * len(head)) + line, style)


def _line(said: str, style: str = "") -> Text:
    return Text(printable(said), style=style)
