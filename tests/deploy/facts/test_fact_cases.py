"""Every fact against data files: arguments and answers in, fields or an unknown out.

`cases/FACT/CASE.yaml`: `args`; `answers`, each `for` a part of the probe's label (and a `host`
where it is asked of another one), with `stdout`, `stderr`, `exit`; and what comes of them:
`fields` (those named are compared; `{unknown: TEXT}` is a field that cannot be known, `absent`
one with nothing there), or `unknown` with a part of the reason. `stdout` is a text, or a list
of texts and of `{file: NAME, each: PREFIX}` (a file of tests/fixtures, PREFIX before each
line), `{ps: NAME}` (a table of ps(1) as the probe prints processes). An `absent` that is a
word of the field is written `{word: absent}`.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from deploy.facts import FACTS
from runbooks.engine.model.fact import Fact
from runbooks.engine.model.host import Context, Host, Root
from runbooks.engine.model.probe import Output, Unknown
from runbooks.engine.model.values import ABSENT

CASES = Path(__file__).parent / "cases"
FIXTURES = Path(__file__).parents[2] / "fixtures"
BY_NAME = {fact.name: fact for fact in FACTS}
FILES = sorted(CASES.glob("*/*.yaml"))


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_fact_has_cases(name: str) -> None:
    assert list((CASES / name).glob("*.yaml")), f"write tests/deploy/facts/cases/{name}/*.yaml"


def test_every_case_is_of_a_fact() -> None:
    assert {file.parent.name for file in FILES} <= set(BY_NAME)


def parsed(fact: Fact, raw: dict[str, Any]) -> dict[str, Any]:
    """Arguments as `load` gives them: every declared one, parsed or with its default."""
    assert set(raw) <= set(fact.arguments), f"{fact.name} has no argument {raw}"
    return {
        name: argument.type.parse(raw[name]) if name in raw else argument.default
        for name, argument in fact.arguments.items()
    }


def from_ps(text: str) -> str:
    """A table of ps(1) as lines of /proc: stat, cgroup, command line."""
    header, *rows = text.splitlines()
    columns = header.split()
    lines = ["process\t1 (systemd) S 0 1\t/init.scope\t/sbin/init"]
    for row in rows:
        values = dict(zip(columns, row.split(None, len(columns) - 1), strict=True))
        command = values.get("COMMAND") or values["CMD"]
        state = values.get("STAT", "S")[0]
        title = command.split()[0].strip("[]")[:15]
        shown = "" if state == "Z" else command
        unit = "/system.slice/sglang.service"
        lines.append(
            f"process\t{values['PID']} ({title}) {state} {values['PPID']} 1\t{unit}\t{shown}"
        )
    return "\n".join(lines) + "\n"


def text_of(stdout: Any) -> str:
    if isinstance(stdout, str):
        return stdout
    text = ""
    for part in stdout:
        if isinstance(part, str):
            text += part
        elif "ps" in part:
            text += from_ps((FIXTURES / part["ps"]).read_text())
        else:
            lines = (FIXTURES / part["file"]).read_text().splitlines()
            text += "".join(f"{part.get('each', '')}{line}\n" for line in lines)
    return text


def context_of(case: dict[str, Any], project: Path) -> Context:
    paths = {"data": "/data/eagle3", "sglang": "/opt/sglang"}
    mine = {
        name: Root(name, PurePosixPath(path), case.get("owner", "llm-two"), "tank", mounted=True)
        for name, path in paths.items()
    }
    theirs = {"data": Root("data", PurePosixPath("/tank/data"), "kpro6", "tank", mounted=True)}
    host = Host("llm-two", roots=mine, data=case.get("data", {}))
    fleet = {"llm-two": host, "kpro6": Host("kpro6", roots=theirs if case.get("owner") else {})}
    return Context(host, fleet, project, "extract", "one")


def answer(case: dict[str, Any], label: str, host: str | None) -> Output:
    here = [one for one in case["answers"] if one.get("host") == host]
    exact = [one for one in here if one["for"] == label]
    matching = exact or [one for one in here if one["for"] in label]
    assert len(matching) == 1, f"{len(matching)} answers for {label!r} on {host or 'the host'}"
    one = matching[0]
    stdout = text_of(one.get("stdout", "")).encode(one.get("encoding", "utf-8"))
    return Output(one.get("exit", 0), stdout, one.get("stderr", ""))


def plain(fact: Fact, name: str, value: Any) -> Any:
    if isinstance(value, Unknown):
        return {"unknown": value.reason}
    if value is ABSENT:
        return "absent"
    return {"word": value} if value == "absent" else value


@pytest.mark.parametrize("file", FILES, ids=[f"{file.parent.name}/{file.stem}" for file in FILES])
def test_case(file: Path, tmp_path: Path) -> None:
    case = yaml.safe_load(file.read_text())
    for name, content in case.get("project", {}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    fact = BY_NAME[file.parent.name]
    asking = fact.read(parsed(fact, case.get("args", {})), context_of(case, tmp_path))
    fields: Any = {}
    try:
        shell = next(asking)
        while True:
            shell = asking.send(answer(case, shell.label, shell.host))
    except StopIteration as stop:
        fields = stop.value
    except Unknown as error:
        assert "unknown" in case, f"unknown: {error.reason}"
        assert case["unknown"] in error.reason
        return
    assert "unknown" not in case, f"went on: {fields}"
    assert set(fields) == set(fact.fields), "a fact returns every field"
    for name, expected in case["fields"].items():
        got = plain(fact, name, fields[name])
        if isinstance(expected, dict) and "unknown" in expected:
            assert isinstance(got, dict) and expected["unknown"] in got.get("unknown", ""), got
        else:
            assert got == expected, name
        if not isinstance(got, dict) and got != "absent":
            fact.fields[name].type.show(fields[name])
