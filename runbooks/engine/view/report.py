"""The report of one run: a single HTML page, made of the run's own files and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from runbooks.engine.history.runs import Record, RunRecord, Unit, number, text
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError
from runbooks.engine.model.values import show_duration
from runbooks.engine.view.history import day, ending
from runbooks.engine.view.show import clock_over, event_line, identity, symbol
from runbooks.engine.view.text import printable

__all__ = ["MARK", "render_report"]

# Stands near the start of every report: only a file that has it is overwritten unasked.
MARK = '<meta name="generator" content="runbook report">'

_TEMPLATE = "report.html.j2"
# Ticks of the time axis, in seconds: the first that gives at most `_TICKS` of them.
_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200)
_TICKS = 7
_DAY = 86400
# Percent of the axis: a bar that lasted a moment is still seen.
_NARROWEST = 0.4
_KINDS = {"=": "same", "~": "changed", "-": "changed", "·": "idle", "?": "open", "!": "bad"}
_DIFF = {"+": "added", "-": "removed", "@": "hunk"}


@dataclass(frozen=True, slots=True)
class _Bar:
    """Where a step stands on the time axis, in percent of it; `act` is the part behind its
    intent, from the left of the axis too."""

    left: float
    width: float
    act_left: float | None
    act_width: float


@dataclass(frozen=True, slots=True)
class _Check:
    truth: str
    mark: str
    check: str
    wanted: str
    read: str
    host: str
    at: str


@dataclass(frozen=True, slots=True)
class _Event:
    """One record of a step: its time, one sentence, and what belongs below it."""

    at: str
    kind: str
    said: str
    bad: bool
    checks: tuple[_Check, ...] = ()
    diff: tuple[tuple[str, str], ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Row:
    """A step on a host."""

    anchor: str
    step: str
    host: str
    sign: str
    kind: str
    result: str
    begun: str
    took: str
    reason: str
    acted: bool
    bar: _Bar
    events: tuple[_Event, ...] = field(default=())


def render_report(record: RunRecord, faults: Sequence[tuple[int, str]]) -> str:
    """The page. RunbookError (usage) where Jinja2 is not installed."""
    template = _environment().from_string(
        resources.files("runbooks.engine.view").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    )
    units = list(record.units.values())
    begun = min([record.begun, *(unit.begun for unit in units)])
    span = max([record.last, *(unit.last for unit in units)]) - begun
    when = clock_over(begun, begun + span)
    page: str = template.render(
        run=record.id,
        runbook=text(record.run, "runbook") or "?",
        result=ending(record.end is not None, record.exit, record.lives),
        kind="open" if record.end is None else "same" if record.exit == 0 else "bad",
        begun=day(record.begun),
        took=show_duration(record.last - record.begun),
        changed=record.changed,
        failed=record.failed,
        identity=[pair for pair in identity(record, faults) if pair[1]],
        faults=[f"line {line} {message}" for line, message in faults],
        rows=[
            _row(position, unit, _bar(unit, begun, span), when)
            for position, unit in enumerate(units)
        ],
        ticks=list(_ticks(span)),
        others=[
            (title, [_event(item, when) for item in record.of(event)])
            for title, event in (("Locks", "lock"), ("Notes", "note"))
            if record.of(event)
        ],
    )
    return page


def _environment() -> Any:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise RunbookError(
            Diagnostic(
                "a report needs Jinja2, which is not installed",
                where="runbook report",
                hint="install eagle3-runbooks[controller]",
                code=ExitCode.USAGE,
            )
        ) from None
    made = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # What a host said may hold anything, characters that no page may hold among it.
    made.filters["told"] = lambda value: printable(str(value))
    made.globals["mark"] = MARK
    return made


def _row(position: int, unit: Unit, bar: _Bar, when: Callable[[float], str]) -> _Row:
    sign, _ = symbol(unit)
    return _Row(
        anchor=f"step-{position + 1}",
        step=unit.step,
        host=unit.host,
        sign=sign,
        kind=_KINDS.get(sign, "bad"),
        result=unit.result,
        begun=when(unit.begun),
        took=show_duration(unit.last - unit.begun),
        reason=unit.reason,
        acted=unit.acted,
        bar=bar,
        events=tuple(_event(record, when) for record in unit.records),
    )


def _bar(unit: Unit, begun: float, span: float) -> _Bar:
    def share(seconds: float) -> float:
        return round(100 * seconds / span, 3) if span > 0 else 0.0

    left = min(share(unit.begun - begun), 100 - _NARROWEST)
    width = min(max(share(unit.last - unit.begun), _NARROWEST), 100 - left)
    intents = unit.of("intent")
    if not intents:
        return _Bar(left, width, None, 0.0)
    act_left = min(max(share(intents[0]["at"] - begun), left), left + width - _NARROWEST)
    return _Bar(left, width, act_left, round(left + width - act_left, 3))


def _ticks(span: float) -> Iterator[tuple[float, str]]:
    """Percent of the axis and the time since the run began."""
    step = next((one for one in _STEPS if span / one <= _TICKS), 0)
    if not step:
        step = _DAY * max(1, round(span / _DAY / _TICKS))
    at = 0
    while at <= span and span > 0:
        yield round(100 * at / span, 3), show_duration(at)
        at += step


def _event(record: Record, when: Callable[[float], str]) -> _Event:
    kind = str(record["event"])
    bad = kind == "command" and record.get("exit") != 0
    checks = record.get("checks")
    return _Event(
        at=when(record["at"]),
        kind=kind,
        said=event_line(record),
        bad=bad or bool(text(record, "warning")),
        checks=tuple(
            _check(check, text(record, "host"), when)
            for check in (checks if isinstance(checks, list) else [])
            if isinstance(check, Mapping)
        ),
        diff=tuple(
            (_DIFF.get(line[:1], "context"), line) for line in text(record, "diff").splitlines()
        ),
        outputs=tuple(
            (name, text(record, name))
            for name in ("stdout", "stderr", "traceback")
            if text(record, name).strip()
        ),
    )


def _check(check: Record, host: str, when: Callable[[float], str]) -> _Check:
    truth = text(check, "truth")
    at = number(check, "at")
    read = text(check, "read")
    if text(check, "reason"):
        read += f" ({text(check, 'reason')})"
    return _Check(
        truth=truth if truth in ("true", "false") else "unknown",
        mark={"true": "✔", "false": "✘"}.get(truth, "?"),
        check=text(check, "check"),
        wanted=text(check, "wanted"),
        read=read,
        host=text(check, "host") if text(check, "host") != host else "",
        at=when(at) if at is not None and at >= 0 else "",
    )
