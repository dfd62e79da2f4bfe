"""A run's lines: identity, each step with what it did, everything of one step."""

from __future__ import annotations

from pathlib import Path

from runbooks.engine.history.runs import RunRecord, read_run
from runbooks.engine.history.verify import journal_faults
from runbooks.engine.view.show import run_lines, unit_lines
from tests.engine.history.journals import check, intent, outcome, record, started, unit, write
from tests.engine.run.test_session import run
from tests.engine.scripted import World, flag, setting


def read(tmp_path: Path, *records, closed: bool = True) -> RunRecord:
    write(tmp_path, "x", *records, closed=closed)
    return read_run(tmp_path / "x")


def lines(one: RunRecord) -> list[str]:
    return [line.plain for line in run_lines(one, journal_faults(one))]


def details(one: RunRecord) -> list[str]:
    return [line.plain for line in unit_lines(one.units.values())]


def test_a_real_run_shows_intent_commands_and_outcome_in_order(tmp_path: Path) -> None:
    world = World({"one": {"x": "y"}})
    report = run(world, setting("a", requires=(flag("x", "y"),)), tmp_path=tmp_path)
    one = read_run(tmp_path / "runs" / report.run)
    text = "\n".join(lines(one))
    assert text.splitlines()[1].split(maxsplit=1) == ["result", "done (0)"]
    steps = text[text.index("Steps") :]
    order = [
        "intent: set · a: absent → on",
        "$ set a on → exit 0 in ",
        "outcome: ran: a is on",
    ]
    assert [steps.index(part) for part in order] == sorted(steps.index(part) for part in order)
    assert "ensures" not in steps
    full = "\n".join(details(one))
    assert "✘ flag a: false, wanted on, read absent" in full
    assert "✔ flag x: true, wanted y, read y" in full
    assert "✔ flag a: true, wanted on, read on" in full


def test_identity_shows_what_there_is_and_nothing_that_is_not(tmp_path: Path) -> None:
    rich = started(
        "x",
        versions={"engine": "0.3", "python": "3.11.7", "pyinfra": "3.10"},
        variables_digest="ab" * 32,
        inventory_digest="cd" * 32,
        limit=["one", "two"],
        only=None,
        plan="7c1e",
        pid=4711,
        boot="b00t",
        selected=["merge", "purge"],
    )
    text = lines(read(tmp_path / "rich", rich, record("end", 5, exit=6, left={"one": "job lives"})))
    told = dict(line.split(maxsplit=1) for line in text if line.startswith("  "))
    assert told["result"] == "failed (6)"
    assert told["operator"] == "alice on laptop"
    assert told["door"] == "runbook, process 4711, boot b00t"
    assert told["versions"] == "engine 0.3, python 3.11.7, pyinfra 3.10"
    assert told["variables"] == "sha256 " + "ab" * 32
    assert told["inventory"] == "sha256 " + "cd" * 32
    assert (told["limit"], told["selected"], told["plan"]) == ("one, two", "merge, purge", "7c1e")
    assert told["left"] == "one job lives"
    assert told["journal"].endswith("2 lines, chain whole")
    assert "only" not in told
    bare = lines(read(tmp_path / "bare", record("note", text="x")))
    assert {line.split()[0] for line in bare if line.startswith("  ")} >= {"result", "journal"}
    assert not any(line.strip().startswith(("versions", "plan")) for line in bare)


def test_what_was_interrupted_is_said(tmp_path: Path) -> None:
    text = lines(read(tmp_path, started("x"), intent(1, "a"), closed=False))
    assert any(
        line.startswith(" ? a  one  interrupted") and "nothing tells how that ended" in line
        for line in text
    )
    assert text[1].split() == ["result", "unfinished"]


def test_locks_notes_warnings_and_checkpoints(tmp_path: Path) -> None:
    text = lines(
        read(
            tmp_path,
            started("x"),
            record("lock", 1, host="one", action="taken over", generation=4, text="bob is gone"),
            record("note", 1, text="three is down; no step names it"),
            unit("note", 2, "a", text="its job lives; attached"),
            unit("note", 3, "a", text="no progress for 900s", warning="silent"),
            unit("checkpoint", 4, "a"),
            outcome(5, "a"),
        )
    )
    joined = "\n".join(text)
    assert "one: lock taken over, generation 4: bob is gone" in joined
    assert "note: three is down" in joined
    assert "warning, silent: no progress for 900s" in joined
    assert "checkpoint" in joined
    assert "attached" not in joined  # that is for the step's own view


def test_a_step_in_full_shows_diff_outputs_notes_and_unknowns(tmp_path: Path) -> None:
    one = read(
        tmp_path,
        started("x"),
        unit(
            "facts",
            1,
            "a",
            part="requires",
            checks=[check("gpu", "unknown", read="", reason="denied", wanted="0", host="kpro6")],
        ),
        unit("facts", 1, "a", part="ensures", checks=[]),
        intent(2, "a", diff="--- before\n+++ after\n+new"),
        unit(
            "command", 3, "a", command="do it", exit=3, seconds=12.4, stdout="o1\no2\n", stderr="e"
        ),
        unit("note", 4, "a", text="a fault", traceback="Traceback\n  line"),
        outcome(5, "a", "failed"),
    )
    text = details(one)
    assert text[0].startswith("! a  one  failed")
    body = "\n".join(text)
    assert "? gpu: unknown, wanted 0, read nothing (denied) on kpro6" in body
    assert "ensures: none" in body
    assert "      +new" in text
    assert "$ do it → exit 3 in 12s" in body
    assert [line for line in text if " | " in line] == [
        "      stdout | o1",
        "      stdout | o2",
        "      stderr | e",
        "      traceback | Traceback",
        "      traceback |   line",
    ]


def test_many_commands_are_counted_not_listed(tmp_path: Path) -> None:
    many = [
        unit("command", 1 + n, "a", command=f"c{n}", exit=int(n == 24), seconds=0.1)
        for n in range(25)
    ]
    text = lines(read(tmp_path, started("x"), intent(1, "a"), *many, outcome(40, "a")))
    assert sum("$ c" in line for line in text) == 10
    assert any(
        "… 15 more commands, 1 of them failed: runbook show RUN/a@one" in line for line in text
    )


def test_a_run_of_several_days_tells_the_day(tmp_path: Path) -> None:
    text = lines(read(tmp_path, started("x"), intent(10, "a"), outcome(260_000, "a")))
    row = next(line for line in text if line.startswith(" ~ a"))
    assert " 12-0" in row or " 11-30 " in row


def test_a_broken_chain_and_damaged_lines_stand_out(tmp_path: Path) -> None:
    path = write(tmp_path, "x", started("x"), outcome(1, "a"), record("end", 2, exit=0))
    path.write_bytes(path.read_bytes().replace(b'"event": "outcome"', b'"event": 3'))
    one = read_run(path.parent)
    text = list(run_lines(one, journal_faults(one)))
    marked = [line.plain for line in text if line.style == "red"]
    assert any("line 2 is no journal record" in line for line in marked)
    assert any(f"damaged: {path}:2" in line for line in marked)


def test_control_characters_are_shown_not_obeyed(tmp_path: Path) -> None:
    evil = "\x1b[2J\u202e"
    one = read(
        tmp_path,
        started("x", operator=evil),
        unit("facts", 1, "a", part="ensures", checks=[check(evil, read=evil)]),
        intent(2, "a", summary=evil, diff=evil),
        unit("command", 3, "a", command=evil, exit=0, seconds=1, stdout=evil, stderr=evil),
        outcome(4, "a", reason=evil),
    )
    for text in (lines(one), details(one)):
        assert "\\x1b[2J" in "\n".join(text)
        assert not any("\x1b" in line or "\u202e" in line for line in text)
