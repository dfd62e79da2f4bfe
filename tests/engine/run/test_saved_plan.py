"""A run of a saved plan, and a run of some steps: what is refused, and that nothing acted."""

from __future__ import annotations

from pathlib import Path

import pytest

from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from runbooks.engine.plan.saved import SavedPlan, load_saved, save_plan, saved_plan
from runbooks.engine.plan.scope import narrowed, scope_of
from runbooks.engine.plan.seal import project_key
from runbooks.engine.run.event import Bus
from runbooks.engine.run.outcome import Result
from runbooks.engine.session import Options, Session
from tests.engine.plan.recorded import Recorded, described, making, thing
from tests.engine.plan.test_drift import changes
from tests.engine.scripted import SET, WORK, World, flag, registry, runbook, setting, step

STEPS = (
    making("old", thing("old", is_="directory")),
    setting("a", needs=["old"]),
    setting("b", needs=["a"]),
)


def world_of() -> Recorded:
    return Recorded({"one": {"old": described(**{"is": "directory", "files": 18204})}})


def session_of(world: World, *steps, folder: Path, saved: SavedPlan | None = None, **chosen):
    book = runbook(*(steps or STEPS))
    scope = saved.scope if saved is not None else scope_of(book, **chosen)
    options = Options(project=folder, runs=folder / "runs", scope=scope, saved=saved)
    return Session(
        narrowed(book, scope),
        registry(),
        world,
        Bus([]),
        options,
        now=lambda: 1000.0,
        pause=lambda seconds: None,
    )


def saved_of(world: World, *steps, folder: Path, **chosen) -> SavedPlan:
    plan = session_of(world, *steps, folder=folder, **chosen).plan()
    key = project_key(folder / "runs")
    save_plan(folder / "plan.json", saved_plan(plan, world.hosts, key, Bus([]).redactor), key)
    return load_saved(folder / "plan.json", folder / "runs")


def refused(world: World, *steps, folder: Path, saved: SavedPlan) -> RunbookError:
    """The error of a run that must not have acted, and that has given its locks up."""
    log = list(world.log)
    with pytest.raises(RunbookError) as caught:
        session_of(world, *steps, folder=folder, saved=saved).run()
    assert world.log == log
    labels = [label for _, label in world.locking]
    assert labels and "release" in labels[-1]
    return caught.value


def test_a_plan_that_fits_runs_once(tmp_path: Path) -> None:
    world = world_of()
    saved = saved_of(world, folder=tmp_path)
    report = session_of(world, folder=tmp_path, saved=saved).run()
    assert [outcome.result for outcome in report.outcomes.values()] == [
        Result.SATISFIED,
        Result.RAN,
        Result.RAN,
    ]
    error = refused(world, folder=tmp_path, saved=saved)
    assert error.code is ExitCode.STALE
    assert f"plan {saved.id} was used by run {report.run}" in error.diagnostics[0].message


def test_a_world_that_moved_is_refused_and_the_plan_stays_unused(tmp_path: Path) -> None:
    """terraform#28693: a refused stale plan left its lock."""
    world = world_of()
    before = dict(world.flags["one"])
    saved = saved_of(world, folder=tmp_path)
    world.flags["one"]["old"] = described(**{"is": "directory", "files": 18205})
    for _ in range(2):
        error = refused(world, folder=tmp_path, saved=saved)
        assert error.code is ExitCode.STALE
        assert error.diagnostics[0].message == "stale: thing old on one: files 18,204 → 18,205"
    # Back to what it was, the plan fits again.
    world.flags["one"] = before
    assert session_of(world, folder=tmp_path, saved=saved).run().code is ExitCode.DONE


def test_a_saved_plan_keeps_its_scope(tmp_path: Path) -> None:
    world = world_of()
    saved = saved_of(world, folder=tmp_path, only=["a"])
    report = session_of(world, folder=tmp_path, saved=saved).run()
    assert [argv[1] for _, argv in world.log] == ["a"]
    assert set(report.outcomes) == {("old", "one"), ("a", "one")}


def test_a_run_from_a_step_refuses_where_what_is_upstream_does_not_hold(tmp_path: Path) -> None:
    """ansible#86268."""
    world = World({"one": {"old": "a directory"}})
    purge = step(
        "purge-old", do=(SET, {"name": "old", "to": "gone"}), ensures=(flag("old", "gone"),)
    )
    steps = (purge, setting("extract", needs=["purge-old"]))
    report = session_of(world, *steps, folder=tmp_path, starts=["extract"]).run()
    assert report.code is ExitCode.PRECONDITION
    assert report.outcomes["purge-old", "one"].reason == (
        "purge-old is not satisfied: flag old: a directory, want gone;"
        " not selected by --from extract"
    )
    assert report.outcomes["extract", "one"].result is Result.SKIPPED
    assert world.log == []
    world.flags["one"]["old"] = "gone"
    report = session_of(world, *steps, folder=tmp_path, starts=["extract"]).run()
    assert report.code is ExitCode.DONE
    assert [argv for _, argv in world.log] == [("set", "extract", "on")]


def test_only_runs_the_step_and_nothing_that_waits_for_it(tmp_path: Path) -> None:
    world = world_of()
    report = session_of(world, folder=tmp_path, only=["a"]).run()
    assert [argv[1] for _, argv in world.log] == ["a"]
    assert ("b", "one") not in report.outcomes


def test_a_transient_step_is_left_under_a_job_that_only_leaves_out(tmp_path: Path) -> None:
    serve = setting("serve", transient=True, release=setting("x", flag="serve", to="off").do)
    extract = step("extract", needs=["serve"], do=(WORK, {"name": "extract"}))
    busy = World({"one": {"job-extract": "1"}})
    report = session_of(busy, serve, extract, folder=tmp_path, only=["serve"]).run()
    assert report.outcomes["serve", "one"].result is Result.LEFT
    assert busy.log == []


def test_the_plan_and_the_run_of_a_scope_agree(tmp_path: Path) -> None:
    for chosen in ({"only": ["b"]}, {"starts": ["a"]}, {"only": ["old", "b"]}):
        world = world_of()
        session = session_of(world, folder=tmp_path, **chosen)
        plan = session.plan()
        code = session.run().code
        if plan.code is not ExitCode.DONE:
            assert code is plan.code


class Writing(Recorded):
    """Keeps the checkpoints that travel with the locks and the changes."""

    def perform(self, host, action, fence=""):
        for text in (fence, action.script or ""):
            for line in text.split("'"):
                if line.startswith('{"v": 1, "step"'):
                    self.records[host] = f"{self.records.get(host, '')}{line}\n"
        return super().perform(host, action, fence)


def test_a_run_leaves_checkpoints_from_which_nothing_has_drifted(tmp_path: Path) -> None:
    world = Writing(world_of().flags)
    session_of(world, folder=tmp_path).run()
    assert changes(world, *STEPS) == []
    world.flags["one"]["a"] = "off"
    assert changes(world, *STEPS) == [("flag a", "is", "on → off")]


def test_a_step_that_failed_is_not_taken_for_somebody_elses_doing(tmp_path: Path) -> None:
    world = Writing(world_of().flags)
    session_of(world, folder=tmp_path).run()
    other = (*STEPS[:1], setting("a", to="more", needs=["old"]))
    world.deaf.add(("set", "a", "more"))
    world.before = lambda host, argv: world.flags[host].update(a="half")
    session_of(world, *other, folder=tmp_path).run()
    assert changes(world, *STEPS) == []
