"""The plan's lines: a reason on each, terminal controls never passed on."""

from __future__ import annotations

from pathlib import Path

from runbooks.engine.plan.planner import make_plan
from runbooks.engine.plan.survey import Survey
from runbooks.engine.view.json_lines import plan_record
from runbooks.engine.view.plan import plan_lines
from tests.engine.scripted import DENIED, DROP, World, flag, registry, runbook, setting, step


def lines_of(world: World, *steps) -> list[str]:
    plan = make_plan(Survey(runbook(*steps), registry(), world, Path("/project")))
    return [line.plain for line in plan_lines(plan)]


def test_each_row_says_why() -> None:
    world = World({"one": {"a": "on", "d": DENIED}})
    lines = lines_of(
        world,
        setting("a"),
        setting("b"),
        setting("c", needs=["b"]),
        setting("d"),
        step("g", requires=(flag("x", "y"),)),
    )
    assert lines[1].split() == ["=", "a", "one", "satisfied", "flag", "a:", "on"]
    assert lines[2].split() == [
        "~",
        "b",
        "one",
        "will",
        "run",
        "flag",
        "b:",
        "absent,",
        "want",
        "on",
    ]
    assert "      b: absent → on" in lines
    assert "? c  one  may run    (waits for b) · flag c: absent, want on" in "\n".join(lines)
    assert any("! d" in line and "unknown (permission denied)" in line for line in lines)
    assert any("! g" in line and "flag x: absent, want y" in line for line in lines)
    assert lines[-1] == "Plan: 1 to run, 1 may run, 1 satisfied, 1 blocked, 1 unknown."


def test_an_irreversible_row_says_what_is_lost_and_how_to_approve() -> None:
    world = World({"one": {"old": "x" * 2000}})
    drop = step("purge", do=(DROP, {"name": "old"}), ensures=(flag("old", "gone"),))
    text = "\n".join(lines_of(world, drop))
    assert "- purge" in text
    assert "frees 2.0 KiB (2.0 kB) on data" in text
    assert "IRREVERSIBLE · loses a flag · restore: none" in text
    assert "approve with --approve purge=2000-" in text


def test_down_hosts_are_told_apart_by_who_needs_them() -> None:
    world = World({"one": {}, "two": {}, "six": {}}, down={"two", "six"})
    gate = step("gate", requires=(flag("x", "on", host="two"),))
    text = "\n".join(lines_of(world, gate))
    assert "Down   two  no step runs on it; what checks read there is unknown" in text
    assert "Down   six  not needed: no step names it" in text


def test_control_characters_of_a_host_are_shown_not_obeyed() -> None:
    lines = lines_of(World({"one": {"a": "\x1b[2Joff\x9b\u202e"}}), setting("a"))
    assert "\\x1b[2Joff\\x9b\\x202e" in lines[1]
    assert not any("\x1b" in line for line in lines)


def test_the_json_of_a_plan_has_its_version_first() -> None:
    plan = make_plan(
        Survey(runbook(setting("a")), registry(), World({"one": {}}), Path("/project"))
    )
    record = plan_record(plan)
    assert list(record)[:2] == ["v", "event"]
    assert record["rows"][0]["ensures"][0]["wanted"] == "on"
