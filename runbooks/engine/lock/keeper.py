"""Takes and gives up the locks of one run; refuses to go on without them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field

from runbooks.engine.fleet import Fenced, Fleet, Unreachable
from runbooks.engine.inquiry import Inquiry, inquire
from runbooks.engine.lock.owner import Owner
from runbooks.engine.lock.script import (
    LockState,
    fence_script,
    lock_state,
    read_script,
    release_script,
    take_script,
)
from runbooks.engine.lock.takeover import Refusal, refusal_of
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError
from runbooks.engine.model.host import Origin
from runbooks.engine.model.job import JobRecord
from runbooks.engine.model.operation import Command
from runbooks.engine.model.probe import Output, Shell, Unknown

__all__ = ["Keeper", "Locked", "read_locks"]

# Reads the jobs of hosts; a reason in the place of what could not be read.
JobsOn = Callable[[Sequence[str]], Mapping[str, Sequence[JobRecord] | str]]
# Hears of every lock: host, what was done (taken, taken over, lost), generation, why.
OnLock = Callable[[str, str, int, str], None]

_SECONDS = 60


class Locked(Exception):
    """A host is locked by somebody else; the message says by whom, and for how long."""

    def __init__(self, host: str, reason: str, hint: str = ""):
        super().__init__(f"{host}: {reason}")
        self.host = host
        self.reason = reason
        self.hint = hint


@dataclass
class Keeper:
    """The locks of one run. Safe to call from several threads.

    `protects` lists the hosts to lock, each with the hosts whose work its lock protects
    (`reach.locked_hosts`).
    """

    fleet: Fleet
    origin: Origin
    runbook: str
    protects: Mapping[str, Sequence[str]]
    jobs_on: JobsOn
    on_lock: OnLock
    now: Callable[[], float] = time.time
    held: dict[str, int] = field(default_factory=dict, init=False)
    lost: dict[str, str] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def take_all(self, down: Collection[str]) -> None:
        """Lock every host that answers, or none: RunbookError (locked) names each refusal."""
        refused: list[Locked] = []
        for host in self.protects:
            if host in down:
                continue
            try:
                self.take(host)
            except Locked as error:
                refused.append(error)
            except Unreachable:
                continue  # its steps say so
        if refused:
            self.release_all({})
            raise RunbookError(
                *(
                    Diagnostic(
                        error.reason, where=error.host, hint=error.hint, code=ExitCode.LOCKED
                    )
                    for error in refused
                )
            )

    def take(self, host: str) -> None:
        """Hold the lock of a host, now or already. Raises Locked, Unreachable, RunbookError."""
        with self._lock:
            if host in self.lost:
                raise Locked(host, self.lost[host])
            if host in self.held or host not in self.protects:
                return
            self.held[host] = self._take(host)

    def fence(self, host: str) -> str:
        """The script that refuses a change of this host once its lock is no longer ours."""
        generation = self.held.get(host)
        if generation is None:
            raise Locked(host, "this run does not hold its lock")
        return fence_script(self.origin.run, generation)

    def refused(self, host: str, said: str) -> Locked:
        """The fence refused: the lock was taken over, or an operator released it."""
        try:
            state = lock_state(said)
            now = "an operator released it"
            if state.generation != self.held.get(host) and state.owner is not None:
                now = f"it is locked {state.owner.describe(self.now())} now"
        except Unknown as error:
            now = error.reason
        with self._lock:
            generation = self.held.pop(host, 0)
            self.lost[host] = f"this run lost the lock of the host: {now}; it changes nothing more"
        self.on_lock(host, "lost", generation, now)
        return Locked(host, self.lost[host])

    def release_all(
        self,
        left: Mapping[str, str],
        last_words: Callable[[str], AbstractContextManager[str]] = lambda host: nullcontext(""),
    ) -> None:
        """Give every lock up; `left` maps hosts to the job that stays behind on them.

        `last_words(host)` gives a script that runs right before. A host that does not answer keeps a
        lock whose owner can be proved dead.
        """
        for host, generation in list(self.held.items()):
            end = "left" if host in left else "released"
            by = f"{self.origin.operator}@{self.origin.controller} run {self.origin.run}"
            with suppress(Unreachable, Fenced), last_words(host) as words:
                script = words + release_script(generation, end, by)
                self.fleet.perform(
                    host,
                    Command(script=script, label=f"lock {end}", timeout=_SECONDS),
                    self.fence(host),
                )
            self.held.pop(host, None)

    def _take(self, host: str) -> int:
        state = self._try(host, 0)
        if state.held:
            self._check_parent(host, state.generation)
            self.on_lock(host, "taken", state.generation, "")
            return state.generation
        over = state
        refusal = refusal_of(state, self.runbook, self.jobs_on, self.fleet.hosts)
        if isinstance(refusal, Refusal):
            raise self._locked(host, state, refusal)
        state = self._try(host, over.generation)
        if not state.held:
            raise self._locked(host, state, Refusal("it was taken a moment ago"))
        self._check_parent(host, state.generation)
        whose = f", locked {over.owner.describe(self.now())} before" if over.owner else ""
        self.on_lock(host, "taken over", state.generation, f"{refusal}{whose}")
        return state.generation

    def _try(self, host: str, over: int) -> LockState:
        owner = Owner.of(self.origin, self.runbook, self.now(), tuple(self.protects[host]))
        script = take_script(self.origin.run, owner, over)
        output = self.fleet.perform(
            host, Command(script=script, label="lock take", timeout=_SECONDS)
        )
        if output.exit != 0:
            raise RunbookError(
                Diagnostic(
                    f"cannot be locked: {output.complaint}",
                    where=host,
                    hint="the folder state_dir of the inventory has to be writable there",
                    code=ExitCode.FAILED,
                )
            )
        try:
            return lock_state(output.text)
        except Unknown as error:
            raise Locked(host, error.reason) from None

    def _check_parent(self, host: str, generation: int) -> None:
        """Who locked the machine that a guest runs on has locked the guest, even if the guest
        was down then. Both sides write first and look afterwards, so one of them sees it."""
        above = self.fleet.hosts[host].guest_of
        if above is None or above in self.protects:
            return
        state = read_locks(self.fleet, [above])[above]
        if not isinstance(state, LockState) or state.free or state.owner is None:
            return
        if host not in state.owner.hosts or state.owner.run == self.origin.run:
            return
        refusal = refusal_of(state, self.runbook, self.jobs_on, self.fleet.hosts)
        if isinstance(refusal, Refusal):
            self._give_back(host, generation)
            raise self._locked(host, state, Refusal(f"with {above}; {refusal.reason}"))

    def _give_back(self, host: str, generation: int) -> None:
        script = release_script(generation, "released", self.origin.run)
        self.fleet.perform(
            host,
            Command(script=script, label="lock released", timeout=_SECONDS),
            fence_script(self.origin.run, generation),
        )

    def _locked(self, host: str, state: LockState, refusal: Refusal) -> Locked:
        who = "locked by an owner that cannot be read"
        if state.owner is not None:
            who = f"locked {state.owner.describe(self.now())}"
        hint = refusal.hint or f"when its run is known to be over: runbook unlock {host}"
        return Locked(host, f"{who}; {refusal.reason}", hint)


def read_locks(fleet: Fleet, hosts: Sequence[str]) -> dict[str, LockState | str]:
    """The newest lock of each host, or why it cannot be known; changes nothing."""
    answers = inquire(fleet, [Inquiry(host, _reading()) for host in hosts])
    return {
        host: answer.value if answer.value is not None else answer.unknown or "unknown"
        for host, answer in zip(hosts, answers, strict=True)
    }


def _reading() -> Generator[Shell, Output, LockState]:
    output = yield Shell("lock", read_script())
    return lock_state(output.expect())
