"""The bad runbooks of `tests/cases/runbooks`, through the real command."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.engine.load.command import PROJECT, runbook
from tests.engine.load.support import CASES, EXTRACT, load_file, real, stubs

EXPECTED = yaml.safe_load((CASES / "expected.yaml").read_text())


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)


def test_every_case_is_expected() -> None:
    files = sorted(file.name for file in CASES.glob("[0-9]*.yaml"))
    assert [case["file"] for case in EXPECTED] == files and len(files) == 22


@pytest.mark.parametrize("stand_ins", [True, False], ids=["stubs", "real"])
@pytest.mark.parametrize("case", EXPECTED, ids=lambda case: case["file"])
def test_case(case: dict, stand_ins: bool, capsys: pytest.CaptureFixture[str]) -> None:
    file = f"tests/cases/runbooks/{case['file']}"
    code = runbook("validate", file, stand_ins=stand_ins)
    out, err = capsys.readouterr()
    assert code == case["exit"]
    assert out == "" and "Traceback" not in err
    places = re.findall(rf"^{re.escape(file)}:(\d+):(\d+): error: (.*)$", err, re.MULTILINE)
    assert len(places) == 1 and err.count(" error: ") == 1, err
    line, _, message = places[0]
    assert int(line) == case["line"]
    assert err.startswith(f"{file}:{case['line']}:")
    for word in case["says"]:
        assert word.lower() in message.lower(), (word, message)


@pytest.mark.parametrize("stand_ins", [True, False], ids=["stubs", "real"])
@pytest.mark.parametrize("given", ["runbooks/extract.yaml", "extract", "./runbooks/extract.yaml"])
def test_extract_is_valid(given: str, stand_ins: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert runbook("validate", given, stand_ins=stand_ins) == 0
    assert "valid: 7 steps on llm-two" in capsys.readouterr().out


def test_extract_is_the_runbook_of_the_design() -> None:
    book = load_file(EXTRACT, stubs())
    assert EXTRACT.read_text().startswith(
        "# yaml-language-server: $schema=./runbook.schema.json\nrunbook: extract\n"
    )
    assert book.order == tuple(book.steps)
    assert [name for name, step in book.steps.items() if step.gate] == ["situation"]
    assert [name for name, step in book.steps.items() if step.irreversible] == ["purge-old"]
    assert [name for name, step in book.steps.items() if step.transient] == ["serve-extract"]
    assert book.steps["merge"].timeout is None and book.steps["deploy"].timeout == 1800
    assert book.steps["deploy"].retry.times == 2 and book.steps["purge-old"].retry.times == 0
    assert book.variables == {"samples": 37312, "merge_config": "merge/100k.yaml"}
    assert book.consulted == {"kpro6"}


def test_every_committed_runbook_loads() -> None:
    for file in sorted((PROJECT / "runbooks").glob("*.yaml")):
        load_hosts = pytest.importorskip("runbooks.engine.adapter.inventory").load_hosts
        hosts = dict(load_hosts("inventory"))
        if (PROJECT / "inventory" / "local.py").exists():
            hosts |= load_hosts("inventory/local.py")
        from runbooks.engine.load import load_runbook

        assert load_runbook(file, real(), hosts).steps
