"""Checkpoints: lines out and in, damage told, and the scripts on a real shell."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbooks.engine.model.check import Finding, judge
from runbooks.engine.model.fact import Reading
from runbooks.engine.model.probe import Unknown
from runbooks.engine.model.values import ABSENT
from runbooks.engine.plan.checkpoint import (
    append_script,
    checkpoint_line,
    compact,
    parse_checkpoints,
    read_script,
)
from runbooks.engine.redact import Redactor
from tests.engine.plan.recorded import thing


def finding(name: str = "x", host: str = "one", **fields) -> Finding:
    check = thing(name, is_="file")
    read = {"is": "file", "files": ABSENT, "size": 10, "free": 5} | fields
    return judge(check, Reading(read, host, 100.0))


def line(step: str = "a", at: float = 100.0, *findings: Finding, redactor=None) -> str:
    found = findings or (finding(),)
    return checkpoint_line(step, "one", found, "run-1", at, redactor or Redactor())


def test_a_line_holds_the_durable_fields_alone() -> None:
    made = json.loads(line("a", 100.0, finding(size=Unknown("denied"))))
    assert list(made) == ["v", "step", "host", "at", "run", "facts"]
    assert made["facts"] == [
        {"subject": "thing x", "on": "one", "values": {"is": "file", "files": None}}
    ]


def test_the_last_line_of_a_step_counts() -> None:
    text = line("a", 1.0) + "\n\n" + line("b", 2.0) + "\n" + line("a", 3.0) + "\n"
    found, problems = parse_checkpoints(text)
    assert problems == []
    assert {unit: item.at for unit, item in found.items()} == {("a", "one"): 3.0, ("b", "one"): 2.0}
    (fact,) = found["a", "one"].facts
    assert (fact.subject, fact.on, fact.values["size"]) == ("thing x", "one", 10)


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        ("{", "it is damaged"),
        ("[1]", "it is damaged"),
        ("nonsense", "it is damaged"),
        ('{"v": 1, "step": "a"', "it is damaged"),
        ('{"v": 2}', "its schema version is 2, want 1"),
        ("{}", "its schema version is None, want 1"),
        ('{"v":1,"step":1,"host":"o","at":1,"run":"r","facts":[]}', "step is not text"),
        ('{"v":1,"step":"a","host":"o","at":"x","run":"r","facts":[]}', "at is not a number"),
        ('{"v":1,"step":"a","host":"o","at":true,"run":"r","facts":[]}', "at is not a number"),
        ('{"v":1,"step":"a","host":"o","at":1,"run":"r"}', "facts is not a list"),
        ('{"v":1,"step":"a","host":"o","at":1,"run":"r","facts":[1]}', "a fact has no values"),
        ('{"v":1,"step":"a","host":"o","at":1,"facts":[]}', "run is not text"),
        ('{"v":1,"step":"\udc80"}', "it is not UTF-8"),
        ("[" * 100_000, "it is damaged"),
    ],
)
def test_a_damaged_line_is_told_and_the_others_are_read(damaged: str, why: str) -> None:
    found, problems = parse_checkpoints(f"{line('a')}\n{damaged}\n{line('b')}\n")
    assert set(found) == {("a", "one"), ("b", "one")}
    (problem,) = problems
    assert problem.startswith("line 2 is no checkpoint: ")
    if "[[[" not in damaged:
        assert problem.endswith(why)


@given(st.integers(0, 400), st.binary(max_size=3))
def test_no_damage_raises_or_is_passed_over(at: int, noise: bytes) -> None:
    whole = line("a").encode()
    raw = whole[:at] + noise + whole[at + 1 :]
    found, problems = parse_checkpoints(raw.decode(errors="surrogateescape"))
    lost = [part for part in raw.split(b"\n") if part]
    assert len(problems) + len(found) <= len(lost)
    assert problems or found or not lost


def test_secrets_are_masked() -> None:
    masked = line("a", 1.0, finding(**{"is": "token=hunter2"}), redactor=Redactor(["hunter2"]))
    assert "hunter2" not in masked
    found, _ = parse_checkpoints(masked)
    assert found["a", "one"].facts[0].values["is"] == "token=[secret]"


def test_compacting_keeps_the_newest_lines_and_changes_nothing_that_is_read() -> None:
    text = "\n".join(["", line("a", 1.0), "{", line("b", 2.0), "", line("a", 3.0)]) + "\n"
    small = compact(text)
    assert small == line("a", 3.0) + "\n" + line("b", 2.0) + "\n"
    assert parse_checkpoints(small)[0] == parse_checkpoints(text)[0]
    assert compact(small) == small
    assert compact("") == ""


def shell(script: str, state: Path | str) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.environ["PATH"], "EAGLE3_STATE": str(state)}
    return subprocess.run(["sh", "-eu", "-c", script], env=env, capture_output=True)


@pytest.mark.parametrize("name", ["extract", "../x", "a b'c\"$(id)", "é", ".", "-n"])
def test_lines_are_appended_and_read_back(tmp_path: Path, name: str) -> None:
    state = tmp_path / "a state"
    nothing = shell(read_script(name).script, state)
    assert (nothing.returncode, nothing.stdout) == (0, b"")
    odd = line("it's", 1.0, finding(**{"is": "a\n'b'\\n\u2028%s é"}))
    for lines in ([odd], [line("b"), line("c")]):
        done = shell(append_script(name, lines) + "echo went on", state)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"went on\n", b"")
    read = shell(read_script(name).script, state)
    found, problems = parse_checkpoints(read.stdout.decode())
    assert problems == []
    assert [step for step, _ in found] == ["it's", "b", "c"]
    assert found["it's", "one"].facts[0].values["is"] == "a\n'b'\\n\u2028%s é"
    (file,) = (state / "checkpoints").iterdir()
    assert (file.stat().st_mode & 0o777, (state / "checkpoints").stat().st_mode & 0o777) == (
        0o600,
        0o700,
    )
    assert sorted(tmp_path.iterdir()) == [state]


def test_a_line_cut_off_by_a_crash_damages_no_other(tmp_path: Path) -> None:
    shell(append_script("x", [line("a"), line("b")]), tmp_path)
    (file,) = (tmp_path / "checkpoints").iterdir()
    file.write_bytes(file.read_bytes()[:-20])
    shell(append_script("x", [line("c")]), tmp_path)
    found, problems = parse_checkpoints(shell(read_script("x").script, tmp_path).stdout.decode())
    assert set(found) == {("a", "one"), ("c", "one")}
    assert len(problems) == 1


def test_writing_fails_without_failing_the_caller(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "state" / "checkpoints" / "x.jsonl").mkdir(parents=True)
    for state in (tmp_path / "file", tmp_path / "state", ""):
        done = shell(append_script("x", [line()]) + "echo went on", state)
        assert (done.returncode, done.stdout) == (0, b"went on\n")


def test_what_cannot_be_read_is_not_absent(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "x.jsonl").mkdir(parents=True)
    done = shell(read_script("x").script, tmp_path)
    assert done.returncode == 1
    assert b"irectory" in done.stderr
    (tmp_path / "file").write_text("")
    beneath = shell(read_script("x").script, tmp_path / "file")
    assert (beneath.returncode, beneath.stdout) == (1, b"")


def test_names_never_meet() -> None:
    names = ["a b", "a_b", "a/b", ".", "..", "..."]
    files = {read_script(name).script.splitlines()[0] for name in names}
    assert len(files) == len(names)
    assert read_script("extract").label == "checkpoints extract"
