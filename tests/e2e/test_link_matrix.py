"""A host is unplugged in the middle of each step, for a moment and for long, and plugged in again.

The act itself goes on on the host meanwhile: it is held until the link is down. A short cut is
shorter than the time after which a silent peer counts as gone, a long one is three times that.
Every case has hosts of its own, so that all wait at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.fleet import Fleet, make_fleet
from tests.e2e.matrix import ACTS, World, approvals_of, finished, runbook

pytestmark = pytest.mark.e2e

# Seconds.
SHORT, LONG = 5, 90


@dataclass(frozen=True)
class Case:
    """`host` is unplugged once `held` (of `World.hold`) is reached on `held_on`, for `seconds`;
    `step` is what it hits there, and `code` is how the run ends."""

    held: str
    held_on: str
    step: str
    host: str
    seconds: int
    code: int

    def __str__(self) -> str:
        return f"{self.step}@{self.host}, in {self.held}@{self.held_on}, {self.seconds} s"


# With the exit code behind a long cut: the host is unreachable (4), whether or not something was
# begun there; a job is waited for, and looked for where the answer to its start was lost (0).
PLACES = (
    ("room", "gamma", "room", "gamma", 4),
    ("mark", "gamma", "mark", "gamma", 4),
    ("file", "alpha", "file", "alpha", 4),
    ("start", "beta", "work", "beta", 0),
    ("work", "beta", "work", "beta", 0),
    ("work", "beta", "join", "gamma", 4),
    ("join", "gamma", "join", "gamma", 4),
    ("purge", "alpha", "purge", "alpha", 4),
)
CASES = [
    Case(held, held_on, step, host, seconds, code if seconds == LONG else 0)
    for held, held_on, step, host, code in PLACES
    for seconds in (SHORT, LONG)
]


@pytest.fixture
def fleets(namespaced: None, tmp_path: Path) -> Iterator[list[Fleet]]:
    """One for each case."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(make_fleet(tmp_path / f"fleet-{number}"))
            for number in range(len(CASES))
        ]


def test_a_cut_link_leaves_a_run_that_can_be_completed(
    fleets: list[Fleet], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = time.monotonic()
    reference = World.make(fleets[0], tmp_path / "reference")
    code, said = finished(
        runbook(fleets[0], reference, *reference.words("run", "-y", *planned(fleets[0], reference)))
    )
    assert code == 0, said
    wanted = reference.state()

    def attempt(number: int) -> tuple[str, str]:
        """What was seen, and what was wrong with it (empty: nothing)."""
        try:
            return cut_and_complete(
                fleets[number],
                World.make(fleets[number], tmp_path / f"cut-{number}"),
                CASES[number],
                wanted,
            ), ""
        except Exception as error:
            return "wrong", f"{CASES[number]} (cut-{number}): {error}"

    with ThreadPoolExecutor(len(CASES)) as pool:
        ended = list(pool.map(attempt, range(len(CASES))))
    with capsys.disabled():
        print(f"\nlink matrix: {len(ended)} cuts, {time.monotonic() - begun:.0f} s")
        for case, (seen, _) in zip(CASES, ended, strict=True):
            print(f"  {case}: {seen}")
    wrong = [problem for _, problem in ended if problem]
    assert not wrong, "\n\n".join(wrong)


def planned(fleet: Fleet, world: World) -> list[str]:
    code, said = finished(runbook(fleet, world, *world.words("plan", "--json")))
    assert code == 0, said
    return approvals_of(said)


def cut_and_complete(fleet: Fleet, world: World, case: Case, wanted: dict[str, str]) -> str:
    """Unplug the host while it acts, plug it in, run again; a line of what was seen."""
    approvals = planned(fleet, world)
    words = world.words("run", "-y", *approvals)
    world.hold(case.held, case.held_on)
    process = runbook(fleet, world, *words)
    try:
        while not is_the_moment(world, case):
            assert process.poll() is None, f"ended before its step: {finished(process)[1]}"
            time.sleep(0.05)
        begun = time.monotonic()
        fleet.cut(case.host)
        world.let_go(case.held, case.held_on)
        ended = 0.0
        while time.monotonic() < begun + case.seconds:
            time.sleep(0.1)
            if not ended and process.poll() is not None:
                ended = time.monotonic() - begun
        fleet.mend(case.host)
        code, said = finished(process)
        ended = ended or time.monotonic() - begun
    finally:
        process.kill()
    assert code == case.code, f"exit {code} after {ended:.0f} s, want {case.code}\n{said}"
    again, resaid = finished(runbook(fleet, world, *words))
    assert again == 0, f"the re-run: exit {again}\n{resaid}\nbefore:\n{said}"
    assert world.state() == wanted, resaid
    # The host alone brought to its end what it had begun, so nothing is done twice.
    assert world.acts() == world.acts("end") == dict.fromkeys(ACTS, 1), resaid
    return f"the run ended with exit {code}, {ended:.0f} s after the cut; {reason(said, case)}"


def is_the_moment(world: World, case: Case) -> bool:
    """Whether what is held has begun; a job also for the controller."""
    if not world.held(case.held, case.held_on):
        return False
    started = ("command", case.held, case.held_on)
    return case.held != "work" or started in [
        (record["event"], record.get("step"), record.get("host")) for record in world.records()
    ]


def reason(said: str, case: Case) -> str:
    """The line of the recap about the step that was hit."""
    lines = [line.split() for line in said.partition("Recap")[2].splitlines()]
    found = [" ".join(words[2:]) for words in lines if words[:2] == [case.step, case.host]]
    return found[0] if found else "no outcome in the recap"
