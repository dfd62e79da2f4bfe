"""A plan as people read it: one line a row with its reason, diffs, disk, a sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from runbooks.engine.model.operation import Preview
from runbooks.engine.model.values import show_duration, show_size
from runbooks.engine.plan.plan import Balance, Plan, Row, Status
from runbooks.engine.view.drift import drift_lines
from runbooks.engine.view.text import clock, printable

__all__ = ["plan_lines", "show_plan"]

_STYLES = {
    Status.SATISFIED: ("=", "green"),
    Status.HOLDS: ("=", "green"),
    Status.MAY_RUN: ("?", "yellow"),
    Status.ATTACH: (">", "cyan"),
    Status.NOT_WANTED: ("·", "dim"),
    Status.RELEASE: ("-", "yellow"),
    Status.BLOCKED: ("!", "red"),
    Status.UNKNOWN: ("!", "red"),
    Status.UNREACHABLE: ("!", "red"),
}
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_DIFF_LINES = 30
_DIFF_WIDTH = 160


def show_plan(plan: Plan, console: Console, *, diff: bool = True) -> None:
    """Print the whole plan."""
    for line in plan_lines(plan, diff=diff):
        console.print(line)


def plan_lines(plan: Plan, *, diff: bool = True) -> Iterator[Text]:
    """The plan, line by line; colour is never the only sign."""
    yield Text(
        f"Plan {plan.id}  {plan.runbook.name}  facts read {clock(plan.begun)}–{clock(plan.ended)},"
        " used once",
        style="bold",
    )
    widths = _widths(plan)
    for row in plan.rows:
        yield from _row_lines(row, widths, diff)
    for balance in plan.ledger:
        yield _balance_line(balance)
    yield from drift_lines(plan.drift, plan.unsure, plan.ended, label="Drift  ")
    yield from _down_lines(plan)
    yield Text(_summary(plan), style="bold")


def _widths(plan: Plan) -> tuple[int, int, int]:
    steps = max((len(row.step.id) for row in plan.rows), default=4)
    hosts = max((len(row.host) for row in plan.rows), default=4)
    return steps, hosts, max((len(row.status.value) for row in plan.rows), default=4)


def _symbol(row: Row) -> tuple[str, str]:
    if row.status is Status.WILL_RUN and row.step.do is not None:
        operation = row.step.do.operation
        return operation.symbol, "red" if operation.destructive else "yellow"
    return _STYLES[row.status]


def _row_lines(row: Row, widths: tuple[int, int, int], diff: bool) -> Iterator[Text]:
    symbol, style = _symbol(row)
    steps, hosts, words = widths
    line = Text(" ")
    line.append(f"{symbol} {row.step.id:<{steps}}", style=style)
    line.append(f"  {row.host:<{hosts}}  ")
    line.append(f"{row.status.value:<{words}}", style=style)
    parts = [f"(waits for {', '.join(row.waits)})"] if row.waits else []
    parts.append(row.reason)
    if row.forbidden and row.status is Status.MAY_RUN:
        parts.append(f"does not act itself: {row.forbidden}")
    parts.extend(_remarks(row))
    line.append("  " + printable(" · ".join(part for part in parts if part)))
    yield line
    if row.acts:
        yield from _detail_lines(row, diff)


def _remarks(row: Row) -> Iterator[str]:
    step = row.step
    if not row.acts:
        return
    if row.estimate is not None:
        if row.estimate.time is not None:
            yield f"about {show_duration(row.estimate.time)}"
        for root, count in row.estimate.writes.items():
            yield f"writes {show_size(count)} on {root}"
    if row.estimate_problem:
        yield f"estimate unknown: {row.estimate_problem}"
    if step.transient:
        yield "transient"


def _detail_lines(row: Row, diff: bool) -> Iterator[Text]:
    preview, step = row.preview, row.step
    if preview is not None:
        if preview.summary or step.irreversible is not None:
            yield Text("      " + printable(_preview_summary(preview)))
        if diff and preview.diff:
            yield from _diff_lines(preview.diff)
    elif row.preview_problem:
        yield Text(f"      preview unknown: {printable(row.preview_problem)}", style="yellow")
    if step.irreversible is not None:
        lost = step.irreversible
        text = f"      IRREVERSIBLE · loses {lost.loses} · restore: {lost.restore}"
        yield Text(printable(text), style="red")
        if row.approval is not None:
            yield Text(f"      approve with --approve {step.id}={row.approval}")
    if step.undo is not None:
        yield Text(f"      undo: {step.undo.operation.name}", style="dim")


def _preview_summary(preview: Preview) -> str:
    parts = [preview.summary] if preview.summary else []
    for root, count in preview.frees.items():
        # Most operations measure in their summary already.
        if show_size(count) not in preview.summary:
            parts.append(f"frees {show_size(count)} on {root}")
    return " · ".join(parts)


def _diff_lines(diff: str) -> Iterator[Text]:
    lines = diff.splitlines()
    for line in lines[:_DIFF_LINES]:
        shown = line if len(line) <= _DIFF_WIDTH else f"{line[:_DIFF_WIDTH]}… ({len(line)} wide)"
        yield Text("      " + printable(shown), style=_DIFF_STYLES.get(line[:1], ""))
    if len(lines) > _DIFF_LINES:
        yield Text(f"      … {len(lines) - _DIFF_LINES} more lines", style="dim")


def _balance_line(balance: Balance) -> Text:
    where = f"{', '.join(balance.roots)} ({', '.join(balance.hosts)}: {balance.filesystem})"
    if balance.free is None:
        return Text(f"Disk   {where}  unknown: {printable(balance.problem)}", style="yellow")
    lowest = balance.lowest if balance.lowest is not None else balance.free
    verdict = "SHORT" if balance.short else "ok"
    text = f"Disk   {where}  free {show_size(balance.free)}"
    if balance.frees:
        text += f"  frees {show_size(balance.frees)}"
    if balance.writes:
        text += f"  writes {show_size(balance.writes)}"
    lowest_text = f"-{show_size(-lowest)}" if lowest < 0 else show_size(lowest)
    text += f"  lowest {lowest_text}  reserve {show_size(balance.reserve)}  {verdict}"
    return Text(text, style="red" if balance.short else "")


def _down_lines(plan: Plan) -> Iterator[Text]:
    """Hosts that do not answer, and what that means for this runbook."""
    for host, reason in plan.down.items():
        if host in plan.runbook.hosts:
            meaning, style = "steps run on it", "red"
        elif host in plan.runbook.consulted:
            meaning, style = "no step runs on it; what checks read there is unknown", "yellow"
        else:
            meaning, style = "not needed: no step names it", "dim"
        yield Text(f"Down   {host}  {meaning}  ({printable(reason)})", style=style)
        if host in plan.runbook.hosts:
            yield Text(f"       set its address: 'Host {host}' in ~/.ssh/config, or the inventory")


def _about(acting: Sequence[Row]) -> str:
    """The time that the estimates add up to, and the long steps that have none."""
    known = [row for row in acting if row.estimate is not None and row.estimate.time is not None]
    unknown = [
        row.step.id
        for row in acting
        if row not in known and row.step.do is not None and row.step.do.operation.long
    ]
    seconds = sum(row.estimate.time or 0 for row in known if row.estimate is not None)
    if unknown:
        least = f"  At least {show_duration(seconds)}" if seconds else "  Time unknown"
        return f"{least}; no estimate of {', '.join(dict.fromkeys(unknown))}."
    return f"  About {show_duration(seconds)}." if seconds else ""


def _summary(plan: Plan) -> str:
    rows = [row for row in plan.rows if not row.step.gate]
    acting = [row for row in rows if row.acts]
    kinds = [
        (sum(row.step.irreversible is not None for row in acting), "irreversible"),
        (sum(row.step.do is not None and row.step.do.operation.long for row in acting), "long"),
        (sum(row.step.transient for row in acting), "transient"),
    ]
    remarks = ", ".join(f"{count} {word}" for count, word in kinds if count)
    count = plan.count
    words = [
        (
            sum(row.status in (Status.WILL_RUN, Status.ATTACH, Status.RELEASE) for row in rows),
            "to run",
        ),
        (sum(row.status is Status.MAY_RUN for row in rows), "may run"),
        (count(Status.SATISFIED, Status.HOLDS), "satisfied"),
        (count(Status.NOT_WANTED), "not wanted"),
        (count(Status.BLOCKED), "blocked"),
        (count(Status.UNKNOWN), "unknown"),
        (count(Status.UNREACHABLE), "unreachable"),
    ]
    always = {"to run", "satisfied", "blocked"}
    text = ", ".join(f"{number} {word}" for number, word in words if number or word in always)
    about = _about(acting)
    return f"Plan: {text}{f' ({remarks})' if remarks else ''}.{about}"
