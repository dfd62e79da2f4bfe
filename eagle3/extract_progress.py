"""How far an extraction is: progress.json in the store, and the same for a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3.files import write_json

__all__ = ["ExtractProgress", "ProgressState"]

_INTERVAL = 1.0  # seconds between writes of progress.json


@dataclass(frozen=True)
class ProgressState:
    """Counts of tokens and samples, shards of earlier runs included; rate of this run alone.

    `rate` is in tokens a second and None before the first batch; times are seconds since 1970.
    """

    state: str
    tokens: int
    total_tokens: int
    samples: int
    total_samples: int
    rate: float | None
    started: float
    updated: float

    @property
    def eta_s(self) -> float | None:
        if self.rate is None:
            return None
        return (self.total_tokens - self.tokens) / self.rate

    def to_json(self) -> dict[str, Any]:
        """`done`, `total` and `unit` are what the engine's job shows; the rest is for people."""
        return {
            "state": self.state,
            "unit": "tokens",
            "done": self.tokens,
            "total": self.total_tokens,
            "samples_done": self.samples,
            "samples_total": self.total_samples,
            "rate": None if self.rate is None else round(self.rate, 1),
            "eta_s": None if self.eta_s is None else round(self.eta_s, 1),
            "started": round(self.started, 3),
            "updated": round(self.updated, 3),
        }


class ExtractProgress:
    """Counts batches; writes `path` at most once a second, and at the end."""

    def __init__(
        self,
        path: Path,
        *,
        tokens: int,
        samples: int,
        total_tokens: int,
        total_samples: int,
        report: Callable[[ProgressState], None] | None = None,
    ):
        """`tokens` and `samples` are already there."""
        self._path = path
        self._before = self._tokens = tokens
        self._samples = samples
        self._totals = (total_tokens, total_samples)
        self._report = report
        self._started = time.time()
        self._clock = time.monotonic()
        self._written = float("-inf")

    @property
    def seconds(self) -> float:
        """Of this run's forwards and writes, without the loading of the target."""
        return time.monotonic() - self._clock

    def restart_clock(self) -> None:
        """The target is loaded: the rate counts from now."""
        self._clock = time.monotonic()

    def state(self, state: str) -> ProgressState:
        new, seconds = self._tokens - self._before, self.seconds
        return ProgressState(
            state,
            self._tokens,
            self._totals[0],
            self._samples,
            self._totals[1],
            new / seconds if new and seconds > 0 else None,
            self._started,
            time.time(),
        )

    def add(self, tokens: int, samples: int) -> None:
        """A batch went to the shard."""
        self._tokens += tokens
        self._samples += samples
        self.write("running", _INTERVAL)

    def write(self, state: str, interval: float = 0.0) -> None:
        """Write and report, unless the last time is less than `interval` seconds ago."""
        if time.monotonic() - self._written < interval:
            return
        found = self.state(state)
        write_json(self._path, found.to_json())
        self._written = time.monotonic()
        if self._report is not None:
            self._report(found)
