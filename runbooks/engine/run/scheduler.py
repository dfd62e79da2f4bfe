"""Walks the graph: each step on each of its hosts, as soon as what it needs has ended well.

`needs` waits for a step on all its hosts. A failed step stops its dependants on every host
and nothing else. One host runs one step at a time; different hosts run side by side.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from runbooks.engine.model.runbook import Runbook, Step
from runbooks.engine.run.outcome import Outcome, Result

__all__ = ["Scheduler"]

Unit = tuple[str, str]


@dataclass
class Scheduler:
    """Runs every unit once. `execute` runs one and returns its outcome; it must not raise.

    `released` is called for each host of a transient step after its last dependent.
    """

    runbook: Runbook
    execute: Callable[[Step, str], Outcome]
    release: Callable[[Step, str], Outcome | None]
    skip: Callable[[Step, str, Result, str], Outcome]
    stop: threading.Event
    outcomes: dict[Unit, Outcome] = field(default_factory=dict)

    def run(self) -> dict[Unit, Outcome]:
        """All outcomes by (step, host), releases under `STEP:release`."""
        waiting = [
            (self.runbook.steps[step_id], host)
            for step_id in self.runbook.order
            for host in self.runbook.steps[step_id].hosts
        ]
        ended: queue.Queue[tuple[Step, str, Outcome | BaseException]] = queue.Queue()
        busy: set[str] = set()
        released: set[str] = set()
        while waiting or busy:
            waiting = self._start(waiting, busy, ended)
            if not busy:
                # Whatever is left was skipped just now; look again, since skips free others.
                if waiting and not self._progress_possible(waiting):
                    raise RuntimeError(f"steps that never become ready: {waiting}")
                continue
            step, host, outcome = ended.get()
            busy.discard(host)
            if isinstance(outcome, BaseException):
                raise outcome
            self.outcomes[step.id, host] = outcome
            self._release(released)
        self._release(released)
        return self.outcomes

    def _start(
        self,
        waiting: list[tuple[Step, str]],
        busy: set[str],
        ended: queue.Queue[tuple[Step, str, Outcome | BaseException]],
    ) -> list[tuple[Step, str]]:
        """Start every unit that is ready on a free host; returns those still waiting."""
        left = []
        for step, host in waiting:
            state = self._ready(step)
            if state is None or (state == "" and host in busy):
                left.append((step, host))
            elif self.stop.is_set():
                self.outcomes[step.id, host] = self.skip(
                    step, host, Result.INTERRUPTED, "not started: the operator stopped the run"
                )
            elif state:
                self.outcomes[step.id, host] = self.skip(step, host, Result.SKIPPED, state)
            else:
                busy.add(host)
                threading.Thread(
                    target=self._work,
                    args=(step, host, ended),
                    name=f"{step.id}@{host}",
                    daemon=True,
                ).start()
        return left

    def _work(
        self,
        step: Step,
        host: str,
        ended: queue.Queue[tuple[Step, str, Outcome | BaseException]],
    ) -> None:
        try:
            ended.put((step, host, self.execute(step, host)))
        except BaseException as error:
            ended.put((step, host, error))

    def _ready(self, step: Step) -> str | None:
        """`""` ready, a text why it is skipped, None while it has to wait."""
        for need in step.needs:
            for host in self.runbook.steps[need].hosts:
                outcome = self.outcomes.get((need, host))
                if outcome is None:
                    return None
                if not outcome.result.good:
                    return f"waits for {need}, which is {outcome.result.value} on {host}"
        return ""

    def _progress_possible(self, waiting: list[tuple[Step, str]]) -> bool:
        return any(self._ready(step) is not None for step, _ in waiting)

    def _release(self, released: set[str]) -> None:
        """Release transient steps that served and whose dependents have all ended."""
        for step in self.runbook.steps.values():
            if step.release is None or step.id in released or self.stop.is_set():
                continue
            served = [
                host
                for host in step.hosts
                if (outcome := self.outcomes.get((step.id, host)))
                and outcome.result in (Result.RAN, Result.SATISFIED)
            ]
            dependents = self.runbook.dependents(step.id)
            over = all(
                (other, host) in self.outcomes
                for other in dependents
                for host in self.runbook.steps[other].hosts
            )
            if not served or not dependents or not over:
                continue
            released.add(step.id)
            for host in served:
                outcome = self.release(step, host)
                if outcome is not None:
                    self.outcomes[f"{step.id}:release", host] = outcome
