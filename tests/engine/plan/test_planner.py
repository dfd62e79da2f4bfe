"""What a plan says of each row, and that it asks without touching."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runbooks.engine.fleet import ReadOnlyError
from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.model.operation import Command
from runbooks.engine.model.runbook import Estimate
from runbooks.engine.plan.plan import Status
from runbooks.engine.plan.planner import make_plan
from runbooks.engine.plan.survey import Survey
from tests.engine.scripted import (
    DENIED,
    DROP,
    SET,
    WORK,
    World,
    flag,
    registry,
    runbook,
    setting,
    step,
)


def plan_of(world: World, *steps, limit=None):
    return make_plan(Survey(runbook(*steps), registry(), world, Path("/project")), limit=limit)


def statuses(plan) -> dict[str, str]:
    return {row.step.id: row.status.value for row in plan.rows}


def test_a_step_whose_ensures_hold_is_satisfied() -> None:
    plan = plan_of(World({"one": {"a": "on"}}), setting("a"))
    assert statuses(plan) == {"a": "satisfied"}
    assert plan.rows[0].reason == "flag a: on"
    assert (plan.changes, plan.code) == (0, ExitCode.DONE)


def test_a_step_that_will_run_says_what_was_read_and_wanted() -> None:
    plan = plan_of(World({"one": {}}), setting("a"))
    assert plan.rows[0].status is Status.WILL_RUN
    assert plan.rows[0].reason == "flag a: absent, want on"
    assert plan.changes == 1


def test_a_gate_that_depends_on_an_unrun_step_is_neither_ok_nor_blocked() -> None:
    """ansible#8753: a skipped command registered as success."""
    gate = step("b", needs=["a"], requires=(flag("a", "on"),))
    plan = plan_of(World({"one": {}}), setting("a"), gate)
    row = plan.rows[1]
    assert (row.status, row.waits) == (Status.MAY_RUN, ("a",))
    assert plan.code is ExitCode.DONE


def test_a_satisfied_step_below_one_that_will_run_may_run() -> None:
    plan = plan_of(World({"one": {"b": "on"}}), setting("a"), setting("b", needs=["a"]))
    assert statuses(plan) == {"a": "will run", "b": "may run"}


def test_a_blocked_gate_leaves_satisfied_steps_satisfied() -> None:
    gate = step("gate", requires=(flag("x", "on"),))
    world = World({"one": {"a": "on"}})
    plan = plan_of(world, gate, setting("a", needs=["gate"]), setting("b", needs=["gate"]))
    assert statuses(plan) == {"gate": "blocked", "a": "satisfied", "b": "may run"}
    assert plan.code is ExitCode.PRECONDITION


def test_requires_that_fail_block_and_say_so() -> None:
    plan = plan_of(World({"one": {}}), setting("a", requires=(flag("x", "on"),)))
    assert plan.rows[0].status is Status.BLOCKED
    assert plan.rows[0].reason == "requires flag x: absent, want on"


@pytest.mark.parametrize("text", ["absent", "on"])
def test_a_denied_probe_is_unknown_and_never_absent(text: str) -> None:
    """pyinfra reads a forbidden probe as "nothing there"."""
    plan = plan_of(World({"one": {"a": DENIED}}), setting("a", to=text))
    assert plan.rows[0].status is Status.UNKNOWN
    assert "permission denied" in plan.rows[0].reason
    assert plan.code is ExitCode.FAILED
    assert plan.changes == 0


def test_a_host_that_is_down_is_unreachable_and_another_goes_on() -> None:
    world = World({"one": {}, "two": {}}, down={"two"})
    plan = plan_of(world, setting("a", hosts=["one"]), setting("b", hosts=["two"]))
    assert statuses(plan) == {"a": "will run", "b": "unreachable"}
    assert plan.down == {"two": "no route to host"}
    assert plan.code is ExitCode.UNREACHABLE


def test_a_down_host_that_nobody_names_costs_nothing() -> None:
    plan = plan_of(World({"one": {"a": "on"}, "two": {}}, down={"two"}), setting("a"))
    assert plan.code is ExitCode.DONE


def test_a_check_may_read_another_host() -> None:
    world = World({"one": {"x": "off"}, "two": {"x": "on"}})
    gate = step("gate", requires=(flag("x", "on", host="two"),))
    assert statuses(plan_of(world, gate)) == {"gate": "holds"}


def test_a_transient_step_is_wanted_only_while_a_dependent_has_to_run() -> None:
    def steps():
        return (
            setting("serve", transient=True),
            setting("extract", needs=["serve"]),
        )

    assert statuses(plan_of(World({"one": {}}), *steps())) == {
        "serve": "will run",
        "extract": "may run",
    }
    assert statuses(plan_of(World({"one": {"extract": "on"}}), *steps())) == {
        "serve": "not wanted",
        "extract": "satisfied",
    }


def test_a_transient_step_is_wanted_when_something_above_it_will_run() -> None:
    world = World({"one": {"extract": "on"}})
    plan = plan_of(
        world,
        setting("merge"),
        setting("serve", transient=True, needs=["merge"]),
        setting("extract", needs=["serve"]),
    )
    assert statuses(plan) == {"merge": "will run", "serve": "may run", "extract": "may run"}


def test_a_transient_step_that_nobody_needs_is_always_wanted() -> None:
    assert statuses(plan_of(World({"one": {}}), setting("serve", transient=True))) == {
        "serve": "will run"
    }


def test_a_live_job_is_attached_to() -> None:
    world = World({"one": {"job-w": "1"}})
    plan = plan_of(world, step("w", do=(WORK, {"name": "w"})))
    assert statuses(plan) == {"w": "will attach"}


def test_an_irreversible_step_prints_its_digest_and_what_it_measured() -> None:
    world = World({"one": {"old": "x" * 40}})
    drop = step("purge", do=(DROP, {"name": "old"}), ensures=(flag("old", "gone"),))
    row = plan_of(world, drop).rows[0]
    assert row.approval is not None and row.approval.startswith("40-")
    assert row.preview is not None and row.preview.frees == {"data": 40}


def test_the_plan_reads_every_fact_in_one_round() -> None:
    world = World({"one": {}, "two": {}})
    steps = [setting(f"s{i}", hosts=["one", "two"]) for i in range(20)]
    plan_of(world, *steps)
    # One round for the facts, one for the previews.
    assert world.rounds == 2


def test_equal_questions_are_asked_once() -> None:
    world = World({"one": {"x": "on"}})
    gates = [step(f"g{i}", requires=(flag("x", "on"),)) for i in range(5)]
    plan_of(world, *gates)
    assert world.asked == [("one", "flag x"), ("one", "checkpoints test")]


def test_while_planning_a_change_raises() -> None:
    world = World({"one": {}})

    class Sneaky(type(SET)):
        name = "sneaky"

        def preview(self, args, context):
            world.perform("one", Command(argv=("set", "a", "on")))
            yield from super().preview(args, context)

    act = replace(setting("a").do, operation=Sneaky())
    plan = plan_of(world, replace(setting("a"), do=act))
    assert world.log == []
    assert "ReadOnlyError" in plan.rows[0].preview_problem
    assert world.reading is False
    assert ReadOnlyError.__name__ in plan.rows[0].preview_problem


def test_hosts_outside_the_limit_are_not_acted_on() -> None:
    world = World({"one": {}, "two": {"a": "on"}})
    plan = plan_of(world, setting("a", hosts=["one", "two"]), limit={"two"})
    assert [row.status.value for row in plan.rows] == ["blocked", "satisfied"]
    assert "outside --limit" in plan.rows[0].reason


def test_estimates_stand_in_the_row() -> None:
    plan = plan_of(World({"one": {}}), setting("a", estimate=Estimate(time=60)))
    assert plan.rows[0].estimate == Estimate(time=60)
