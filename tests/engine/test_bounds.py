"""Checkpoints on a host, cleared away once there are many, by real shells."""

from __future__ import annotations

from runbooks.engine.bounds import compact_checkpoints
from runbooks.engine.lock.keeper import Keeper
from runbooks.engine.model.host import Host, Origin
from runbooks.engine.plan.checkpoint import append_script, checkpoint_line, parse_checkpoints
from runbooks.engine.redact import Redactor
from runbooks.engine.run.change import Changer
from runbooks.engine.run.mirror import Mirror
from tests.engine.lock.shell_fleet import ShellFleet


def changer_of(fleet: ShellFleet) -> Changer:
    keeper = Keeper(
        fleet,
        Origin("run", "alice", "here"),
        "book",
        {"one": ("one",)},
        lambda hosts: {},
        lambda *event: None,
    )
    keeper.take_all(())
    return Changer(fleet, keeper, Mirror("run", "book", ("one",)))


def line(step: str, at: float) -> str:
    return checkpoint_line(step, "one", (), run="run 'x'", at=at, redactor=Redactor())


def test_the_newest_checkpoint_of_each_step_stays(tmp_path):
    fleet = ShellFleet(tmp_path, {"one": Host("one")})
    lines = [line(f"step{number % 7}", number) for number in range(6000)]
    fleet._run("one", append_script("book", lines))
    file = fleet.state("one") / "checkpoints" / "book.jsonl"
    before, _ = parse_checkpoints(file.read_text())
    compact_checkpoints(changer_of(fleet), "book")
    after, problems = parse_checkpoints(file.read_text())
    assert len(file.read_text().splitlines()) == 7
    assert (after, problems) == (before, [])
    assert not list(file.parent.glob("*.new"))


def test_a_few_checkpoints_are_left_alone(tmp_path):
    fleet = ShellFleet(tmp_path, {"one": Host("one")})
    fleet._run("one", append_script("book", [line("a", 1), line("a", 2)]))
    file = fleet.state("one") / "checkpoints" / "book.jsonl"
    before = file.read_bytes()
    compact_checkpoints(changer_of(fleet), "book")
    assert file.read_bytes() == before
