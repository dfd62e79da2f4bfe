from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eagle3.cli import main
from eagle3.dataset import Dataset
from tests.eagle3.conftest import CASES, WriteLines
from tests.targets import REPOSITORY


def merge_to(target: Path, out: Path, *sources: str) -> Path:
    words = ["merge", "--target", str(target), "--max-tokens", "64", "--seed", "7"]
    assert main([*words, "--out", str(out), *sources]) == 0
    return out


def shown(store: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["show", str(store), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.model
def test_the_cases_of_the_readme(
    smollm2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """masks.jsonl through `merge` and `show --json` is masks.expected.json, row for row."""
    expected = json.loads((CASES / "masks.expected.json").read_text())["rows"]
    store = merge_to(smollm2, tmp_path / "out", f"cases={CASES / 'masks.jsonl'}")
    found = {row["id"]: row for row in shown(store, capsys)}
    assert len(found) == len(expected)
    for row in expected:
        assert found[row["id"]] == row | {"source": "cases"}


@pytest.fixture
def store(
    tiny_target: Path, write_lines: WriteLines, chat: Callable[..., dict[str, Any]], tmp_path: Path
) -> Path:
    path = write_lines(
        "in.jsonl",
        chat("a", ("user", "Q"), ("assistant", "é 🙂\x1b[31m")),
        chat("b", ("user", "Q")),
    )
    return merge_to(tiny_target, tmp_path / "out", f"s={path}")


def test_rows_and_dropped_rows_as_json(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(store, capsys) == [
        {
            "id": "a",
            "source": "s",
            "tokens": 34,
            "supervised": 13,
            "supervised_text": "é 🙂\x1b[31m<|im_end|>",
            "truncated": False,
        },
        {"id": "b", "source": "s", "dropped": "no assistant turn"},
    ]


def test_the_summary_for_people(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["show", str(store), "--verify"]) == 0
    out = capsys.readouterr().out
    for words in (
        "samples",
        "s/a: 34 tokens, 13 supervised",
        "é 🙂",
        "dropped s/b: no assistant turn",
    ):
        assert words in out
    assert "\x1b" not in out


def test_errors_have_a_place(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(tmp_path / "absent")]) == 6
    assert "no finished store" in capsys.readouterr().err
    assert main(["show", str(store), "--rows", "-1"]) == 2
    (store / "tokenizer.json").write_text("{")
    assert main(["show", str(store)]) == 6
    assert "is no tokenizer" in capsys.readouterr().err
    (store / "tokenizer.json").unlink()
    assert main(["show", str(store)]) == 6
    assert "--tokenizer" in capsys.readouterr().err


def test_a_hidden_state_store(
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`eagle3.states` is asked for its rows by name; what it brings has the fields of a row."""
    states = tmp_path / "states"
    states.mkdir()
    (states / "manifest.json").write_text('{"format": "eagle3-hidden-states"}')
    rows = list(Dataset.open(store).rows())

    class StateStore:
        @classmethod
        def open(cls, directory: Path) -> SimpleNamespace:
            return SimpleNamespace(rows=lambda: iter(rows if directory == states else []))

    monkeypatch.setitem(sys.modules, "eagle3.states", SimpleNamespace(StateStore=StateStore))
    words = ["show", str(states), "--json", "--tokenizer", str(store)]
    capsys.readouterr()
    assert main(words) == 0
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == ["a"]
    assert main([*words, "--verify"]) == 2


def test_a_controller_without_pyarrow_is_told_what_to_install(store: Path) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None; from eagle3.cli import main;"
        f"raise SystemExit(main(['show', {str(store)!r}]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert found.returncode == 5
    assert "needs the Python package pyarrow" in found.stderr
    assert "Traceback" not in found.stderr


def test_a_tokenizer_from_elsewhere(
    store: Path, tiny_target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "tokenizer.json").unlink()
    # The dataset is damaged without it, and says so; the option is for hidden-state stores.
    assert main(["show", str(store), "--tokenizer", str(tiny_target)]) == 6
    assert "tokenizer.json: is missing" in capsys.readouterr().err
