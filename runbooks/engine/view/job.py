"""A job on one line: how far it is, how fast, how long it still takes, when it last moved."""

from __future__ import annotations

from runbooks.engine.model.job import JobRecord, Progress
from runbooks.engine.model.values import show_duration

__all__ = ["job_line", "progress_text"]

_BAR = 10


def progress_text(progress: Progress) -> str:
    """`███████░░░  6,412/8,780 shards  73%  left 19h16m  beat 12s`."""
    parts: list[str] = []
    done, total = progress.done, progress.total
    if done is not None and total:
        share = min(1.0, max(0.0, done / total))
        filled = int(share * _BAR)
        parts.append("█" * filled + "░" * (_BAR - filled))
        parts.append(f"{done:,.0f}/{total:,.0f} {progress.unit}".rstrip())
        parts.append(f"{share:.0%}")
    if progress.text:
        parts.append(progress.text)
    if progress.eta is not None:
        parts.append(f"left {show_duration(progress.eta)}")
    if progress.beat is not None:
        parts.append(f"beat {show_duration(progress.beat)}")
    return "  ".join(parts)


def job_line(job: JobRecord) -> str:
    """`extract/extract  running 52h10m  …`, or how and when it ended."""
    name = f"{job.runbook}/{job.step}"
    begun = "" if job.started is None else show_duration(max(0.0, job.now - job.started))
    if job.alive:
        shown = progress_text(job.progress) if job.progress else ""
        return "  ".join(part for part in (name, f"running {begun}".strip(), shown) if part)
    if job.state == "ended":
        how = f"ended with exit {job.exit}" if job.exit is not None else "ended"
    else:
        how = "lost"
    if job.reason:
        how += f" ({job.reason})"
    if job.ended is not None:
        how += f" {show_duration(max(0.0, job.now - job.ended))} ago"
    return f"{name}  {how}"
