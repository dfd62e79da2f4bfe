"""The generated JSON Schema: sound, described, committed, and of one mind with validation."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from runbooks.engine.commands.schema import COMMITTED
from runbooks.engine.load import build_schema, parse_source
from tests.engine.load.support import EXTRACT, PROJECT, real, stubs
from tests.engine.load.test_mutations import JOINED


@pytest.mark.parametrize("registry", [stubs, real])
@pytest.mark.parametrize("references", [False, True])
def test_the_schema_is_a_schema(registry, references: bool) -> None:
    schema = build_schema(registry(), references)
    Draft202012Validator.check_schema(schema)
    # Plain JSON, and no pattern that only Python or only ECMA understands.
    text = json.dumps(schema)
    assert r"\\Z" not in text and r"(?P<" not in text
    for pattern in re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', text):
        re.compile(json.loads(pattern))


def objects(schema):
    if isinstance(schema, dict):
        if schema.get("type") == "object" or "properties" in schema:
            yield schema
        for key, value in schema.items():
            if key not in ("if", "then", "defaultSnippets"):
                yield from objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects(value)


@pytest.mark.parametrize("registry", [stubs, real])
def test_every_object_is_closed_and_every_key_described(registry) -> None:
    schema = build_schema(registry(), references=True)
    found = [item for item in objects(schema) if item.get("type") == "object"]
    assert len(found) > 40
    for item in found:
        assert item.get("additionalProperties") is False, item
        for name, value in item.get("properties", {}).items():
            assert value.get("description"), (name, value)
    operation = schema["$defs"]["operation"]
    assert (operation["minProperties"], operation["maxProperties"]) == (1, 1)


def test_references_stand_wherever_a_value_does() -> None:
    tree = yaml.safe_load(EXTRACT.read_text().replace("37_312", "37312"))
    loose = Draft202012Validator(build_schema(stubs(), references=True))
    strict = Draft202012Validator(build_schema(stubs(), references=False))
    assert not list(loose.iter_errors(tree))
    assert list(strict.iter_errors(tree))
    step = tree["steps"]["purge-old"]
    for key in ("timeout", "transient", "hosts"):
        changed = json.loads(json.dumps(tree))
        changed["steps"]["purge-old"][key] = "${{ vars.x }}"
        assert not list(loose.iter_errors(changed)), key
    step["timeout"] = "72:00:00"
    assert len(list(loose.iter_errors(tree))) == 1


def test_what_joins_files_and_steps_is_known_to_editors() -> None:
    loose = Draft202012Validator(build_schema(stubs(), references=True))

    def faults(text: str) -> int:
        return len(list(loose.iter_errors(yaml.safe_load(text))))

    text = JOINED.decode()
    assert faults(text) == 0
    for old, new in (
        ("  a:\n", '  "a[shard=0]":\n'),
        ("as: data", "as: da.ta"),
        ("lang: [en, de]", "lang: [en, 1.5]"),
        ("lang: [en, de]", "lang: []"),
        ("finished], ", "finished], webhook: 'https://h/', "),
        ('webhook: "${{ secrets.t }}"', "x-nobody: 1"),
        ("needs: [first]", "hosts: [llm-two]"),
    ):
        assert old in text
        assert faults(text.replace(old, new, 1)) == 1, new
    head = text.partition("steps:")[0]
    assert faults(head) == 0 and faults(head.partition("include:")[0]) == 1


def test_facts_have_the_operators_that_fit() -> None:
    definitions = build_schema(stubs())["$defs"]
    operators = {"eq", "ne", "lt", "le", "gt", "ge", "in", "matches", "within"}

    def of(name: str) -> set[str]:
        return operators & set(definitions[f"fact.{name}"]["properties"])

    assert of("disk_free") == operators - {"matches"}
    assert of("path") == {"eq", "ne", "in", "matches"}
    assert of("extraction_ready") == set()
    assert of("gpu_processes") == {"within"}
    assert "host" not in definitions["fact.path"]["properties"]
    assert "host" in definitions["check"]["properties"]


def test_the_committed_schema_is_the_generated_one() -> None:
    generated = build_schema(real(), references=True)
    committed = json.loads((PROJECT / COMMITTED).read_text())
    assert committed == json.loads(json.dumps(generated)), "run: runbook schema --write"


def _check_jsonschema() -> str | None:
    beside = Path(sys.executable).with_name("check-jsonschema")
    return str(beside) if beside.exists() else shutil.which("check-jsonschema")


@pytest.mark.skipif(_check_jsonschema() is None, reason="check-jsonschema is not installed")
def test_check_jsonschema_agrees(tmp_path: Path) -> None:
    command = _check_jsonschema()
    assert command is not None
    schema = tmp_path / "s.json"
    schema.write_text(json.dumps(build_schema(stubs(), references=True)))
    good = subprocess.run(
        [command, "--schemafile", schema, EXTRACT], capture_output=True, text=True
    )
    assert good.returncode == 0, good.stdout
    text = EXTRACT.read_text()
    for old, new in (
        ("timeout: 3h", "timeout: 72:00:00"),
        ("transient: true", "transient: 'false'"),
        ("irreversible:", "irreversable:"),
        ("hosts: [llm-two]", "on: [llm-two]"),
        ("ge: 50 GiB", "ge: 3500"),
        ("disk_free", "disk_fre"),
    ):
        bad = tmp_path / "bad.yaml"
        bad.write_text(text.replace(old, new, 1))
        assert parse_source(bad.read_bytes(), bad)
        told = subprocess.run(
            [command, "--schemafile", schema, bad], capture_output=True, text=True
        )
        assert told.returncode == 1, (new, told.stdout)
