"""A journal read as a run: steps by host, what was interrupted, whatever state it is in."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runbooks.engine.history.consult import consult
from runbooks.engine.history.runs import process_lives, read_run
from runbooks.engine.history.verify import journal_faults
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.run.journal import FILE
from runbooks.engine.view.history import history_lines
from runbooks.engine.view.report import render_report
from runbooks.engine.view.show import run_lines, unit_lines
from tests.engine.history.journals import BEGIN, intent, outcome, record, started, unit, write
from tests.engine.run.test_session import run
from tests.engine.scripted import World, setting


def test_what_a_session_writes_is_read(tmp_path: Path) -> None:
    world = World({"one": {"b": "on"}, "two": {}}, deaf={("set", "c", "on")})
    report = run(
        world,
        setting("a"),
        setting("b"),
        setting("c", hosts=["two"]),
        setting("d", needs=["c"], hosts=["two"]),
        tmp_path=tmp_path,
    )
    read = read_run(tmp_path / "runs" / report.run)
    assert {unit: one.result for unit, one in read.units.items()} == {
        ("a", "one"): "ran",
        ("b", "one"): "satisfied",
        ("c", "two"): "failed",
        ("d", "two"): "skipped",
    }
    assert {step for (step, _), one in read.units.items() if one.acted} == {"a", "c"}
    assert (read.changed, read.failed, read.exit) == (report.changed, 1, int(report.code))
    assert not any(one.interrupted for one in read.units.values())
    assert not journal_faults(read)


def test_an_intent_without_a_later_outcome_is_interrupted(tmp_path: Path) -> None:
    write(
        tmp_path,
        "x",
        started("x"),
        intent(1, "a"),
        outcome(2, "a"),
        intent(3, "a", summary="again"),
        intent(4, "b"),
        intent(5, "b"),
        outcome(6, "b", "failed"),
        intent(7, "b:release"),
        closed=False,
    )
    units = read_run(tmp_path / "x").units
    assert units["a", "one"].interrupted["summary"] == "again"
    assert units["b", "one"].interrupted is None
    assert units["b:release", "one"].result == "interrupted"


def test_times_come_from_the_outcome_where_it_tells_them(tmp_path: Path) -> None:
    facts = unit("facts", 8, "a", part="ensures", checks=[])
    write(tmp_path, "x", started("x"), facts, outcome(10, "a", seconds=7.0))
    one = read_run(tmp_path / "x").units["a", "one"]
    assert (one.begun, one.last) == (BEGIN + 3, BEGIN + 10)


def test_journals_of_older_engines_tell_who_acted_by_the_intent(tmp_path: Path) -> None:
    old = [started("x"), intent(1, "a"), outcome(2, "a"), outcome(3, "b", "satisfied")]
    for one in old:
        one.pop("acted", None)
    write(tmp_path, "x", *old)
    assert read_run(tmp_path / "x").changed == 1


def test_damaged_lines_are_named_and_the_others_read(tmp_path: Path) -> None:
    path = write(tmp_path, "x", started("x"), intent(1, "a"), outcome(2, "a"))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = b"\xff{not json\n"
    path.write_bytes(b"".join([*lines, b'{"event": "half a li']))
    read = read_run(path.parent)
    assert [line for line, _ in read.faults] == [2]
    assert [one["event"] for one in read.records] == ["run", "outcome"]


def test_a_missing_journal_is_an_error_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(RunbookError) as caught:
        read_run(tmp_path / "none")
    assert caught.value.diagnostics[0].where == str(tmp_path / "none" / FILE)


def test_a_process_lives_only_in_this_boot(tmp_path: Path) -> None:
    here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert process_lives(os.getpid(), here)
    assert not process_lives(os.getpid(), "another boot")
    assert not process_lives(2**22 + 1, here)
    assert not process_lives(None, here)
    assert not process_lives(os.getpid(), "")


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=8)
    | st.sampled_from(["a", "ran", "true", "+x\n-y"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
_NAMES = [
    "run",
    "runbook",
    "file",
    "digest",
    "operator",
    "controller",
    "door",
    "hosts",
    "versions",
    "limit",
    "plan",
    "pid",
    "boot",
    "step",
    "host",
    "part",
    "checks",
    "result",
    "reason",
    "acted",
    "seconds",
    "operation",
    "summary",
    "diff",
    "command",
    "exit",
    "stdout",
    "text",
    "warning",
    "action",
    "generation",
    "left",
]
_EVENTS = ("run", "facts", "intent", "command", "outcome", "lock", "note", "checkpoint", "end")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(_EVENTS),
            _VALUES | st.floats(0, 2e9),
            st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=6),
            st.sampled_from([{}, {"step": "a", "host": "one"}, {"checks": [{"at": -1}, 3]}]),
        ),
        max_size=8,
    )
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_journal_whatsoever_breaks_a_view(tmp_path_factory, records) -> None:
    runs = tmp_path_factory.mktemp("runs")
    (runs / "x").mkdir()
    lines = [
        json.dumps({"v": 1, "event": event, "at": at} | data | more)
        for event, at, data, more in records
    ]
    (runs / "x" / FILE).write_text("".join(f"{line}\n" for line in lines))
    read = read_run(runs / "x")
    assert len(read.records) + len(read.faults) == len(lines)
    faults = journal_faults(read)
    assert list(run_lines(read, faults))
    list(unit_lines(read.units.values()))
    assert render_report(read, faults).endswith("</html>")
    rows = consult(runs, lambda index: index.rows())
    assert [row.run for row in rows] == ["x"]
    assert len(list(history_lines(rows, 0, runs))) >= 2


def test_a_record_without_a_time_is_damaged(tmp_path: Path) -> None:
    path = write(tmp_path, "x", started("x"), record("note", text="n") | {"at": "soon"})
    assert [fault[0] for fault in read_run(path.parent).faults] == [2]
