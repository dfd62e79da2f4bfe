from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eagle3 import merge as merge_module
from eagle3.cli import main
from eagle3.conversations import Conversation
from eagle3.dataset import Dataset
from eagle3.errors import EagleError, InputError, StoreError
from eagle3.merge import MergeResult, merge
from eagle3.merge_config import config_from_arguments
from eagle3.spool import shuffle_key
from tests.eagle3.conftest import WriteLines, write_tiny_target
from tests.targets import REPOSITORY

Chat = Callable[..., dict[str, Any]]


@pytest.fixture
def files(write_lines: WriteLines, chat: Chat) -> dict[str, Path]:
    return {
        name: write_lines(
            f"{name}.jsonl",
            *(chat(f"r{n}", ("user", f"{name} {n}?"), ("assistant", "yes " * n)) for n in range(9)),
            chat("only-user", ("user", "?")),
            chat("r0", ("user", f"{name} 0?"), ("assistant", "")),
        )
        for name in ("one", "two")
    }


@pytest.fixture
def run(tiny_target: Path, files: dict[str, Path], tmp_path: Path) -> Callable[..., MergeResult]:
    """Merge both files to tmp_path/out; keywords change the settings."""

    def call(*names: str, out: str = "out", replace: bool = False, **changes: Any) -> MergeResult:
        settings: dict[str, Any] = {
            "target": str(tiny_target),
            "max_tokens": 64,
            "seed": 42,
            "exclude": [],
        }
        sources = [f"{name}={files[name]}" for name in names or files]
        config = config_from_arguments(sources=sources, **(settings | changes))
        return merge(config, tmp_path / out, replace=replace)

    return call


def contents(directory: Path) -> dict[str, bytes]:
    """Every file but verified.json, which holds inodes and times."""
    return {
        path.name: path.read_bytes() for path in directory.iterdir() if path.name != "verified.json"
    }


def state(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in directory.iterdir()
    }


def test_a_merge(run: Callable[..., MergeResult], tmp_path: Path) -> None:
    result = run()
    assert result.outcome == "written"
    assert result.manifest.samples == 18
    assert result.manifest.duplicates == 2
    assert result.manifest.dropped == 2
    assert result.manifest.sources["one"].dropped == {"no assistant turn": 1}
    assert result.manifest.sources["one"].input.name == "one.jsonl"
    rows = list(Dataset.open(tmp_path / "out").rows())
    assert sorted((row.source, row.id) for row in rows) == sorted(
        (name, f"r{n}") for name in ("one", "two") for n in range(9)
    )
    assert [(row.source, row.id) for row in rows] == sorted(
        ((row.source, row.id) for row in rows), key=lambda pair: shuffle_key(42, *pair)
    )
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "data-00000.parquet",
        "dropped.jsonl",
        "manifest.json",
        "tokenizer.json",
        "verified.json",
    ]
    Dataset.open(tmp_path / "out").verify(full=False)


def test_the_same_inputs_and_seed_give_the_same_bytes(
    run: Callable[..., MergeResult], files: dict[str, Path], tiny_target: Path, tmp_path: Path
) -> None:
    """Whatever the order of arguments, the place of the files and of the target, the time."""
    run(out="a")
    for path in files.values():
        os.utime(path, (1, 1))
    moved = tmp_path / "moved"
    shutil.copytree(tiny_target, moved / "model")
    for name in list(files):
        files[name] = Path(shutil.copy(files[name], moved))
    run("two", "one", out="b", target=str(moved / "model"))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert str(tmp_path) not in (tmp_path / "a/manifest.json").read_text()


def test_another_seed_gives_another_order_of_the_same_rows(
    run: Callable[..., MergeResult], tmp_path: Path
) -> None:
    run(out="a")
    run(out="b", seed=43)
    a, b = (
        [(row.source, row.id) for row in Dataset.open(tmp_path / name).rows()]
        for name in ("a", "b")
    )
    assert a != b
    assert sorted(a) == sorted(b)


def test_an_excluded_source_is_not_read_and_keeps_the_order_of_the_others(
    run: Callable[..., MergeResult], files: dict[str, Path], tmp_path: Path
) -> None:
    run(out="a")
    files["two"].write_text("not JSON")
    result = run(out="b", exclude=["two"])
    assert result.manifest.excluded == ("two",)
    assert list(result.manifest.sources) == ["one"]
    a, b = (list(Dataset.open(tmp_path / name).rows()) for name in ("a", "b"))
    assert [row.id for row in a if row.source == "one"] == [row.id for row in b]


def test_a_finished_store_is_left_untouched(
    run: Callable[..., MergeResult], tmp_path: Path
) -> None:
    run()
    before = state(tmp_path / "out")
    for replace in (False, True):
        assert run(replace=replace).outcome == "unchanged"
    assert state(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 1}, "seed 42 there, 1 here"),
        ({"max_tokens": 65}, "max_tokens 64 there, 65 here"),
        ({"exclude": ["two"]}, "sources one, two there, one here"),
    ],
)
def test_another_store_is_refused_without_replace(
    run: Callable[..., MergeResult], tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    run()
    before = contents(tmp_path / "out")
    with pytest.raises(StoreError, match=words):
        run(**changes)
    assert contents(tmp_path / "out") == before
    assert run(replace=True, **changes).outcome == "written"
    assert not list(tmp_path.glob(".out*"))
    run(out="fresh", **changes)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_changed_inputs_and_targets_are_another_store(
    run: Callable[..., MergeResult], files: dict[str, Path], tmp_path: Path
) -> None:
    run()
    other = write_tiny_target(tmp_path / "other")
    (other / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(StoreError, match="holds another dataset: target"):
        run(target=str(other))
    files["one"].write_text(files["one"].read_text().replace("one 3?", "one 4?"))
    with pytest.raises(StoreError, match=r"input one .* has other content"):
        run()


@pytest.mark.parametrize("name", ["data-00000.parquet", "dropped.jsonl", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_damaged_store_of_the_same_inputs_is_written_again(
    run: Callable[..., MergeResult], tmp_path: Path, name: str, damage: str
) -> None:
    run()
    before = contents(tmp_path / "out")
    path = tmp_path / "out" / name
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"x" * path.stat().st_size)
    assert run().outcome == "repaired"
    assert contents(tmp_path / "out") == before


def test_a_store_that_lost_its_record_is_read_again_and_kept(
    run: Callable[..., MergeResult], tmp_path: Path
) -> None:
    run()
    before = state(tmp_path / "out")
    (tmp_path / "out/verified.json").unlink()
    assert run().outcome == "unchanged"
    after = state(tmp_path / "out")
    assert before | {"verified.json": after["verified.json"]} == after


def test_a_directory_of_something_else_is_never_replaced(
    run: Callable[..., MergeResult], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match="no finished dataset"):
        run()
    with pytest.raises(StoreError, match=r"holds thesis\.txt"):
        run(replace=True)
    assert (out / "thesis.txt").read_text() == "years of work"
    (out / "thesis.txt").rename(out / "manifest.json")
    with pytest.raises(StoreError, match="no finished dataset"):
        run()
    assert run(replace=True).outcome == "written"


def test_a_file_and_an_empty_directory_as_out(
    run: Callable[..., MergeResult], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is no directory"):
        run(out="file", replace=True)
    (tmp_path / "out").mkdir()
    assert run().outcome == "written"


class Killed(BaseException):
    pass


@pytest.mark.parametrize("stage", ["reading", "writing"])
def test_a_killed_merge_starts_again_cleanly(
    run: Callable[..., MergeResult],
    files: dict[str, Path],
    tiny_target: Path,
    tmp_path: Path,
    stage: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = config_from_arguments(
        target=str(tiny_target),
        max_tokens=64,
        seed=42,
        sources=[f"{name}={path}" for name, path in files.items()],
        exclude=[],
    )

    def kill(now: str, done: int, total: int) -> None:
        if now == stage:
            raise Killed

    # A process that is killed outright cleans nothing up.
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *args, **kwargs: None)
        with pytest.raises(Killed):
            merge(config, tmp_path / "out", progress=kill)
    assert (tmp_path / ".out.partial").exists()
    assert not (tmp_path / "out").exists()
    run()
    run(out="fresh")
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
    assert not list(tmp_path.glob(".out*"))


def test_a_bad_line_writes_nothing(
    run: Callable[..., MergeResult], files: dict[str, Path], tmp_path: Path
) -> None:
    with open(files["two"], "a") as stream:
        stream.write('{"id": "t", "input_ids": [1, 2], "loss_mask": [1]}\n')
    with pytest.raises(InputError) as caught:
        run(out="deep/out")
    assert f"{files['two']}:12" in str(caught.value)
    assert not (tmp_path / "deep").exists()


def test_no_row_left_is_an_error_and_writes_nothing(
    run: Callable[..., MergeResult], files: dict[str, Path], chat: Chat, tmp_path: Path
) -> None:
    files["one"].write_text(json.dumps(chat("a", ("user", "?"))) + "\n")
    with pytest.raises(InputError, match="no row is left to train on: 1 no assistant turn"):
        run("one")
    files["one"].write_text("\n")
    with pytest.raises(InputError, match="0 rows read"):
        run("one")
    assert not list(tmp_path.glob("*out*"))


def test_missing_inputs_are_named_together(
    run: Callable[..., MergeResult], files: dict[str, Path]
) -> None:
    for path in files.values():
        path.unlink()
    with pytest.raises(InputError, match=r"no such file: one \(.*\), two \("):
        run()


def test_tokens_outside_the_vocabulary_are_refused(
    run: Callable[..., MergeResult], files: dict[str, Path]
) -> None:
    files["one"].write_text('{"id": "a", "input_ids": [259]}\n')
    with pytest.raises(InputError, match="from 0 to 258"):
        run()


def test_a_full_disk_is_an_error_with_a_place(
    run: Callable[..., MergeResult], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "x"))

    monkeypatch.setattr(merge_module, "_write_shards", full)
    with pytest.raises(StoreError, match="No space left on device"):
        run()
    assert not list(tmp_path.glob("*out*"))


def test_many_shards_and_batches_change_no_row(
    run: Callable[..., MergeResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(out="a")
    monkeypatch.setattr(merge_module, "_BATCH_ROWS", 2)
    writer = merge_module.ShardWriter
    monkeypatch.setattr(merge_module, "ShardWriter", lambda folder: writer(folder, 100))
    result = run(out="b")
    assert len(result.manifest.shards) > 3
    a, b = (list(Dataset.open(tmp_path / name).rows()) for name in ("a", "b"))
    assert [(row.id, row.input_ids.tolist()) for row in a] == [
        (row.id, row.input_ids.tolist()) for row in b
    ]


# The command line.


def test_the_command_with_arguments(
    files: dict[str, Path], tiny_target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["merge", "--target", str(tiny_target), "--max-tokens", "64", "--seed", "1", "--json"]
    words += ["--out", str(tmp_path / "out"), f"one={files['one']}", f"two={files['two']}"]
    words += ["--exclude", "two"]
    assert main(words) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["outcome"] == "written"
    assert found["totals"]["samples"] == 9
    assert found["excluded"] == ["two"]
    assert "dropped 1: no assistant turn" in captured.err
    assert main(words) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["outcome"] == "unchanged"
    assert "nothing to do" in captured.err
    words[6] = "2"
    assert main(words) == 6
    assert "holds another dataset: seed" in capsys.readouterr().err


def test_the_command_with_a_config_and_roots(
    files: dict[str, Path],
    tiny_target: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "target: model:target\nmax_tokens: 64\nseed: 1\nbase: 'data:'\n"
        "sources: {one: {path: one.jsonl}, two: {path: two.jsonl, exclude: true}}\n"
    )
    words = ["merge", "--config", str(config), "--out", "data:merged", "--json"]
    monkeypatch.setenv("EAGLE3_ROOT_MODEL", str(tiny_target.parent))
    assert main(words) == 3
    assert "EAGLE3_ROOT_DATA" in capsys.readouterr().err
    monkeypatch.setenv("EAGLE3_ROOT_DATA", str(tmp_path))
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["out"] == str(tmp_path / "merged")
    from eagle3.merge_config import load_config

    manifest = Dataset.open(tmp_path / "merged").manifest
    assert manifest.config_digest == load_config(config).digest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config", "c.yaml", "--seed", "1"], "leave --seed out"),
        (["--config", "c.yaml", "a=b"], "leave NAME=FILE out"),
        (["a=b"], "--target, --max-tokens, --seed missing"),
        (["--target", "t", "--max-tokens", "1", "--seed", "1"], "no source"),
    ],
)
def test_wrong_usage(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["merge", "--out", str(tmp_path / "out"), *words]) == 2
    assert message in capsys.readouterr().err


DEMO = REPOSITORY / "eagle3" / "data" / "demo"


def demo_arguments() -> list[str]:
    return [f"{path.stem}={path}" for path in sorted(DEMO.glob("*.jsonl"))]


def test_the_demo_is_small_and_varied() -> None:
    from eagle3.conversations import SourceReader

    rows = {path.stem: list(SourceReader(path)) for path in sorted(DEMO.glob("*.jsonl"))}
    assert len(rows) == 4
    every = [row for found in rows.values() for row in found]
    assert all(isinstance(row, Conversation) for row in every)
    assert 55 <= len(every) <= 65
    roles = [[turn["role"] for turn in row.messages] for row in every]  # type: ignore[union-attr]
    assert sum(found[0] == "system" for found in roles) >= 3
    assert sum(found[-1] == "user" and "assistant" in found for found in roles) >= 3
    assert sum(set(found) == {"user"} for found in roles) == 1


@pytest.mark.model
def test_the_demo_merges(smollm2: Path, tmp_path: Path) -> None:
    config = config_from_arguments(
        target=str(smollm2), max_tokens=512, seed=42, sources=demo_arguments(), exclude=[]
    )
    result = merge(config, tmp_path / "out")
    assert result.manifest.samples == 59
    assert result.manifest.dropped == 1
    assert 4_000 < result.manifest.tokens < 12_000


def test_errors_of_a_merge_are_eagle_errors(tmp_path: Path, files: dict[str, Path]) -> None:
    config = config_from_arguments(
        target=str(tmp_path / "absent"),
        max_tokens=8,
        seed=1,
        sources=[f"one={files['one']}"],
        exclude=[],
    )
    with pytest.raises(EagleError, match="absent"):
        merge(config, tmp_path / "out")


def test_the_stat_of_each_input_is_recorded(
    run: Callable[..., MergeResult], files: dict[str, Path], tmp_path: Path
) -> None:
    manifest = run().manifest

    def recorded() -> Any:
        return json.loads((tmp_path / "out/verified.json").read_text())["inputs"]

    def stats() -> dict[str, Any]:
        return {
            name: {
                "size": path.stat().st_size,
                "mtime_ns": path.stat().st_mtime_ns,
                "inode": path.stat().st_ino,
                "sha256": manifest.sources[name].input.sha256,
            }
            for name, path in files.items()
        }

    assert recorded() == stats()
    # Every byte of the dataset again: what was said of the inputs stays.
    os.utime(tmp_path / "out/manifest.json", (1, 1))
    before = stats()
    os.utime(files["one"], (1, 1))
    Dataset.open(tmp_path / "out").verify(full=True)
    assert recorded() == before != stats()
    assert run().outcome == "unchanged"
    assert recorded() == stats()


def test_a_record_from_before_inputs_were_recorded_is_read(
    run: Callable[..., MergeResult], tmp_path: Path
) -> None:
    run()
    path = tmp_path / "out/verified.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({"files": record["files"]}))
    Dataset.open(tmp_path / "out").verify(full=False)
    assert run().outcome == "unchanged"
    assert json.loads(path.read_text()) == record
