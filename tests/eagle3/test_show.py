from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eagle3.cli import main
from eagle3.errors import StoreError
from eagle3.units import show_gib
from tests.eagle3.conftest import CASES, WriteLines
from tests.targets import REPOSITORY

if TYPE_CHECKING:
    from tests.eagle3.extract_cases import Case


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


@pytest.fixture(scope="module")
def made(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, Path]:
    """A case, and the whole hidden-state store of it."""
    from eagle3.extract import extract
    from tests.eagle3.extract_cases import make_case

    folder = tmp_path_factory.mktemp("states")
    case = make_case(tiny_target, folder, rows=8)
    extract(case.request(folder / "hidden", layer_ids=(0, 2, 5)))
    return case, folder / "hidden"


@pytest.fixture
def states(made: tuple[Case, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[1], tmp_path / ("hidden" * 20)))


def test_a_hidden_state_store(
    made: tuple[Case, Path], states: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = json.loads((states / "manifest.json").read_text())
    totals = manifest["totals"]
    size = sum(entry["bytes"] for entry in manifest["files"].values())
    found = shown(states, capsys)
    assert found == shown(made[0].data, capsys)
    assert main(["show", str(states), "--rows", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(states)
    facts = dict(line.split("  ", 1) for line in lines[1 : lines.index("")])
    said = {name.strip(): value.strip() for name, value in facts.items()}
    assert said == {
        "samples": f"8 in {totals['shards']} shards",
        "tokens": f"{totals['tokens']:,}, {totals['supervised']:,} supervised "
        f"({totals['supervised'] / totals['tokens']:.1%})",
        "layers": "0,2,5 of 8 (convention output: outputs of layers, counted from 0)",
        "last state": "post (after the final norm)",
        "hidden size": "32",
        "stored as": "bfloat16, computed in float32",
        "size": f"{show_gib(size)} ({size:,} bytes)",
        "digest": manifest["digest"],
        "dataset": manifest["dataset_digest"],
        "target": manifest["target_digest"],
    }
    assert f"{found[0]['source']}/{found[0]['id']}: {found[0]['tokens']} tokens" in "\n".join(lines)


def test_a_hidden_state_store_is_verified(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(states), "--verify"]) == 0
    assert "every byte was read just now" in capsys.readouterr().out
    shard = states / "states-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert main(["show", str(states), "--verify"]) == 6
    assert "states-00000.safetensors: has sha256" in capsys.readouterr().err


def test_an_unfinished_store_says_how_to_go_on(
    made: tuple[Case, Path], states: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from eagle3.extract import extract

    (states / "manifest.json").unlink()
    last = sorted(states.glob("states-*.json"))[-1]
    rows = json.loads(last.read_text())["rows"]
    last.unlink()
    for words in ([], ["--json"], ["--verify"]):
        assert main(["show", str(states), *words]) == 6
        message, command = capsys.readouterr().err.splitlines()
        assert message == (
            f"eagle3 show: {states}: unfinished: {8 - rows} of 8 samples; "
            "run the extraction again to continue"
        )
    words = shlex.split(command)
    assert words[:8] == [
        *("eagle3", "extract", "--target", "TARGET"),
        *("--data", "DATASET", "--out", str(states)),
    ]
    # The options are those of the plan: another plan would be refused.
    given = dict(zip(words[8::2], words[9::2], strict=True))
    assert given == {
        "--layers": "0,2,5",
        "--shard-tokens": "100",
        "--batch-size": "1",
        "--dtype": "float32",
    }
    with pytest.raises(StoreError, match="holds a store of another plan") as refused:
        extract(made[0].request(states))
    assert str(refused.value).endswith(f"or go on with its plan: {command.strip()}")
    assert extract(made[0].request(states, layer_ids=(0, 2, 5))).outcome == "resumed"


def test_a_dataset_s_digests_can_be_copied(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    manifest = json.loads((store / "manifest.json").read_text())
    capsys.readouterr()
    assert main(["show", str(store)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "samples      1 in 1 shard" in lines
    for name in ("digest", "config", "target"):
        key = name if name == "digest" else f"{name}_digest"
        assert f"{name:<11}  {manifest[key]}" in lines


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("torch", "SGLang's environment has it"),
        ("pyarrow", "install eagle3-runbooks[host] beside SGLang's torch"),
        ("gguf", "install eagle3-runbooks[embedded]"),
    ],
)
def test_a_missing_package_says_what_brings_it(
    store: Path,
    module: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def load(*given: object) -> None:
        raise ModuleNotFoundError(f"No module named '{module}'", name=f"{module}.nn")

    monkeypatch.setattr("eagle3.show.load_decoder", load)
    capsys.readouterr()
    assert main(["show", str(store)]) == 5
    assert f"needs the Python package {module}\n  {words}" in capsys.readouterr().err


def test_the_help_says_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    codes = re.findall(r"^  (\d+)  ", out, flags=re.MULTILINE)
    assert codes == ["0", "2", "3", "5", "6", "130", "143"]


def test_an_interrupt_says_how_to_go_on(
    store: Path,
    tmp_path: Path,
    tiny_target: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("eagle3.merge.merge", stop)
    words = ["merge", "--target", str(tiny_target), "--max-tokens", "64", "--seed", "7"]
    capsys.readouterr()
    assert main([*words, "--out", str(tmp_path / "o"), "s=x"]) == 130
    assert capsys.readouterr().err == "eagle3 merge: interrupted; the same command starts over\n"


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
