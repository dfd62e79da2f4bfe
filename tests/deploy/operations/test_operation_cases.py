"""Every operation against data files: arguments and answers in, actions or a refusal out.

`cases/OPERATION/CASE.yaml`: `args`, `project` (its files), `answers` (by a part of the look's
or action's label; several for one label are given in order, the last again and again), and
what comes of them: `preview` (summary, diff, frees, files, identity) and `act` (mutating
actions, outcome), or `refused` or `unknown` with a part of the message.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from deploy.operations import OPERATIONS
from runbooks.engine.model.host import Context, Host, Root
from runbooks.engine.model.operation import Command, Delegate, OperationFailed, Progress, Put, Wait
from runbooks.engine.model.probe import Output, Shell, Unknown
from tests.deploy.operations.local_machine import parsed

CASES = Path(__file__).parent / "cases"
BY_NAME = {operation.name: operation for operation in OPERATIONS}
FILES = sorted(CASES.glob("*/*.yaml"))


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_operation_has_cases(name: str) -> None:
    assert list((CASES / name).glob("*.yaml")), f"write tests/deploy/operations/cases/{name}/*.yaml"


def test_every_case_is_of_an_operation() -> None:
    assert {file.parent.name for file in FILES} <= set(BY_NAME)


class Answers:
    """Scripted outputs by label."""

    def __init__(self, given: list[dict[str, Any]]):
        self._given = list(given)

    def to(self, label: str) -> Output:
        matching = [answer for answer in self._given if answer["for"] in label]
        if not matching:
            return Output(0)
        if len(matching) > 1:
            self._given.remove(matching[0])
        answer = matching[0]
        text = str(answer.get("stdout", "")).encode()
        return Output(answer.get("exit", 0), text, answer.get("stderr", ""))


def context_of(case: dict[str, Any], project: Path) -> Context:
    roots = {"data": "/data/eagle3", "sglang": "/opt/sglang", "model": "/models"}
    host = Host(
        "llm-two",
        roots={
            name: Root(name, PurePosixPath(path), case.get("owner", "llm-two"), "tank")
            for name, path in roots.items()
        },
        data=case.get("data", {}),
    )
    owner = Host("kpro6", roots=host.roots)
    return Context(host, {"llm-two": host, "kpro6": owner}, project, "extract", "one")


def plain(action: Any) -> dict[str, Any]:
    """A mutating action as a case writes it."""
    match action:
        case Command():
            shown: dict[str, Any] = {"command": action.label}
            if action.argv:
                shown["argv"] = list(action.argv)
            if action.env:
                shown["env"] = dict(action.env)
            if action.cwd:
                shown["cwd"] = action.cwd
            if action.stdin is not None:
                shown["stdin"] = action.stdin.decode()
            return shown
        case Put():
            shown = {"put": action.path, "content": action.content.decode(), "mode": action.mode}
            if action.secret:
                shown["secret"] = True
            return shown
        case Delegate():
            given = {name: value for name, value in action.arguments.items() if value is not None}
            return {"delegate": action.label, "arguments": given}
    raise AssertionError(action)


def parts() -> list[Any]:
    """Each case once for its preview and once for its act, where it speaks of them."""
    found = []
    for file in FILES:
        case = yaml.safe_load(file.read_text())
        unknown = set(case) - {"args", "project", "answers", "data", "owner", "preview", "act"}
        assert not unknown, f"{file}: {unknown}"
        name = f"{file.parent.name}/{file.stem}"
        found += [
            pytest.param(file, case, part, id=f"{name} {part}")
            for part in ("preview", "act")
            if part in case
        ]
    return found


@pytest.mark.parametrize(("file", "case", "part"), parts())
def test_case(file: Path, case: dict[str, Any], part: str, tmp_path: Path) -> None:
    for name, content in case.get("project", {}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    operation = BY_NAME[file.parent.name]
    context = context_of(case, tmp_path)
    args = parsed(operation, case["args"])
    expected = case[part]
    answers = Answers(case.get("answers", []))
    acted: list[dict[str, Any]] = []
    progress: list[str] = []
    steps: Any = getattr(operation, part)(args, context)
    output: Output | None = None
    result: Any = None
    try:
        while True:
            action = next(steps) if output is None else steps.send(output)
            if isinstance(action, Shell):
                output = answers.to(action.label)
            elif isinstance(action, Progress):
                progress.append(f"{action.text} {action.done}/{action.total} eta {action.eta}")
                output = Output(0)
            elif isinstance(action, Wait):
                output = Output(0)
            else:
                assert part == "act", f"a preview acts: {action}"
                acted.append(plain(action))
                output = answers.to(getattr(action, "label", "") or f"write {action.path}")
    except StopIteration as stop:
        result = stop.value
    except OperationFailed as error:
        assert "refused" in expected, f"refused: {error}"
        assert expected["refused"] in str(error)
        assert acted == expected.get("actions", [])
        return
    except Unknown as error:
        assert "unknown" in expected, f"unknown: {error.reason}"
        assert expected["unknown"] in error.reason
        assert acted == expected.get("actions", [])
        return
    assert "refused" not in expected and "unknown" not in expected, f"went on: {result}"
    if part == "act":
        assert acted == expected.get("actions", [])
        assert result == expected["outcome"]
        if "progress" in expected:
            assert progress == expected["progress"]
        return
    for name, value in expected.items():
        got = getattr(result, name)
        assert (dict(got) if name == "frees" else got) == value
