"""Drift: exactly the durable fields that somebody else changed; unknown is not drift."""

from __future__ import annotations

from pathlib import Path

import pytest

from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.plan.checkpoint import checkpoint_line
from runbooks.engine.plan.drift import drift_code, read_drift
from runbooks.engine.plan.plan import Plan
from runbooks.engine.plan.planner import make_plan
from runbooks.engine.plan.survey import Survey
from runbooks.engine.redact import Redactor
from runbooks.engine.view.drift import drift_lines
from runbooks.engine.view.json_lines import plan_record
from runbooks.engine.view.plan import plan_lines
from tests.engine.plan.recorded import Recorded, described, making, thing
from tests.engine.scripted import DENIED, flag, registry, runbook, setting

HIDDEN = {"is": "directory", "files": 18204, "size": 5000, "free": 70}
STEPS = (
    setting("mode", to="extract"),
    making("hidden", thing("hidden", is_="directory", free=("ge", 50)), needs=["mode"]),
)
NOW = 10_000.0


def world_of(**things) -> Recorded:
    flags = {"mode": "extract", "hidden": described(**HIDDEN)}
    return Recorded({"one": flags | things})


def survey_of(world: Recorded, *steps) -> Survey:
    return Survey(runbook(*(steps or STEPS)), registry(), world, Path("/p"), now=lambda: NOW)


def checkpointed(world: Recorded, *steps, redactor: Redactor | None = None) -> None:
    """Give each host the checkpoints that a run writes when all its steps have ended well."""
    survey = survey_of(world, *steps)
    found = survey.findings(survey.units(), {})
    for (name, host), findings in found.items():
        line = checkpoint_line(
            name, host, findings.ensures, "run-1", NOW - 7200, redactor or Redactor()
        )
        world.records[host] = f"{world.records.get(host, '')}\n{line}\n"


def plan_of(world: Recorded, *steps) -> Plan:
    return make_plan(survey_of(world, *steps))


def changes(world: Recorded, *steps) -> list[tuple[str, str, str]]:
    drift, _, _ = read_drift(survey_of(world, *steps))
    return [(item.subject, item.field, item.change()) for item in drift]


def test_a_world_that_nobody_touched_has_no_drift() -> None:
    world = world_of()
    checkpointed(world)
    drift, unsure, records = read_drift(survey_of(world))
    assert (drift, unsure) == ([], [])
    assert set(records.checkpoints) == {("mode", "one"), ("hidden", "one")}
    assert drift_code(drift, unsure) is ExitCode.DONE
    plan = plan_of(world)
    assert (plan.drift, plan.unsure) == ((), ())
    assert not any("Drift" in line.plain for line in plan_lines(plan))


@pytest.mark.parametrize(
    ("altered", "shown"),
    [
        ({"files": 18205}, ("thing hidden", "files", "18,204 → 18,205")),
        ({"size": 4000}, ("thing hidden", "size", "4.9 KiB (5.0 kB) → 3.9 KiB (4.0 kB)")),
        ({"is": "link"}, ("thing hidden", "is", "directory → link")),
    ],
)
def test_an_altered_world_drifts_by_exactly_the_altered_field(altered, shown) -> None:
    world = world_of()
    checkpointed(world)
    world.flags["one"]["hidden"] = described(**HIDDEN | altered)
    assert changes(world) == [shown]
    drift, unsure, _ = read_drift(survey_of(world))
    assert drift_code(drift, unsure) is ExitCode.PENDING


def test_volatile_fields_do_not_drift() -> None:
    world = world_of()
    checkpointed(world)
    world.flags["one"]["hidden"] = described(**HIDDEN | {"free": 3})
    assert changes(world) == []


def test_what_is_gone_is_one_line_and_not_one_for_each_field() -> None:
    world = world_of()
    checkpointed(world)
    del world.flags["one"]["hidden"]
    assert changes(world) == [("thing hidden", "is", "directory → absent")]
    world.flags["one"]["mode"] = "serve"
    assert changes(world)[0] == ("flag mode", "is", "extract → serve")


def test_only_what_a_step_ensures_is_compared() -> None:
    steps = (making("hidden", thing("hidden", is_="directory"), requires=(flag("mode", "on"),)),)
    world = world_of()
    checkpointed(world, *steps)
    world.flags["one"]["mode"] = "serve"
    assert changes(world, *steps) == []


def test_a_step_that_ended_badly_or_was_released_has_nothing_to_compare() -> None:
    world = world_of()
    checkpointed(world)
    line = checkpoint_line("mode", "one", (), "run-2", NOW - 60, Redactor())
    world.records["one"] += f"{line}\n"
    world.flags["one"]["mode"] = "serve"
    assert changes(world) == []


def test_other_words_of_a_runbook_that_was_edited_are_not_compared() -> None:
    world = world_of()
    checkpointed(world)
    world.flags["one"]["other"] = described(**{"is": "file"})
    assert changes(world, making("hidden", thing("other", is_="directory"))) == []


def test_unknown_is_not_drift_and_is_named() -> None:
    world = world_of()
    checkpointed(world)
    world.flags["one"]["hidden"] = described(**HIDDEN | {"files": "?"})
    world.flags["one"]["mode"] = DENIED
    drift, unsure, _ = read_drift(survey_of(world))
    assert drift == []
    assert [(item.step, item.subject) for item in unsure] == [
        ("mode", "flag mode"),
        ("hidden", "thing hidden"),
    ]
    assert "permission denied" in unsure[0].reason
    assert unsure[1].reason.startswith("files: ")
    assert drift_code(drift, unsure) is ExitCode.FAILED


def test_drift_beside_something_unknown_is_still_drift() -> None:
    world = world_of()
    checkpointed(world)
    world.flags["one"] |= {"hidden": described(**HIDDEN | {"files": 1}), "mode": DENIED}
    drift, unsure, _ = read_drift(survey_of(world))
    assert (len(drift), len(unsure)) == (1, 1)
    assert drift_code(drift, unsure) is ExitCode.PENDING


def test_a_host_that_is_down_is_unreachable() -> None:
    world = world_of()
    checkpointed(world)
    world.down.add("one")
    drift, unsure, _ = read_drift(survey_of(world))
    assert drift_code(drift, unsure) is ExitCode.UNREACHABLE
    assert all(item.unreachable for item in unsure)
    # Its rows say so; the plan needs no second line.
    assert plan_of(world).unsure == ()


def test_damaged_checkpoints_are_told() -> None:
    world = world_of()
    checkpointed(world)
    world.records["one"] += '{"v": 1, "st'
    drift, unsure, records = read_drift(survey_of(world))
    assert len(records.checkpoints) == 2
    (lost,) = unsure
    assert "is no checkpoint: it is damaged" in lost.reason
    assert drift_code(drift, unsure) is ExitCode.FAILED


def test_checkpoints_that_cannot_be_read_are_unknown_and_harmless() -> None:
    world = world_of()
    world.records["one"] = 125
    plan = plan_of(world)
    assert plan.code is ExitCode.DONE
    (lost,) = plan.unsure
    assert lost.reason == "no checkpoint is known: exit 125"
    assert plan_record(plan)["drift_unknown"][0]["unknown"] == lost.reason
    text = "\n".join(line.plain for line in plan_lines(plan))
    assert "Drift  one  checkpoints  unknown: no checkpoint is known: exit 125" in text


def test_a_host_tells_of_itself_alone() -> None:
    world = world_of()
    checkpointed(world)
    world.flags["two"] = {}
    world.records["two"] = world.records["one"].replace("extract", "serve")
    both = (*STEPS, setting("mode2", flag="mode", hosts=["two"]))
    assert changes(world, *both) == []


def test_a_check_of_another_host_names_it() -> None:
    steps = (making("a", flag("x", "on", host="two"), hosts=["one"]),)
    world = Recorded({"one": {}, "two": {"x": "on"}})
    checkpointed(world, *steps)
    world.flags["two"]["x"] = "off"
    drift, unsure, _ = read_drift(survey_of(world, *steps))
    assert [(item.host, item.on) for item in drift] == [("one", "two")]
    (text,) = [line.plain for line in drift_lines(drift, unsure, NOW)]
    assert text == (
        "one  flag x on two  is  on → off   since checkpoint of run run-1, 2h ago,"
        " outside this runbook  (a)"
    )


def test_masked_values_neither_leak_nor_drift() -> None:
    world = world_of(mode="token hunter2")
    steps = (setting("mode", to="token hunter2"),)
    checkpointed(world, *steps, redactor=Redactor(["hunter2"]))
    assert "hunter2" not in world.records["one"]
    assert changes(world, *steps) == []
    world.flags["one"]["mode"] = "no t0ken"
    assert changes(world, *steps) == [("flag mode", "is", "token [secret] → no t0ken")]


def test_the_plan_reads_checkpoints_in_the_round_of_its_facts() -> None:
    world = world_of()
    checkpointed(world)
    world.rounds = 0
    plan_of(world)
    assert world.rounds == 1


def test_a_plan_shows_drift_and_records_it() -> None:
    world = world_of()
    checkpointed(world)
    world.flags["one"]["mode"] = "serve"
    plan = plan_of(world)
    lines = [line.plain for line in plan_lines(plan)]
    assert (
        "Drift  one  flag mode  is  extract → serve   since checkpoint of run run-1, 2h ago,"
        " outside this runbook  (mode)"
    ) in lines
    (record,) = plan_record(plan)["drift"]
    assert (record["was"], record["now"], record["run"]) == ("extract", "serve", "run-1")
    assert (record["step"], record["check"], record["field"]) == ("mode", "flag mode", "is")


def test_what_a_host_says_does_not_drive_the_terminal() -> None:
    world = world_of()
    checkpointed(world)
    world.flags["one"]["mode"] = "\x1b[2J"
    assert not any("\x1b" in line.plain for line in plan_lines(plan_of(world)))
