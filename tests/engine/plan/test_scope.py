"""`--limit`, `--from` and `--only`: what may act; everything else is still judged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from runbooks.engine.plan.plan import Plan, Status
from runbooks.engine.plan.planner import make_plan
from runbooks.engine.plan.scope import EVERYTHING, Scope, narrowed, scope_of
from runbooks.engine.plan.survey import Survey
from runbooks.engine.view.json_lines import plan_record
from runbooks.engine.view.plan import plan_lines
from tests.engine.scripted import (
    DENIED,
    DROP,
    WORK,
    World,
    flag,
    registry,
    runbook,
    setting,
    step,
)

CHAIN = (
    setting("merge"),
    step("purge-old", needs=["merge"], do=(DROP, {"name": "old"}), ensures=(flag("old", "gone"),)),
    setting("serve", needs=["purge-old"], transient=True, release=None),
    setting("extract", needs=["serve"]),
    setting("train", needs=["extract"]),
)


def plan_of(world: World, *steps, **options) -> Plan:
    book = runbook(*steps)
    scope = scope_of(book, **options)
    survey = Survey(narrowed(book, scope), registry(), world, Path("/project"), scope=scope)
    return make_plan(survey)


def statuses(plan: Plan) -> dict[str, str]:
    return {row.step.id: row.status.value for row in plan.rows}


def test_from_selects_a_step_and_everything_that_waits_for_it() -> None:
    scope = scope_of(runbook(*CHAIN), starts=["extract"])
    assert scope.selected == {"extract", "train"}
    assert scope.forbids("train", "one") is None
    assert scope.forbids("merge", "one") == "not selected by --from extract"


def test_only_selects_a_step_alone_and_both_may_be_repeated() -> None:
    scope = scope_of(runbook(*CHAIN), starts=["train"], only=["merge", "serve"])
    assert scope.selected == {"merge", "serve", "train"}
    reason = "not selected by --from train, --only merge, --only serve"
    assert scope.forbids("extract", "one") == reason
    assert str(scope) == "--from train --only merge --only serve"


def test_hosts_and_steps_are_one_scope() -> None:
    scope = scope_of(runbook(*CHAIN), limit={"one"}, only=["merge"])
    assert scope.forbids("merge", "one") is None
    assert scope.forbids("merge", "two") == "outside --limit"
    assert str(scope) == "--limit one --only merge"
    assert EVERYTHING.forbids("anything", "anywhere") is None
    assert str(EVERYTHING) == "everything"


@pytest.mark.parametrize(("option", "where"), [("starts", "--from"), ("only", "--only")])
def test_an_unknown_step_is_an_error_with_the_likely_one(option: str, where: str) -> None:
    with pytest.raises(RunbookError) as caught:
        scope_of(runbook(*CHAIN), **{option: ["extrct"]})
    (fault,) = caught.value.diagnostics
    assert fault.code is ExitCode.USAGE
    assert (fault.where, fault.hint) == (where, "did you mean 'extract'?")
    assert fault.message == "'extrct' is no step of test"


def test_the_runbook_keeps_what_the_selection_waits_for_and_its_digest() -> None:
    book = runbook(*CHAIN, setting("other"))
    small = narrowed(book, scope_of(book, only=["serve"]))
    assert list(small.steps) == list(small.order) == ["merge", "purge-old", "serve"]
    assert small.digest == book.digest
    assert small.whole is book
    assert small.narrowed({"merge"}).whole is book
    assert narrowed(book, EVERYTHING) is book


def test_what_is_upstream_is_evaluated_and_refuses_where_it_does_not_hold() -> None:
    """ansible#86268: --start-at-task skips the facts that later tasks need."""
    world = World({"one": {"merge": "on", "old": "a directory", "serve": "on"}})
    plan = plan_of(world, *CHAIN, starts=["extract"])
    purge = plan.row("purge-old", "one")
    assert purge.status is Status.BLOCKED
    assert purge.reason == (
        "purge-old is not satisfied: flag old: a directory, want gone;"
        " not selected by --from extract"
    )
    assert plan.code is ExitCode.PRECONDITION
    assert statuses(plan) == {
        "merge": "satisfied",
        "purge-old": "blocked",
        "serve": "may run",
        "extract": "may run",
        "train": "may run",
    }
    # Of these only the selected ones would ever act.
    assert [row.step.id for row in plan.rows if row.acts] == ["extract", "train"]


def test_what_is_upstream_and_holds_lets_the_selection_run() -> None:
    world = World({"one": {"merge": "on", "old": "gone", "serve": "on"}})
    plan = plan_of(world, *CHAIN, starts=["extract"])
    assert statuses(plan) == {
        "merge": "satisfied",
        "purge-old": "satisfied",
        "serve": "satisfied",
        "extract": "will run",
        "train": "may run",
    }
    assert plan.code is ExitCode.DONE


def test_every_unsatisfied_step_upstream_is_named_at_once() -> None:
    plan = plan_of(World({"one": {"old": "x"}}), *CHAIN, only=["extract"])
    assert statuses(plan) == {
        "merge": "blocked",
        "purge-old": "blocked",
        "serve": "blocked",
        "extract": "may run",
    }
    assert plan.changes == 1


def test_unknown_upstream_stays_unknown() -> None:
    world = World({"one": {"merge": DENIED, "old": "gone", "serve": "on"}})
    plan = plan_of(world, *CHAIN, starts=["extract"])
    assert plan.row("merge", "one").status is Status.UNKNOWN
    assert plan.code is ExitCode.FAILED


def test_a_gate_upstream_is_judged_as_ever() -> None:
    gate = step("gate", requires=(flag("x", "on"),))
    plan = plan_of(World({"one": {}}), gate, setting("a", needs=["gate"]), only=["a"])
    assert statuses(plan) == {"gate": "blocked", "a": "may run"}
    assert plan.code is ExitCode.PRECONDITION


def test_between_two_selected_steps_nothing_is_foretold() -> None:
    """What the first one does may make it hold, so it is not called blocked."""
    steps = (setting("a"), setting("b", needs=["a"]), setting("c", needs=["b"]))
    plan = plan_of(World({"one": {}}), *steps, only=["a", "c"])
    assert statuses(plan) == {"a": "will run", "b": "may run", "c": "may run"}
    row = plan.row("b", "one")
    assert (row.acts, row.waits) == (False, ("a",))
    text = "\n".join(line.plain for line in plan_lines(plan))
    assert "does not act itself: not selected by --only a, --only c" in text


def test_a_release_upstream_lets_nobody_else_act() -> None:
    """A release acts, but nothing waits for it."""
    serve = setting(
        "serve",
        transient=True,
        release=setting("x", flag="serve", to="off").do,
    )
    later = setting("later", needs=["serve"])
    world = World({"one": {"serve": "on", "later": "on"}, "two": {}})
    far = setting("far", needs=["serve"], hosts=["two"])
    plan = plan_of(world, serve, later, far, limit={"one"})
    assert plan.row("far", "two").status is Status.BLOCKED
    assert not plan.row("far", "two").acts


def test_a_transient_step_upstream_is_not_released() -> None:
    serve = setting("serve", transient=True, release=setting("x", flag="serve", to="off").do)
    world = World({"one": {"serve": "on", "extract": "on"}})
    steps = (serve, setting("extract", needs=["serve"]))
    assert statuses(plan_of(world, *steps))["serve"] == "will release"
    assert statuses(plan_of(world, *steps, only=["extract"]))["serve"] == "not wanted"


def test_a_transient_step_is_left_alone_under_a_job_that_the_scope_leaves_out() -> None:
    """A slow health probe must not restart a server under its extraction."""
    serve = setting("serve", transient=True)
    extract = step("extract", needs=["serve"], do=(WORK, {"name": "extract"}))
    idle = World({"one": {}})
    assert statuses(plan_of(idle, serve, extract, only=["serve"])) == {"serve": "will run"}
    busy = World({"one": {"job-extract": "1"}})
    plan = plan_of(busy, serve, extract, only=["serve"])
    assert statuses(plan) == {"serve": "not wanted"}
    assert "the job of extract on one lives" in plan.rows[0].reason


def test_a_step_outside_the_limit_is_blocked_by_the_same_words() -> None:
    world = World({"one": {}, "two": {"a": "on"}})
    plan = plan_of(world, setting("a", hosts=["one", "two"]), limit={"two"})
    assert [row.status.value for row in plan.rows] == ["blocked", "satisfied"]
    assert plan.rows[0].reason == "a is not satisfied: flag a: absent, want on; outside --limit"


def test_the_scope_stands_in_the_record() -> None:
    plan = plan_of(World({"one": {}}), setting("a"), setting("b"), limit={"one"}, only=["a"])
    assert plan_record(plan)["scope"] == {
        "limit": ["one"],
        "selected": ["a"],
        "words": "--only a",
    }
    assert plan.scope == Scope(frozenset({"one"}), frozenset({"a"}), "--only a")


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_selected_nothing_outside_acts(seed: int) -> None:
    """Random graphs, worlds and selections."""
    rng = random.Random(seed)
    names = [f"s{i}" for i in range(7)]
    steps = [
        setting(
            name,
            needs=rng.sample(names[:i], k=rng.randint(0, min(i, 2))),
            transient=rng.random() < 0.2,
            hosts=rng.choice([["one"], ["two"], ["one", "two"]]),
        )
        for i, name in enumerate(names)
    ]
    world = World(
        {
            host: {name: rng.choice(["on", "off", DENIED]) for name in names if rng.random() < 0.8}
            for host in ("one", "two")
        }
    )
    chosen = rng.sample(names, k=rng.randint(1, 3))
    limit = rng.choice([None, {"one"}])
    plan = plan_of(world, *steps, only=chosen, limit=limit)
    for row in plan.rows:
        if row.acts:
            assert row.step.id in chosen
            assert limit is None or row.host in limit
        if row.status is Status.WILL_RUN:
            # A selected step above which something does not hold must not run.
            for need in plan.runbook.upstream(row.step.id):
                for other in plan.rows:
                    if other.step.id == need:
                        assert other.status not in (Status.BLOCKED, Status.UNKNOWN)
    assert world.log == []


def test_the_written_id_of_a_matrix_step_means_all_its_instances():
    steps = (setting("a[n=1]"), setting("a[n=2]"), setting("ab"), setting("b", needs=["a[n=1]"]))
    book = runbook(*steps)
    assert scope_of(book, only=["a"]).selected == {"a[n=1]", "a[n=2]"}
    assert scope_of(book, only=["a[n=2]"]).selected == {"a[n=2]"}
    assert scope_of(book, starts=["a"]).selected == {"a[n=1]", "a[n=2]", "b"}
