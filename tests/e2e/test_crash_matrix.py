"""The controller is killed before and after every record of its journal; the re-run completes."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from runbooks.engine.run.journal import read_journal
from tests.e2e.crashing import Boundary, Launcher, boundaries_of, launcher
from tests.e2e.fleet import Fleet
from tests.e2e.matrix import ACTS, Unit, World, approvals_of

pytestmark = pytest.mark.e2e

# Worlds side by side: each waits now and then, for its job and for the hosts.
_ABREAST = 2 * (os.cpu_count() or 2)


@pytest.fixture(scope="module")
def launchers(fleet: Fleet) -> Iterator[queue.Queue[Launcher]]:
    """Free launchers; who takes one puts it back."""
    free: queue.Queue[Launcher] = queue.Queue()
    with ExitStack() as stack:
        for _ in range(_ABREAST):
            free.put(stack.enter_context(launcher(fleet.controller)))
        yield free


@dataclass
class Entry:
    """One world, and the launcher that runs its controllers."""

    world: World
    launcher: Launcher

    def runbook(self, *words: str, boundary: Boundary | None = None) -> tuple[int, str]:
        code, said = self.launcher.run(
            words, cwd=self.world.folder, env=self.world.environment(), boundary=boundary
        )
        assert "Traceback" not in said, said
        return code, said

    def approvals(self) -> list[str]:
        """What the plan says that a run would need; before the first run."""
        code, said = self.runbook(*self.world.words("plan", "--json"))
        assert code == 0, said
        return approvals_of(said)

    def run(self, *options: str, boundary: Boundary | None = None) -> tuple[int, str]:
        return self.runbook(*self.world.words("run", "-y", *options), boundary=boundary)

    def verify(self) -> None:
        """The chains of all journals hold, also of the one that the kill cut off."""
        code, said = self.runbook("history", "--verify")
        assert code == 0, said


def test_every_kill_is_followed_by_a_run_that_completes(
    fleet: Fleet,
    launchers: queue.Queue[Launcher],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun = time.monotonic()
    one = launchers.get()
    reference = Entry(World.make(fleet, tmp_path / "reference"), one)
    code, said = reference.run(*reference.approvals())
    launchers.put(one)
    assert code == 0, said
    assert reference.world.acts() == reference.world.acts("end") == dict.fromkeys(ACTS, 1)
    wanted = reference.world.state()
    [journal] = reference.world.journals
    boundaries = list(boundaries_of(read_journal(journal / "journal.jsonl")))
    assert {boundary.event for boundary in boundaries} >= {
        *("run", "facts", "intent", "command", "outcome", "end")
    }

    def attempt(number: int) -> tuple[str, int]:
        """What was wrong behind one kill (empty: nothing), and how many acts came twice."""
        free = launchers.get()
        try:
            entry = Entry(World.make(fleet, tmp_path / f"kill-{number}"), free)
            return "", kill_and_complete(entry, boundaries[number], wanted)
        except Exception as error:
            return f"{boundaries[number]} (kill-{number}): {error}", 0
        finally:
            launchers.put(free)

    with ThreadPoolExecutor(_ABREAST) as pool:
        ended = list(pool.map(attempt, range(len(boundaries))))
    wrong = [problem for problem, _ in ended if problem]
    with capsys.disabled():
        print(
            f"\ncrash matrix: {len(ended)} kills, {len(wrong)} wrong, "
            f"{sum(twice for _, twice in ended)} acts under way at a kill done again, "
            f"{time.monotonic() - begun:.0f} s"
        )
    assert not wrong, "\n\n".join(wrong)


def kill_and_complete(entry: Entry, boundary: Boundary, wanted: dict[str, str]) -> int:
    """Kill at the boundary, run to the end, run once more; the number of acts done again."""
    world = entry.world
    # A run that ends before the delete needs no approval, and prints its plan itself.
    early = boundary.step != "purge" and boundary.event != "end"
    approvals = [] if early else entry.approvals()
    code, said = entry.run("--json", *approvals, boundary=boundary)
    assert code == -signal.SIGKILL, f"not killed there: exit {code}\n{said}"
    approvals = approvals or approvals_of(said)
    complete = world.acts("end")
    [killed] = world.journals
    under_way = open_units(killed)

    code, said = entry.run(*approvals)
    assert code == 0, f"the re-run: exit {code}\n{said}"
    assert world.state() == wanted, said
    begun = world.acts()
    assert begun.keys() == ACTS, said
    again = {unit for unit, times in begun.items() if times > 1}
    assert ("work", "beta") not in again, f"the job began {begun['work', 'beta']} times\n{said}"
    for unit in again:
        assert begun[unit] == 2, f"{unit} was done {begun[unit]} times\n{said}"
        assert unit in under_way and not complete[unit], (
            f"{unit} was done again, though it was complete at the kill\n{said}"
        )

    code, said = entry.run(*approvals)
    assert code == 0 and "\n0 changed steps" in said, f"the third run: exit {code}\n{said}"
    assert world.state() == wanted and world.acts() == begun, said
    assert len(world.journals) == 3
    entry.verify()
    return len(again)


def open_units(journal: Path) -> set[Unit]:
    """Steps with an intent and no outcome."""
    found: set[Unit] = set()
    for record in read_journal(journal / "journal.jsonl"):
        unit = (record.get("step", ""), record.get("host", ""))
        if record["event"] == "intent":
            found.add(unit)
        elif record["event"] == "outcome":
            found.discard(unit)
    return found
