"""What jobs say of themselves, masked: a job's log may hold the secrets of its runbook.

Whoever watches a job need not have its runbook, nor its secrets. Where they cannot be read,
the job's own words are left out, and its log is named instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runbooks.engine.fleet import Fleet
from runbooks.engine.load import find_runbook, load_runbook
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.job import JobRecord, Progress
from runbooks.engine.redact import Redactor
from runbooks.engine.registry import Registry
from runbooks.engine.secrets import read_secrets

__all__ = ["Words"]

_LEFT_OUT = "its words are left out: the secrets of {} cannot be read here"


@dataclass
class Words:
    """Masks by runbook, each loaded once."""

    registry: Registry
    fleet: Fleet
    project: Path
    _redactors: dict[str, Redactor | None] = field(default_factory=dict)

    def jobs(
        self, found: Mapping[str, Sequence[JobRecord] | str]
    ) -> dict[str, list[JobRecord] | str]:
        """The jobs of hosts as they may be shown."""
        return {
            host: jobs if isinstance(jobs, str) else [self.job(job) for job in jobs]
            for host, jobs in found.items()
        }

    def job(self, job: JobRecord) -> JobRecord:
        progress = self.progress(job.runbook, job.progress) if job.progress else None
        return replace(job, progress=progress, reason=self.text(job.runbook, job.reason))

    def progress(self, runbook: str, progress: Progress) -> Progress:
        redactor = self._redactor(runbook)
        text = redactor.text(progress.text) if redactor is not None else ""
        return replace(progress, text=text)

    def text(self, runbook: str, text: str) -> str:
        """Masked; without the secrets its first line, in which a job's own words never stand."""
        redactor = self._redactor(runbook)
        if redactor is not None:
            return redactor.text(text)
        first, _, more = text.partition("\n")
        return f"{first}\n({_LEFT_OUT.format(runbook)})" if more else first

    def _redactor(self, runbook: str) -> Redactor | None:
        if runbook not in self._redactors:
            self._redactors[runbook] = self._read(runbook)
        return self._redactors[runbook]

    def _read(self, runbook: str) -> Redactor | None:
        try:
            loaded = load_runbook(find_runbook(runbook), self.registry, self.fleet.hosts)
            return Redactor(read_secrets(loaded.secrets, self.project).values())
        except RunbookError:
            return None
