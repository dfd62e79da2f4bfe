"""A saved plan on a world that moved, and a plan used twice."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from runbooks.engine.model.runbook import Runbook
from runbooks.engine.plan.planner import make_plan
from runbooks.engine.plan.saved import SavedPlan, load_saved, save_plan, saved_plan
from runbooks.engine.plan.scope import EVERYTHING, Scope, narrowed, scope_of
from runbooks.engine.plan.seal import project_key
from runbooks.engine.plan.staleness import (
    claim,
    moved,
    overrides,
    refuse_edited,
    refuse_moved,
    refuse_used,
    use_plan,
)
from runbooks.engine.plan.survey import Survey
from runbooks.engine.redact import Redactor
from tests.engine.plan.recorded import Recorded, described, making, thing
from tests.engine.scripted import DENIED, DROP, WORK, flag, registry, runbook, setting, step

HIDDEN = {"is": "directory", "files": 18204, "size": 5000, "free": 70}
PURGE = step(
    "purge-old",
    needs=["merge"],
    requires=(thing("hidden", free=("ge", 50)), flag("merge", "on")),
    do=(DROP, {"name": "hidden"}),
    ensures=(thing("hidden", is_="gone"),),
)
BOOK = runbook(setting("merge"), PURGE, setting("serve", needs=["purge-old"]))
KEY = b"k" * 32
NO_SECRETS = Redactor()


def world_of(**flags) -> Recorded:
    return Recorded({"one": {"merge": "on", "hidden": described(**HIDDEN)} | flags})


def plan_of(world: Recorded, book: Runbook = BOOK, scope: Scope = EVERYTHING):
    survey = Survey(narrowed(book, scope), registry(), world, Path("/p"), lambda: 1e9, scope=scope)
    return make_plan(survey)


def saved_of(world: Recorded, book: Runbook = BOOK, redactor: Redactor = NO_SECRETS, **options):
    return saved_plan(plan_of(world, book, **options), world.hosts, KEY, redactor)


def test_a_world_that_did_not_move_fits(tmp_path: Path) -> None:
    world = world_of()
    key = project_key(tmp_path / "runs")
    save_plan(tmp_path / "p", saved_plan(plan_of(world), world.hosts, key, Redactor()), key)
    saved = load_saved(tmp_path / "p", tmp_path / "runs")
    lines = moved(saved, plan_of(world), world.hosts, key)
    assert lines == []
    refuse_moved(saved, lines)


def test_one_more_file_is_told_with_both_counts() -> None:
    """terraform#8790: a saved plan is applied to a world that drifted."""
    world = world_of()
    saved = saved_of(world)
    world.flags["one"]["hidden"] = described(**HIDDEN | {"files": 18205})
    lines = moved(saved, plan_of(world), world.hosts, KEY)
    assert "thing hidden on one: files 18,204 → 18,205" in lines
    # Needed by two checks, told once.
    assert len([line for line in lines if line.startswith("thing hidden")]) == 1
    with pytest.raises(RunbookError) as caught:
        refuse_moved(saved, lines)
    assert caught.value.code is ExitCode.STALE
    assert caught.value.diagnostics[0].message == (
        "stale: thing hidden on one: files 18,204 → 18,205"
    )
    assert caught.value.diagnostics[0].where == f"plan {saved.id}"
    assert "make a new plan" in (caught.value.diagnostics[-1].hint or "")


def test_a_step_that_would_now_run_is_told_by_its_row() -> None:
    world = world_of()
    saved = saved_of(world)
    world.flags["one"]["merge"] = "off"
    lines = moved(saved, plan_of(world), world.hosts, KEY)
    assert "flag merge on one: is on → off" in lines
    assert "merge on one: satisfied → will run" in lines
    assert "purge-old on one: will run → may run" in lines


def test_a_job_that_began_meanwhile_is_told() -> None:
    world = Recorded({"one": {}})
    book = runbook(step("w", do=(WORK, {"name": "w"})))
    saved = saved_of(world, book)
    world.flags["one"]["job-w"] = "1"
    lines = moved(saved, plan_of(world, book), world.hosts, KEY)
    assert lines == ["w on one: will run → will attach"]


def test_of_volatile_fields_only_the_truth_of_the_check_counts() -> None:
    world = world_of()
    saved = saved_of(world)
    world.flags["one"]["hidden"] = described(**HIDDEN | {"free": 51})
    # The scripted delete measures the length of the text, which is the same.
    assert moved(saved, plan_of(world), world.hosts, KEY) == []
    world.flags["one"]["hidden"] = described(**HIDDEN | {"free": 49})
    lines = moved(saved, plan_of(world), world.hosts, KEY)
    assert lines == [
        "thing hidden on one: true → false (thing hidden: free 49 B, want ≥ 50 B)",
        "purge-old on one: will run → blocked",
    ]


def test_unknown_then_or_now_is_a_move() -> None:
    world = world_of()
    saved = saved_of(world)
    world.flags["one"]["hidden"] = described(**HIDDEN | {"files": "?"})
    lines = moved(saved, plan_of(world), world.hosts, KEY)
    assert "thing hidden on one: files 18,204 → unknown" in lines
    world.flags["one"] |= {"hidden": described(**HIDDEN), "merge": DENIED}
    lines = moved(saved, plan_of(world), world.hosts, KEY)
    assert "flag merge on one: is on → unknown" in lines
    assert "merge on one: satisfied → unknown" in lines


def test_a_host_that_went_down_is_a_move() -> None:
    world = world_of()
    saved = saved_of(world)
    world.down.add("one")
    lines = moved(saved, plan_of(world), world.hosts, KEY)
    assert "merge on one: satisfied → unreachable" in lines


def test_what_an_irreversible_step_would_lose_is_measured_again() -> None:
    world = world_of(old="x" * 1000)
    drop = step("drop", do=(DROP, {"name": "old"}), ensures=(flag("none", "gone"),))
    saved = saved_of(world, runbook(drop))
    world.flags["one"]["old"] = "x" * 1005
    assert moved(saved, plan_of(world, runbook(drop)), world.hosts, KEY) == []
    world.flags["one"]["old"] = "x" * 2000
    (line,) = moved(saved, plan_of(world, runbook(drop)), world.hosts, KEY)
    assert line == "drop on one: would lose 1.0 KiB (1.0 kB) → 2.0 KiB (2.0 kB)"
    other = replace(drop, do=replace(drop.do, args={"name": "merge"}))
    (line,) = moved(saved, plan_of(world, runbook(other)), world.hosts, KEY)
    assert line == "drop on one: would lose flag old → flag merge"


def test_another_runbook_its_variables_and_its_scope_are_told_first() -> None:
    world = world_of()
    book = replace(BOOK, digest="a" * 64, variables={"samples": 9, "same": [1]})
    saved = saved_of(world, book)
    edited = replace(book, digest="b" * 64, variables={"samples": 5, "same": [1], "more": "x"})
    assert moved(saved, plan_of(world, edited), world.hosts, KEY) == [
        "variable samples: 9 → 5",
        'variable more: not set → "x"',
        "runbook test was changed: digest aaaaaaaaaaaa → bbbbbbbbbbbb",
    ]
    scope = scope_of(book, only=["merge"])
    assert moved(saved, plan_of(world, book, scope), world.hosts, KEY) == [
        "what is to act: everything → --only merge"
    ]
    other = replace(book, name="other")
    assert moved(saved, plan_of(world, other), world.hosts, KEY) == [
        "the plan is of the runbook test, not of other"
    ]


def test_the_inventory_is_compared_host_by_host() -> None:
    world = world_of()
    saved = saved_of(world)
    host = world.hosts["one"]
    there = {"one": replace(host, data={"ssh_hostname": "10.0.0.9"})}
    assert moved(saved, plan_of(world), there, KEY) == [
        "inventory: one is described differently (address, groups, roots or folders)"
    ]
    assert moved(saved, plan_of(world), {**world.hosts, "two": host}, KEY) == [
        "inventory: the host two is new"
    ]
    assert moved(saved, plan_of(world), {}, KEY) == ["inventory: the host one is gone"]


def test_a_masked_value_that_moved_is_told_without_it() -> None:
    redactor = Redactor(["hunter2", "hunter3"])
    world = world_of(merge="pass hunter2")
    saved = saved_of(world, redactor=redactor)
    assert moved(saved, plan_of(world), world.hosts, KEY, redactor) == []
    world.flags["one"]["merge"] = "pass hunter3"
    lines = moved(saved, plan_of(world), world.hosts, KEY, redactor)
    assert lines == ["flag merge on one: a value changed that is masked"]


@pytest.mark.parametrize("seed", range(30))
def test_nothing_that_moves_passes_and_nothing_that_stays_is_refused(seed: int) -> None:
    """Random worlds: the comparison says the same as the worlds do."""
    rng = random.Random(seed)
    names = [f"s{i}" for i in range(5)]
    book = runbook(
        *(
            making(name, thing(name, is_="file"), needs=rng.sample(names[:i], k=min(i, 1)))
            for i, name in enumerate(names)
        )
    )

    def fields():
        return {"is": rng.choice(["file", "link"]), "files": rng.randint(0, 1), "free": 1}

    first = {name: fields() for name in names}
    world = Recorded({"one": {name: described(**item) for name, item in first.items()}})
    saved = saved_of(world, book)
    second = {name: rng.choice([first[name], fields()]) for name in names}
    for name, item in second.items():
        world.flags["one"][name] = described(**item | {"free": rng.randint(0, 99)})
    lines = moved(saved, plan_of(world, book), world.hosts, KEY)
    changed = {name for name in names if first[name] != second[name]}
    told = {name for name in names if any(line.startswith(f"thing {name} on") for line in lines)}
    assert told == changed
    assert bool(lines) == bool(changed)


def test_variables_of_the_plan_are_given_to_the_runbook_again() -> None:
    made = {"text": "two", "n": 5, "on": True, "share": 0.5, "many": [1], "same": "x", "gone": 1}
    saved = saved_of(world_of(), replace(BOOK, variables=made))
    declared = {"text": "one", "n": 3, "on": False, "share": 0.1, "many": [2], "same": "x"}
    assert overrides(declared, saved) == {"text": "two", "n": "5", "on": "true", "share": "0.5"}


def test_an_edited_runbook_is_refused_before_any_host_is_reached() -> None:
    book = replace(BOOK, digest="a" * 64, variables={"n": 1})
    saved = saved_of(world_of(), book)
    refuse_edited(saved, book)
    # A variable that nothing uses does not change what the runbook does.
    refuse_edited(saved, replace(book, variables={"n": 2}))
    with pytest.raises(RunbookError, match="was changed: digest aaaaaaaaaaaa → bbbbbbbbbbbb"):
        refuse_edited(saved, replace(book, digest="b" * 64))
    with pytest.raises(RunbookError, match="of the runbook test, not of other"):
        refuse_edited(saved, replace(book, name="other"))


def test_use_is_claimed_where_the_plan_fits_and_only_there(tmp_path: Path) -> None:
    world = world_of()
    key = project_key(tmp_path)
    survey = Survey(BOOK, registry(), world, Path("/p"), lambda: 1e9)
    save_plan(tmp_path / "p", saved_plan(make_plan(survey), world.hosts, key, NO_SECRETS), key)
    saved = load_saved(tmp_path / "p", tmp_path)
    world.flags["one"]["merge"] = "off"
    for _ in range(2):
        with pytest.raises(RunbookError, match="flag merge on one: is on → off"):
            use_plan(saved, survey, tmp_path, NO_SECRETS, "run-1", 5.0)
    assert not (tmp_path / "plans").exists()
    world.flags["one"]["merge"] = "on"
    use_plan(saved, survey, tmp_path, NO_SECRETS, "run-2", 5.0)
    rounds = world.rounds
    with pytest.raises(RunbookError, match="was used by run run-2"):
        use_plan(saved, survey, tmp_path, NO_SECRETS, "run-3", 6.0)
    # That is known without asking any host.
    assert world.rounds == rounds
    assert world.log == []


def claimable(tmp_path: Path) -> SavedPlan:
    key = project_key(tmp_path)
    save_plan(tmp_path / "p", saved_of(world_of()), key)
    return load_saved(tmp_path / "p", tmp_path)


def test_a_plan_is_used_once(tmp_path: Path) -> None:
    """terraform#24078: the same plan applied again and again."""
    saved = claimable(tmp_path)
    refuse_used(saved, tmp_path)
    claim(saved, tmp_path, "20261201-140211-7c1e", 0)
    for again in (
        lambda: claim(saved, tmp_path, "run-2", 1),
        lambda: refuse_used(saved, tmp_path),
    ):
        with pytest.raises(RunbookError) as caught:
            again()
        assert caught.value.code is ExitCode.STALE
        message = caught.value.diagnostics[0].message
        assert message.startswith(f"plan {saved.id} was used by run 20261201-140211-7c1e at 19")
    mark = json.loads((tmp_path / "plans" / saved.mark).read_text())
    assert (mark["v"], mark["plan"], mark["run"]) == (1, saved.id, "20261201-140211-7c1e")


def test_a_copy_of_the_file_is_the_same_plan_and_another_plan_is_not(tmp_path: Path) -> None:
    saved = claimable(tmp_path)
    copy = tmp_path / "copy"
    copy.write_bytes((tmp_path / "p").read_bytes())
    other = claimable(tmp_path)
    claim(saved, tmp_path, "run", 0)
    with pytest.raises(RunbookError, match="was used"):
        claim(load_saved(copy, tmp_path), tmp_path, "run", 0)
    claim(replace(other, id=saved.id), tmp_path, "run", 0)


def test_of_many_that_claim_at_once_one_gets_it(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    saved = claimable(tmp_path)

    def attempt(number: int) -> bool:
        try:
            claim(saved, tmp_path, f"run-{number}", number)
        except RunbookError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(attempt, range(64))) == 1


def test_a_damaged_mark_still_means_used(tmp_path: Path) -> None:
    saved = claimable(tmp_path)
    (tmp_path / "plans").mkdir()
    for text in ("", "{", "[]", '{"run": "x"}', '{"run": "x", "at": 1e999}'):
        (tmp_path / "plans" / saved.mark).write_text(text)
        with pytest.raises(RunbookError, match="was used already"):
            claim(saved, tmp_path, "run", 0)


def test_where_the_use_cannot_be_recorded_nothing_runs(tmp_path: Path) -> None:
    saved = claimable(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunbookError, match="cannot be recorded"):
        claim(saved, tmp_path / "file", "run", 0)
