"""When a lock may be taken over: its owner is provably gone, and nothing of it still works."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from runbooks.engine.lock.script import LockState
from runbooks.engine.model.host import Host
from runbooks.engine.model.job import JobRecord

__all__ = ["Refusal", "refusal_of"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a lock stays, and what its reader can do."""

    reason: str
    hint: str = ""


def refusal_of(
    state: LockState,
    runbook: str,
    jobs_on: Callable[[Sequence[str]], Mapping[str, Sequence[JobRecord] | str]],
    fleet: Mapping[str, Host],
) -> Refusal | str:
    """A Refusal, or the proof (a text) by which a run of `runbook` may take the lock over.

    A live job keeps the lock of the run that began it, except from a run of the same runbook,
    which attaches to it. What cannot be known keeps it too.
    """
    owner = state.owner
    if owner is None:
        return Refusal("its owner cannot be read")
    if state.acting is not None:
        return Refusal(f"a command of that run still runs on it (process {state.acting})")
    proof = "its run has ended" if state.ended == "left" else owner.death()
    if proof is None:
        return Refusal("its controller may live: nothing here proves the contrary")
    foreign = sorted(set(owner.hosts) - set(fleet))
    if foreign:
        return Refusal(f"it protects {', '.join(foreign)}, unknown to this inventory")
    for host, jobs in jobs_on(owner.hosts).items():
        if isinstance(jobs, str):
            return Refusal(f"{proof}, but whether a job lives on {host} is unknown ({jobs})")
        for job in jobs:
            if job.alive and job.runbook != runbook:
                name = f"{job.runbook}/{job.step}"
                return Refusal(
                    f"the job {name} lives on {host}",
                    f"watch it: runbook attach {name}; end it: runbook cancel {name}",
                )
    return proof
