"""The end of a run: every step with how it ended, then a line a host."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from runbooks.engine.model.runbook import Runbook
from runbooks.engine.model.values import show_duration
from runbooks.engine.run.outcome import Outcome, Result
from runbooks.engine.run.scheduler import release_of
from runbooks.engine.session import Report
from runbooks.engine.view.text import printable

__all__ = ["recap_lines", "show_recap"]

_COUNTED = {
    "satisfied": (Result.SATISFIED, Result.HELD, Result.NOT_WANTED, Result.LEFT),
    "ran": (Result.RAN, Result.RELEASED),
    "failed": (Result.FAILED, Result.TIMEOUT, Result.BUG),
    "unknown": (Result.UNKNOWN,),
    "unreachable": (Result.UNREACHABLE,),
    "stopped": (
        Result.BLOCKED,
        Result.APPROVAL,
        Result.LOCKED,
        Result.SKIPPED,
        Result.INTERRUPTED,
    ),
}


def show_recap(report: Report, runbook: Runbook, console: Console) -> None:
    for line in recap_lines(report, runbook):
        console.print(line)


def recap_lines(report: Report, runbook: Runbook) -> Iterator[Text]:
    """Steps in the runbook's order, then counts by host, then the sum."""
    outcomes = list(_ordered(report, runbook))
    steps = max((len(outcome.step) for outcome in outcomes), default=4)
    hosts = max((len(outcome.host) for outcome in outcomes), default=4)
    words = max((len(outcome.result.value) for outcome in outcomes), default=4)
    yield Text(f"Recap  {runbook.name}  run {report.run}", style="bold")
    for outcome in outcomes:
        style = "" if outcome.result.good else "red"
        took = show_duration(outcome.seconds)
        text = (
            f"  {outcome.step:<{steps}}  {outcome.host:<{hosts}}  {outcome.result.value:<{words}}"
            f"  {took:>6}  "
        )
        reason = outcome.reason.replace("\n", "\n" + " " * len(text))
        yield Text(printable(text + reason), style=style)
    for host in dict.fromkeys(outcome.host for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.host == host]
        counts = " ".join(
            f"{word}={sum(outcome.result in results for outcome in mine)}"
            for word, results in _COUNTED.items()
        )
        yield Text(f"{host}: {counts}")
    changed = report.changed
    noun = "changed step" if changed == 1 else "changed steps"
    yield Text(
        f"{changed} {noun}, {len(outcomes)} in all, {show_duration(report.seconds)};"
        f" journal {report.journal}",
        style="bold",
    )


def _ordered(report: Report, runbook: Runbook) -> Iterator[Outcome]:
    """Outcomes in plan order; a release stands right behind its step."""
    for step_id in runbook.order:
        for label in (step_id, release_of(step_id)):
            for (step, _), outcome in report.outcomes.items():
                if step == label:
                    yield outcome
