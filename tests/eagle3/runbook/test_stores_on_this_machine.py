"""Real stores, read by a real shell, whole and damaged in every way."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runbooks.engine.model.probe import Unknown
from tests.eagle3.runbook.here import NOBODY, Here

DATASET: dict[str, Any] = {"path": "data:merged", "config": "merge.yaml"}
STATES: dict[str, Any] = {"path": "data:hidden", "of": "data:merged", "target": "model:tiny"}
STORES = {"dataset": ("merged", DATASET), "hidden_states": ("hidden", STATES)}
SHARD = {"dataset": "data-00000.parquet", "hidden_states": "states-00001.safetensors"}
# Root may look everywhere: then another user looks.
SOMEBODY = NOBODY if os.geteuid() == 0 else None

both = pytest.mark.parametrize("name", sorted(STORES))


def read(here: Here, name: str, checksums: str = "recorded", user: int | None = None) -> str:
    return here.state(name, user, **STORES[name][1], checksums=checksums)


def store(here: Here, name: str) -> Path:
    return here.folder / "data" / STORES[name][0]


def flip(path: Path) -> None:
    """Another byte, and the same size, mtime and inode."""
    before = path.stat()
    with open(path, "r+b") as stream:
        stream.seek(before.st_size // 2)
        byte = stream.read(1)[0]
        stream.seek(before.st_size // 2)
        stream.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@both
@pytest.mark.parametrize("checksums", ["recorded", "full"])
def test_a_whole_store_is_complete(here: Here, name: str, checksums: str) -> None:
    assert read(here, name, checksums) == "complete"


def test_counts_are_those_of_the_manifests(here: Here) -> None:
    manifest = json.loads((store(here, "dataset") / "manifest.json").read_text())
    dataset = here.fact("dataset", **DATASET)
    states = here.fact("hidden_states", **STATES)
    assert states["complete"] is True
    assert dataset["digest"] == manifest["digest"]
    for key in ("samples", "tokens", "supervised"):
        assert dataset[key] == states[key] == manifest["totals"][key]
    assert dataset["samples"] == 20


@both
def test_one_look_for_recorded_two_for_full(here: Here, name: str) -> None:
    read(here, name)
    assert len(here.asked) == 1
    read(here, name, "full")
    assert [shell.label.endswith(" checksums") for shell in here.asked] == [False, False, True]
    # Thousands of names would be more than an argument of a program may hold.
    assert not any(SHARD[name] in shell.script for shell in here.asked)


@both
@pytest.mark.parametrize("checksums", ["recorded", "full"])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda shard: os.truncate(shard, 100), "has 100 bytes, its manifest says"),
        (lambda shard: shard.unlink(), "is missing"),
        (lambda shard: (shard.unlink(), shard.symlink_to("nowhere")), "is missing"),
        (lambda shard: (shard.unlink(), shard.mkdir()), "is no file"),
        (lambda shard: (shard.parent / "notes.txt").touch(), "holds notes.txt, which"),
    ],
    ids=["truncated", "deleted", "dangling", "folder", "stranger"],
)
def test_damage_that_names_and_sizes_tell(
    here: Here, name: str, damage: Callable[[Path], object], words: str, checksums: str
) -> None:
    damage(store(here, name) / SHARD[name])
    found = read(here, name, checksums)
    assert words in found
    assert SHARD[name] in found or "notes.txt" in found
    assert here.fact(name, **STORES[name][1]).get("complete") in (False, None)


@both
def test_a_flipped_byte_is_found_by_reading_every_byte(here: Here, name: str) -> None:
    flip(store(here, name) / SHARD[name])
    assert read(here, name, "recorded") == "complete"
    assert read(here, name, "full") == (
        f"{SHARD[name]} is damaged: its sha256 is not the manifest's"
    )


@both
def test_a_touched_file_needs_another_verification(here: Here, name: str) -> None:
    os.utime(store(here, name) / SHARD[name], ns=(1, 1))
    assert read(here, name) == (f"{SHARD[name]} is not as it was when it was last verified (mtime)")
    assert read(here, name, "full") == "complete"


@both
def test_a_nanosecond_is_a_touch(here: Here, name: str) -> None:
    shard = store(here, name) / SHARD[name]
    os.utime(shard, ns=(1, shard.stat().st_mtime_ns + 1))
    assert "(mtime)" in read(here, name)


@both
def test_a_copy_in_its_place_needs_another_verification(here: Here, name: str) -> None:
    shard = store(here, name) / SHARD[name]
    shutil.copy2(shard, shard.with_name("copy"))
    shard.with_name("copy").replace(shard)
    assert "(inode)" in read(here, name)


@both
def test_without_a_record_it_was_never_verified(here: Here, name: str) -> None:
    (store(here, name) / "verified.json").unlink()
    assert read(here, name) == "was never verified"
    assert read(here, name, "full") == "complete"


@both
def test_absent(here: Here, name: str) -> None:
    shutil.rmtree(store(here, name))
    assert read(here, name) == "absent"
    store(here, name).mkdir()
    assert read(here, name) == "absent"
    store(here, name).rmdir()
    store(here, name).touch()
    assert read(here, name) == "absent"


@both
@pytest.mark.parametrize("part", ["folder", "parent", "manifest", "shard"])
def test_what_may_not_be_seen_is_unknown(here: Here, name: str, part: str) -> None:
    folder = store(here, name)
    locked = {
        "folder": folder,
        "parent": folder.parent,
        "manifest": folder / "manifest.json",
        "shard": folder / SHARD[name],
    }[part]
    mode = locked.stat().st_mode
    locked.chmod(0)
    try:
        found = read(here, name, "full", SOMEBODY)
    finally:
        locked.chmod(mode)
    assert found.startswith("unknown: ")
    assert "ermission denied" in found or "cannot be" in found


@both
def test_a_folder_without_the_right_to_list_is_unknown(here: Here, name: str) -> None:
    store(here, name).chmod(0o711 if SOMEBODY else 0o111)
    found = read(here, name, user=SOMEBODY)
    store(here, name).chmod(0o755)
    assert found.startswith("unknown: ") and "cannot be listed" in found


@both
def test_an_unmounted_root_is_unknown_never_absent(here: Here, name: str) -> None:
    shutil.rmtree(store(here, name))
    here.mounted = True
    assert "is not mounted" in read(here, name)


def test_another_config_is_another_dataset(here: Here) -> None:
    config = here.folder / "merge.yaml"
    config.write_text("# a remark changes nothing\n" + config.read_text())
    assert read(here, "dataset") == "complete"
    config.write_text(config.read_text().replace("seed: 3", "seed: 4"))
    assert read(here, "dataset") == "merged by another config than merge.yaml"


def test_inputs_that_grew(here: Here) -> None:
    """Regenerated responses: they would never be merged if this dataset passed for theirs."""
    words = here.folder / "data" / "raw" / "words.jsonl"
    before = words.stat().st_size
    with words.open("a") as stream:
        stream.write("\n")
    for checksums in ("recorded", "full"):
        assert read(here, "dataset", checksums) == (
            f"of other inputs: words.jsonl has {before + 1:,} bytes, want {before:,}"
        )


def test_an_input_with_another_byte(here: Here) -> None:
    words = here.folder / "data" / "raw" / "words.jsonl"
    flip(words)
    # Not even its time tells: only reading it does, and a delete's proof reads it.
    assert read(here, "dataset") == "complete"
    assert read(here, "dataset", "full") == "of other inputs: words.jsonl has another sha256"


def test_an_input_that_was_touched_is_judged_by_its_bytes(here: Here) -> None:
    words = here.folder / "data" / "raw" / "words.jsonl"
    os.utime(words, ns=(1, words.stat().st_mtime_ns + 1))
    assert read(here, "dataset") == (
        "input words.jsonl is not as it was when it was merged (mtime)"
    )
    assert read(here, "dataset", "full") == "complete"
    verified = store(here, "dataset") / "verified.json"
    record = json.loads(verified.read_text())
    del record["inputs"]
    verified.write_text(json.dumps(record))
    assert read(here, "dataset") == "complete"


@pytest.mark.parametrize("checksums", ["recorded", "full"])
def test_a_dataset_outlives_its_inputs(here: Here, checksums: str) -> None:
    shutil.rmtree(here.folder / "data" / "raw")
    assert read(here, "dataset", checksums) == "complete"


@pytest.mark.parametrize("checksums", ["recorded", "full"])
def test_inputs_that_may_not_be_seen(here: Here, checksums: str) -> None:
    raw = here.folder / "data" / "raw"
    raw.chmod(0)
    try:
        found = read(here, "dataset", checksums, SOMEBODY)
    finally:
        raw.chmod(0o755)
    assert found == f"unknown: {raw}/words.jsonl: Permission denied"


def test_an_input_that_may_not_be_read(here: Here) -> None:
    words = here.folder / "data" / "raw" / "words.jsonl"
    words.chmod(0)
    assert read(here, "dataset", "recorded", SOMEBODY) == "complete"
    assert read(here, "dataset", "full", SOMEBODY) == f"unknown: {words}: it cannot be read"


def test_a_merge_again_records_its_inputs_again(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eagle3.merge import merge
    from eagle3.merge_config import load_config

    words = here.folder / "data" / "raw" / "words.jsonl"
    os.utime(words, ns=(1, 1))
    assert "(mtime)" in read(here, "dataset")
    for root in ("data", "model"):
        monkeypatch.setenv(f"EAGLE3_ROOT_{root.upper()}", str(here.folder / root))
    config = load_config(here.folder / "merge.yaml")
    assert merge(config, store(here, "dataset")).outcome == "unchanged"
    assert read(here, "dataset") == "complete"


def test_states_of_other_layers(here: Here) -> None:
    state = here.state("hidden_states", **STATES, layers="1,3,4")
    assert state == here.state("hidden_states", **STATES) == "complete"
    assert here.state("hidden_states", **STATES, layers="0,1,2") == (
        "of other layers (1,3,4; want 0,1,2)"
    )
    found = here.fact("hidden_states", **STATES)
    assert (found["layer_ids"], found["dtype"]) == ("1,3,4", "bfloat16")


def test_a_store_of_the_first_rows_is_not_complete(here: Here) -> None:
    from eagle3.extract import extract
    from tests.eagle3.extract_cases import Case

    case = Case(here.folder / "model" / "tiny", here.folder / "data" / "merged")
    extract(case.request(here.folder / "data" / "few", limit=3))
    found = here.fact("hidden_states", **STATES | {"path": "data:few"})
    assert found["state"].startswith("3 of 20 samples, ")
    assert found["complete"] is False


def test_states_of_inputs_that_changed(here: Here) -> None:
    head = here.folder / "model" / "tiny" / "config.json"
    text = head.read_text()
    head.write_text(text + "\n")
    assert read(here, "hidden_states").startswith("of another target (")
    head.write_text(text)
    assert read(here, "hidden_states") == "complete"
    shutil.rmtree(here.folder / "model" / "tiny")
    assert read(here, "hidden_states") == "target absent"
    (here.folder / "data" / "merged" / "manifest.json").unlink()
    assert read(here, "hidden_states") == "dataset absent"


def test_an_unfinished_store_says_how_far_it_is(here: Here) -> None:
    folder = store(here, "hidden_states")
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("states-*.json"))]
    assert len(records) > 4
    (folder / "manifest.json").unlink()
    (folder / records[-1]["file"]).unlink()
    os.truncate(folder / records[-2]["file"], 10)
    (folder / records[-3]["file"]).with_suffix(".json").unlink()
    whole = records[:-3]
    found = here.fact("hidden_states", **STATES)
    assert found["samples"] == sum(item["rows"] for item in whole)
    assert found["tokens"] == sum(item["tokens"] for item in whole)
    assert found["state"] == f"partial: {found['samples']} of 20 samples"
    assert found["complete"] is False


def test_inputs(here: Here) -> None:
    raw = here.folder / "data" / "raw"
    size = (raw / "words.jsonl").stat().st_size
    (raw / "held-out.jsonl").unlink()
    found = here.fact("dataset_inputs", config="merge.yaml")
    assert found == {"present": "all", "count": 1, "bytes": size}
    raw.chmod(0)
    try:
        with pytest.raises(Unknown, match="Permission denied"):
            here.fact("dataset_inputs", SOMEBODY, config="merge.yaml")
    finally:
        raw.chmod(0o755)
    (raw / "words.jsonl").write_text("")
    found = here.fact("dataset_inputs", config="merge.yaml")
    assert found["present"] == f"empty: words ({raw}/words.jsonl)"
    (raw / "words.jsonl").unlink()
    found = here.fact("dataset_inputs", config="merge.yaml")
    assert found == {"present": f"missing: words ({raw}/words.jsonl)", "count": 0, "bytes": 0}
    here.mounted = True
    with pytest.raises(Unknown, match="is not mounted"):
        here.fact("dataset_inputs", config="merge.yaml")


def test_reading_changes_nothing(here: Here) -> None:
    def seen() -> list[tuple[str, int, int]]:
        return sorted(
            (str(path), path.stat().st_mtime_ns, path.stat().st_size)
            for path in here.folder.rglob("*")
        )

    before = seen()
    for name in STORES:
        read(here, name, "full")
    here.fact("dataset_inputs", config="merge.yaml")
    here.estimate()
    assert seen() == before
