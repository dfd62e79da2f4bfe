"""Transient steps: made for a dependent, never touched under its job, released after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.model.runbook import Act
from runbooks.engine.plan.scope import Scope
from tests.engine.run.test_session import results, run, session_of
from tests.engine.scripted import DENIED, SET, WORK, World, flag, setting, step


def serve(**more):
    return setting(
        "serve", transient=True, release=Act(SET, {"name": "serve", "to": "stopped"}), **more
    )


def extract(**more):
    more.setdefault("needs", ["serve"])
    return step("extract", do=(WORK, {"name": "extract"}), **more)


def acts(world: World) -> list[tuple[str, ...]]:
    return [argv for _, argv in world.log]


def test_a_release_waits_for_a_job_that_lives(tmp_path: Path) -> None:
    """The extraction's host went away: its outcome is there, its job lives."""
    world = World({"one": {"serve": "on"}, "two": {"job-extract": "1"}}, down={"two"})
    report = run(world, serve(), extract(hosts=["two"]), tmp_path=tmp_path)
    assert report.outcomes["extract", "two"].result.value in ("unreachable", "skipped")
    assert world.flags["one"]["serve"] == "on"
    assert acts(world) == []


def test_a_gate_among_the_dependents_does_not_lift_the_protection(tmp_path: Path) -> None:
    world = World({"one": {"job-extract": "1", "serve": "slow", "ready": "yes"}})
    gate = step("ready", needs=["serve"], requires=(flag("ready", "yes"),))
    report = run(world, serve(), gate, extract(needs=["ready"]), tmp_path=tmp_path)
    assert results(report)["serve"] == "left as it is"
    assert ("set", "serve", "on") not in acts(world)


def test_a_job_of_which_nothing_is_known_stops_the_transient_step(tmp_path: Path) -> None:
    world = World({"one": {"serve": "off"}, "two": {}}, down={"two"})
    report = run(world, serve(), extract(hosts=["two"]), tmp_path=tmp_path)
    assert results(report) == {"serve": "unknown", "extract": "skipped"}
    assert acts(world) == []


def test_an_unknown_ensures_of_a_dependent_starts_no_server(tmp_path: Path) -> None:
    world = World({"one": {"extract": DENIED}})
    dependent = setting("extract", needs=["serve"])
    report = run(world, serve(), dependent, tmp_path=tmp_path)
    assert results(report) == {"serve": "unknown", "extract": "skipped"}
    assert (acts(world), report.code) == ([], ExitCode.FAILED)


def test_after_an_attached_job_the_server_is_released(tmp_path: Path) -> None:
    world = World({"one": {"job-extract": "1", "serve": "on"}})
    report = run(world, serve(), extract(), tmp_path=tmp_path)
    assert results(report) == {
        "serve": "left as it is",
        "extract": "ran",
        "serve:release": "released",
    }
    assert world.flags["one"]["serve"] == "stopped"


def test_what_an_earlier_run_left_is_released_by_the_next(tmp_path: Path) -> None:
    world = World({"one": {"serve": "on", "extract": "done"}})
    plan = session_of(world, serve(), extract(), tmp_path=tmp_path).plan()
    assert [row.status.value for row in plan.rows] == ["will release", "satisfied"]
    report = run(world, serve(), extract(), tmp_path=tmp_path)
    assert results(report) == {"serve": "released", "extract": "satisfied"}
    assert acts(world) == [("set", "serve", "stopped")]
    again = run(world, serve(), extract(), tmp_path=tmp_path)
    assert results(again) == {"serve": "not wanted", "extract": "satisfied"}


def test_a_server_that_did_not_come_up_is_released_too(tmp_path: Path) -> None:
    world = World({"one": {}}, deaf={("set", "serve", "on")})
    report = run(world, serve(), extract(), tmp_path=tmp_path)
    assert results(report) == {"serve": "failed", "extract": "skipped", "serve:release": "released"}


def test_nothing_outside_the_limit_is_released(tmp_path: Path) -> None:
    world = World({"one": {"serve": "on"}, "two": {}})
    report = run(
        world,
        serve(),
        extract(hosts=["two"]),
        tmp_path=tmp_path,
        scope=Scope(limit=frozenset({"two"})),
    )
    assert results(report) == {"serve": "satisfied", "extract": "ran"}
    assert world.flags["one"]["serve"] == "on"


def test_a_host_that_is_down_at_the_release_is_an_outcome(tmp_path: Path) -> None:
    world = World({"one": {}, "two": {}})
    world.before = lambda host, argv: argv[0] == "finish" and world.down.add("one")
    report = run(world, serve(), extract(hosts=["two"]), tmp_path=tmp_path)
    assert results(report) == {"serve": "ran", "extract": "ran", "serve:release": "unreachable"}
    assert report.code is ExitCode.UNREACHABLE


def test_a_release_that_changes_nothing_is_a_failure(tmp_path: Path) -> None:
    world = World({"one": {}}, deaf={("set", "serve", "stopped")})
    report = run(world, serve(), extract(), tmp_path=tmp_path)
    assert results(report)["serve:release"] == "failed"
    assert "it still holds" in report.outcomes["serve:release", "one"].reason


def test_transient_steps_are_released_in_the_opposite_order(tmp_path: Path) -> None:
    world = World({"one": {}})
    first = serve()
    second = setting(
        "tunnel",
        needs=["serve"],
        transient=True,
        release=Act(SET, {"name": "tunnel", "to": "closed"}),
    )
    run(world, first, second, extract(needs=["tunnel"]), tmp_path=tmp_path)
    assert acts(world)[-2:] == [("set", "tunnel", "closed"), ("set", "serve", "stopped")]


def test_after_a_stop_nothing_is_released(tmp_path: Path) -> None:
    world = World({"one": {}})
    session = session_of(world, serve(), extract(), tmp_path=tmp_path)
    world.before = lambda host, argv: argv[0] == "finish" and session.stop.set()
    report = session.run()
    assert "serve:release" not in results(report)
    assert world.flags["one"]["serve"] == "on"


@pytest.mark.parametrize("job", [None, "1"])
def test_plan_and_run_agree_on_a_live_job(tmp_path: Path, job: str | None) -> None:
    flags = {"job-extract": job} if job else {}
    plan = session_of(World({"one": flags}), serve(), extract(), tmp_path=tmp_path).plan()
    expected = ["not wanted", "will attach"] if job else ["will run", "may run"]
    assert [row.status.value for row in plan.rows] == expected
