"""Jobs: long work that belongs to its host, as the host itself tells of it."""

from __future__ import annotations

from dataclasses import dataclass

from runbooks.engine.model.host import Origin

__all__ = ["JobRecord", "Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far long work has come; `eta` in seconds, `beat` seconds since it last moved, `age`
    since it began."""

    text: str
    done: float | None = None
    total: float | None = None
    unit: str = ""
    eta: float | None = None
    beat: float | None = None
    age: float | None = None


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The newest job of a step on a host.

    `state` is `running`, `ended` (then `exit` is set) or `lost` (`reason` says how: the host
    rebooted, its processes are gone). Times are seconds since the epoch by the host's clock,
    `now` when it was read. `unit` is its systemd unit, empty where it runs without;
    `operation` the registered operation that began it.
    """

    host: str
    runbook: str
    step: str
    number: int
    state: str
    exit: int | None = None
    reason: str = ""
    command: str = ""
    origin: Origin | None = None
    pid: int | None = None
    unit: str = ""
    started: float | None = None
    ended: float | None = None
    now: float = 0.0
    log: str = ""
    progress: Progress | None = None
    operation: str = "job"

    @property
    def alive(self) -> bool:
        return self.state == "running"
