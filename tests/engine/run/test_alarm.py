"""Late and silent work is warned of, once each."""

from __future__ import annotations

from runbooks.engine.model.job import Progress
from runbooks.engine.model.runbook import Watch
from runbooks.engine.run.alarm import Alarm


def warned(watch: Watch, *progress: Progress) -> list[tuple[str, str]]:
    said: list[tuple[str, str]] = []
    alarm = Alarm(watch, lambda kind, text: said.append((kind, text)))
    for one in progress:
        alarm.see(one)
    return said


def test_a_job_is_late_by_its_own_age_not_by_when_it_was_attached_to():
    watch = Watch(late=80 * 3600)
    assert warned(watch, Progress("x", age=79 * 3600.0)) == []
    assert warned(watch, Progress("x", age=81 * 3600.0), Progress("x", age=82 * 3600.0)) == [
        ("late", "late: it takes longer than 3d8h")
    ]


def test_work_without_an_age_counts_from_its_first_progress():
    assert warned(Watch(late=3600), Progress("x")) == []


def test_silence_is_told_once():
    watch = Watch(silent=900)
    assert warned(watch, Progress("x", beat=899.0), Progress("x")) == []
    assert warned(watch, Progress("x", beat=901.0), Progress("x", beat=2000.0)) == [
        ("silent", "silent: no progress for 15m1s")
    ]
