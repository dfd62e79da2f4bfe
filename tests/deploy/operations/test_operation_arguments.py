"""What operations declare: closed, described, and the same for the schema and the parser."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from deploy.operations import OPERATIONS
from deploy.operations.arguments import JobProgress, Mode, Plain, ProjectFile, Sha256
from runbooks.engine.model.operation import Operation
from runbooks.engine.model.values import ValueType, typed_schema
from runbooks.engine.registry import Registry
from tests.deploy.operations.local_machine import parsed

BY_NAME = {operation.name: operation for operation in OPERATIONS}


def test_they_register() -> None:
    registry = Registry()
    for operation in OPERATIONS:
        registry.add_operation(operation)
    assert sorted(registry.operations) == sorted(BY_NAME)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_argument_is_described(operation: Operation) -> None:
    assert operation.about.endswith(".")
    assert operation.symbol in "+~->"
    assert operation.destructive == (operation.symbol == "-")
    assert operation.long == (operation.symbol == ">")
    for name, argument in operation.arguments.items():
        assert argument.about.endswith("."), name
        assert not (argument.required and argument.default is not None), name
        jsonschema.Draft202012Validator.check_schema(typed_schema(argument.type))
        if argument.default is not None:
            assert argument.type.parse(argument.default) == argument.default


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (ProjectFile(), ["a", "deploy/x y.conf"], ["", "/etc/passwd", 1]),
        (Mode(), ["0644", "644", "4755"], ["rw-r--r--", "0648", "06440", 420, "0644\n"]),
        (Sha256(), ["0" * 64], ["0" * 63, "G" * 64, 0, "0" * 64 + "\n"]),
        (Plain(), ["a", 1, 0.5, True, ["a", 1]], [None, {"a": 1}, [["a"]]]),
        (
            JobProgress(),
            [{"file": "data:p.json"}, {"count": "data:*.done", "of": 3}],
            [{}, "data:p", {"files": "data:p"}, {"file": "p"}, {"count": "data:*", "of": 0}],
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ValueType) else "",
)
def test_schema_and_parser_agree(kind: ValueType, good: list[Any], bad: list[Any]) -> None:
    validator = jsonschema.Draft202012Validator(kind.schema())
    for raw in good:
        kind.parse(raw)
        assert validator.is_valid(raw), raw
        assert kind.show(kind.parse(raw))
    for raw in bad:
        with pytest.raises(ValueError, match=r"."):
            kind.parse(raw)
        assert not validator.is_valid(raw), raw


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"file": "data:p", "count": "data:*", "of": 1}, "either file, or count and of"),
        ({"count": "data:*"}, "belong together"),
        ({"of": 3}, "either file, or count and of"),
    ],
)
def test_progress_is_one_or_the_other(raw: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        JobProgress().parse(raw)


@pytest.mark.parametrize("raw", ["../x", "a/../../x"])
def test_a_project_file_stays_in_the_project(raw: str) -> None:
    with pytest.raises(ValueError, match="leaves the project"):
        ProjectFile().parse(raw)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("package", {"name": "eagle3-runbooks", "from": "controller"}),
        ("job", {"argv": ["eagle3", "merge", "--out", "data:merged"], "resumable": True}),
        ("delete", {"paths": ["data:hidden-10k"]}),
        ("sglang_patch", {"patch": "hidden-state-dump", "reverse": True}),
        ("sglang_server", {"mode": "stopped"}),
        ("patch", {"repo": "sglang:", "file": "patches/extract-hidden.patch"}),
        ("service", {"unit": "sglang", "state": "restarted", "env": {"SGLANG_MODE": "extract"}}),
        (
            "job",
            {"argv": ["x"], "env": {"T": ""}, "progress": {"count": "data:h/*.done", "of": 8780}},
        ),
    ],
)
def test_the_designs_examples_parse(name: str, raw: dict[str, Any]) -> None:
    assert set(parsed(BY_NAME[name], raw)) == set(raw)
