"""Walks the graph: each step on each of its hosts, as soon as what it needs has ended well.

`needs` waits for a step on all its hosts. A failed step stops its dependants on every host
and nothing else. One host runs one step at a time; different hosts run side by side. The
release of a transient step is a task of its own, after the last of its dependents.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from runbooks.engine.model.runbook import Runbook, Step
from runbooks.engine.run.outcome import Outcome, Result

__all__ = ["Scheduler", "release_of"]

Unit = tuple[str, str]
# Seconds in which the waits for jobs end once the operator leaves.
_PARTING = 2.0
# What has served, and so is released: it holds, or somebody began to make it hold.
_SERVED = frozenset({Result.RAN, Result.SATISFIED, Result.LEFT})


def release_of(step_id: str) -> str:
    """The name under which the release of a step is reported."""
    return f"{step_id}:release"


@dataclass(frozen=True, slots=True)
class Task:
    """One step on one host, or the release of a transient one."""

    step: Step
    host: str
    release: bool = False

    @property
    def unit(self) -> Unit:
        return (release_of(self.step.id) if self.release else self.step.id, self.host)


@dataclass
class Scheduler:
    """Runs every unit once; `execute` and `release` return outcomes.

    `abandon` ends `run` at once, from another thread: what is under way stays under way.
    """

    runbook: Runbook
    execute: Callable[[Step, str], Outcome]
    release: Callable[[Step, str, bool], Outcome | None]
    skip: Callable[[Step, str, Result, str], Outcome]
    stop: threading.Event
    outcomes: dict[Unit, Outcome] = field(default_factory=dict)
    _ended: queue.Queue[tuple[Task, Outcome | BaseException | None] | None] = field(
        default_factory=queue.Queue
    )
    _busy: dict[str, Task] = field(default_factory=dict)
    _released: set[Unit] = field(default_factory=set)
    _said: dict[str, str] = field(default_factory=dict)

    def abandon(self) -> None:
        """Wait for nothing any more; jobs go on, on their hosts."""
        self._ended.put(None)

    def run(self) -> dict[Unit, Outcome]:
        """All outcomes by (step, host), releases under `STEP:release`."""
        waiting = self._tasks()
        while waiting or self._busy:
            before = len(waiting)
            waiting = self._start(waiting)
            if not self._busy:
                # Skips and dropped releases free others: look again, until nothing moves.
                if waiting and len(waiting) == before:
                    raise RuntimeError(f"steps that never become ready: {waiting}")
                continue
            message = self._ended.get()
            if message is None:
                self._leave(waiting)
                break
            self._take(*message)
        return self.outcomes

    def _take(self, task: Task, outcome: Outcome | BaseException | None) -> None:
        del self._busy[task.host]
        if isinstance(outcome, BaseException):
            raise outcome
        if task.release:
            self._released.add(task.unit)
        if outcome is not None:
            self.outcomes[task.unit] = outcome

    def _tasks(self) -> list[Task]:
        """Steps in an order that respects `needs`, then releases in the opposite one."""
        steps = [self.runbook.steps[step_id] for step_id in self.runbook.order]
        releases = [step for step in reversed(steps) if step.release is not None]
        return [Task(step, host) for step in steps for host in step.hosts] + [
            Task(step, host, release=True) for step in releases for host in step.hosts
        ]

    def _start(self, waiting: list[Task]) -> list[Task]:
        """Start every task that is ready on a free host; returns those still waiting."""
        left = []
        for task in waiting:
            state = self._release_ready(task) if task.release else self._ready(task.step)
            if state is None or (state == "" and task.host in self._busy):
                left.append(task)
            elif task.release and (state or self.stop.is_set()):
                self._released.add(task.unit)
            elif self.stop.is_set():
                reason = "not started: the operator stopped the run"
                self.outcomes[task.unit] = self.skip(
                    task.step, task.host, Result.INTERRUPTED, reason
                )
            elif state:
                self.outcomes[task.unit] = self.skip(task.step, task.host, Result.SKIPPED, state)
            else:
                self._busy[task.host] = task
                name = f"{task.unit[0]}@{task.host}"
                threading.Thread(target=self._work, args=(task,), name=name, daemon=True).start()
        return left

    def _work(self, task: Task) -> None:
        try:
            if task.release:
                acted = self.outcomes[task.step.id, task.host].acted
                self._ended.put((task, self.release(task.step, task.host, acted)))
            else:
                self._ended.put((task, self.execute(task.step, task.host)))
        except BaseException as error:
            self._ended.put((task, error))

    def _ready(self, step: Step) -> str | None:
        """`""` ready, a text why it is skipped, None while it has to wait.

        What is said once stays: outcomes do not change.
        """
        if step.id not in self._said:
            said = self._judged(step)
            if said is None:
                return None
            self._said[step.id] = said
        return self._said[step.id]

    def _judged(self, step: Step) -> str | None:
        for need in step.needs:
            for host in self.runbook.steps[need].hosts:
                outcome = self.outcomes.get((need, host))
                if outcome is None:
                    return None
                if not outcome.result.good:
                    return f"needs {need}, which ended as '{outcome.result.value}' on {host}"
        return ""

    def _release_ready(self, task: Task) -> str | None:
        """`""` ready, a text when there is nothing to release, None while it has to wait."""
        own = self.outcomes.get((task.step.id, task.host))
        if own is None:
            return None
        dependents = self.runbook.dependents(task.step.id)
        served = own.result in _SERVED or (own.acted and own.result is not Result.RELEASED)
        if not dependents or not served:
            return "nothing to release"
        for other in dependents:
            step = self.runbook.steps[other]
            for host in step.hosts:
                if (other, host) not in self.outcomes:
                    return None
                if step.release is not None and (release_of(other), host) not in self._released:
                    return None
        return ""

    def _leave(self, waiting: list[Task]) -> None:
        """Let the waits for jobs end by themselves for a moment; say of the rest that it is left."""
        end = time.monotonic() + _PARTING
        while self._busy and (left := end - time.monotonic()) > 0:
            try:
                message = self._ended.get(timeout=left)
            except queue.Empty:
                break
            if message is not None:
                self._take(*message)
        for task in self._busy.values():
            reason = "left by the operator while it acted; what it began goes on on its host"
            self.outcomes[task.unit] = self.skip(task.step, task.host, Result.INTERRUPTED, reason)
        for task in waiting:
            if not task.release:
                reason = "not started: the operator left the run"
                self.outcomes[task.unit] = self.skip(
                    task.step, task.host, Result.INTERRUPTED, reason
                )
