"""Every fact against data files: arguments and answers in, fields or an unknown out.

`cases/FACT/CASE.yaml`: `args`; `answers`, each `for` a part of the label: `exit` and `stderr`, or
`stdout`, or `parts` by key, whose items are a text, `{give: NAME, file: F}` (the host's file NAME
with the text of cases/files/F) or `{lines: F}`; `edit: [OLD, NEW]` changes either, `without: WORD`
leaves lines out. Then `fields` (those named are compared) or `unknown` with a part of the reason.
The project holds cases/files/merge.yaml.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from eagle3.runbook import register
from runbooks.engine.model.host import Context, Host, Root
from runbooks.engine.model.probe import Output, Shell, Unknown
from runbooks.engine.model.values import ABSENT
from runbooks.engine.registry import Registry

CASES = Path(__file__).parent / "cases"
FILES = CASES / "files"
REGISTRY = Registry()
register(REGISTRY)
CASE_FILES = sorted(path for path in CASES.glob("*/*.yaml") if path.parent != FILES)


@pytest.mark.parametrize("name", sorted(REGISTRY.facts))
def test_every_fact_has_cases(name: str) -> None:
    assert list((CASES / name).glob("*.yaml"))


def test_every_field_is_durable() -> None:
    fields = [field for fact in REGISTRY.facts.values() for field in fact.fields.values()]
    assert fields and not any(field.volatile for field in fields)


def _text(item: str | dict[str, Any]) -> str:
    if isinstance(item, str):
        return item
    text = (FILES / str(item.get("file") or item["lines"])).read_text()
    if "edit" in item:
        old, new = item["edit"]
        assert old in text
        text = text.replace(old, new)
    if "without" in item:
        text = "".join(line for line in text.splitlines(True) if item["without"] not in line)
    if "give" in item:
        return f"file\t{item['give']}\n{text}\nend\t{item['give']}\n"
    return text


def _output(answer: dict[str, Any]) -> Output:
    text = answer.get("stdout", "")
    for key, items in answer.get("parts", {}).items():
        text += f"part\t{key}\n{''.join(map(_text, items))}done\t{key}\t0\n"
    return Output(answer.get("exit", 0), text.encode(), answer.get("stderr", ""))


def _context() -> Context:
    roots = {
        name: Root(name, PurePosixPath(path), "one", "tank")
        for name, path in (("data", "/data"), ("model", "/models"))
    }
    host = Host("one", roots=roots)
    return Context(host, {"one": host}, FILES)


@pytest.mark.parametrize("file", CASE_FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_case(file: Path) -> None:
    case = yaml.safe_load(file.read_text())
    fact = REGISTRY.facts[file.parent.name]
    args = {
        name: argument.type.parse(case["args"][name]) if name in case["args"] else argument.default
        for name, argument in fact.arguments.items()
    }
    asked: list[str] = []

    def answer(shell: Shell) -> Output:
        asked.append(shell.label)
        matching = [item for item in case["answers"] if item["for"] in shell.label]
        assert matching, f"no answer for {shell.label!r}"
        # The longest is of the narrowest label: `dataset data:merged checksums`.
        return _output(max(matching, key=lambda item: len(item["for"])))

    reading = fact.read(args, _context())
    try:
        shell = next(reading)
        while True:
            shell = reading.send(answer(shell))
    except StopIteration as stop:
        found = stop.value
    except Unknown as unknown:
        assert "unknown" in case, f"unknown: {unknown.reason}"
        assert case["unknown"] in unknown.reason
        assert "\n" not in unknown.reason
        return
    assert "fields" in case, f"known: {found}"
    assert set(found) == set(fact.fields)
    wanted = {key: ABSENT if value == "ABSENT" else value for key, value in case["fields"].items()}
    assert {key: found[key] for key in wanted} == wanted
    assert len(asked) == len(case["answers"])
