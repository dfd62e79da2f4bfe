"""Extractions that are killed, and stores that are damaged between two runs."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from eagle3.dataset import Dataset
from eagle3.errors import StoreError
from eagle3.extract import extract
from eagle3.files import sha256_file
from eagle3.states import StateStore
from eagle3.states_manifest import MANIFEST, VERIFIED
from tests.eagle3.extract_cases import Case, content, environment, make_case, run_command
from tests.targets import REPOSITORY


@pytest.fixture(scope="module")
def case(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tiny_target, tmp_path_factory.mktemp("resume"), rows=240)


@pytest.fixture(scope="module")
def whole(case: Case, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The content of a store that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole") / "hidden"
    extract(case.request(out))
    return content(out)


def kill_at(command: list[str], out: Path, shards: int, delay: float) -> int:
    """Start `command`, and kill -9 it `delay` seconds after `shards` shards are there."""
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=environment(), stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and len(list(out.glob("states-*.json"))) < shards:
            time.sleep(0.0005)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
    return process.returncode


@pytest.mark.slow
def test_killed_five_times_it_is_the_same_store(
    case: Case, whole: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "hidden"
    chance = random.Random(17)
    total = sum(name.endswith(".safetensors") for name in whole)
    moments = sorted(chance.sample(range(1, total - total // 4), 5))
    codes = [kill_at(case.command(out), out, at, chance.uniform(0, 0.03)) for at in moments]
    # A slow watcher may come too late once, hardly five times.
    assert -signal.SIGKILL in codes
    done = run_command(case.command(out))
    assert done.returncode == 0, done.stderr
    assert content(out) == whole
    rows = Counter((row.source, row.id) for row in StateStore.open(out).rows())
    assert rows == Counter((row.source, row.id) for row in Dataset.open(case.data).rows())
    StateStore.open(out).verify(full=False)
    assert not list(out.glob(".*.partial"))


def _truncate(out: Path) -> str:
    path = out / "states-00003.safetensors"
    with open(path, "r+b") as stream:
        stream.truncate(path.stat().st_size - 100)
    return path.name


def _flip(out: Path) -> str:
    path = out / "states-00004.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return path.name


def _lose_sidecar(out: Path) -> str:
    (out / "states-00005.json").unlink()
    return "states-00005.json"


def _lose_shard(out: Path) -> str:
    (out / "states-00006.safetensors").unlink()
    return "states-00006.safetensors"


def _spoil_sidecar(out: Path) -> str:
    path = out / "states-00007.json"
    path.write_text(path.read_text().replace('"rows": ', '"rows": 1'))
    return path.name


def _spoil_manifest(out: Path) -> str:
    path = out / MANIFEST
    path.write_text(path.read_text().replace('"tokens": ', '"tokens": 1'))
    return path.name


def _lose_tokenizer(out: Path) -> str:
    (out / "tokenizer.json").unlink()
    return "tokenizer.json"


DAMAGES = [
    _truncate,
    _flip,
    _lose_sidecar,
    _lose_shard,
    _spoil_sidecar,
    _spoil_manifest,
    _lose_tokenizer,
]


@pytest.mark.parametrize("trust_recorded", [False, True])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda function: function.__name__)
def test_damage_to_a_complete_store_is_found_and_redone(
    case: Case,
    small: Path,
    tmp_path: Path,
    damage: Callable[[Path], str],
    trust_recorded: bool,
) -> None:
    out = tmp_path / "hidden"
    _copy(small, out)
    name = damage(out)
    with pytest.raises(StoreError):
        StateStore.open(out).verify(full=True)
    result = extract(case.request(out, limit=30, trust_recorded=trust_recorded))
    assert result.outcome == "resumed"
    assert content(out) == content(small)
    # Only what was damaged was done again.
    redone = 0 if name in {MANIFEST, "tokenizer.json"} else 1
    assert result.kept_shards == len(StateStore.open(out).shards) - redone
    StateStore.open(out).verify(full=False)


@pytest.mark.parametrize("trust_recorded", [False, True])
@pytest.mark.parametrize("damage", [_truncate, _flip, _lose_sidecar, _lose_shard, _spoil_sidecar])
def test_damage_to_an_unfinished_store_is_redone(
    case: Case,
    small: Path,
    tmp_path: Path,
    damage: Callable[[Path], str],
    trust_recorded: bool,
) -> None:
    out = tmp_path / "hidden"
    _copy(small, out)
    (out / MANIFEST).unlink()
    (out / "states-00001.json").unlink()
    damage(out)
    result = extract(case.request(out, limit=30, trust_recorded=trust_recorded))
    assert (result.outcome, content(out)) == ("resumed", content(small))
    assert result.kept_shards == len(StateStore.open(out).shards) - 2


@pytest.fixture(scope="module")
def small(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("small") / "hidden"
    extract(case.request(out, limit=30))
    return out


def _copy(source: Path, out: Path) -> None:
    """A store elsewhere, verified there: inodes are new."""
    out.mkdir()
    for path in source.iterdir():
        if path.name != VERIFIED:
            (out / path.name).write_bytes(path.read_bytes())
    StateStore.open(out).verify(full=True)


def test_a_change_is_seen_by_recorded_checksums(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "hidden"
    _copy(small, out)
    store = StateStore.open(out)
    store.verify(full=False)
    _flip(out)
    with pytest.raises(StoreError, match=r"states-00004\.safetensors.*last verified"):
        store.verify(full=False)


def test_a_shard_of_another_plan_is_not_taken(case: Case, small: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "hidden", tmp_path / "other"
    _copy(small, out)
    extract(case.request(other, limit=30, layer_ids=(0, 2, 5)))
    for suffix in ("json", "safetensors"):
        name = f"states-00002.{suffix}"
        (out / name).write_bytes((other / name).read_bytes())
    with pytest.raises(StoreError, match=r"states-00002"):
        StateStore.open(out)
    result = extract(case.request(out, limit=30))
    assert result.kept_shards == len(StateStore.open(out).shards) - 1
    assert content(out) == content(small)


def test_strange_shards_and_lost_plans_are_refused(case: Case, small: Path, tmp_path: Path) -> None:
    out = tmp_path / "hidden"
    _copy(small, out)
    (out / "states-00999.safetensors").write_bytes(b"?")
    with pytest.raises(StoreError, match="states-00999"):
        extract(case.request(out, limit=30))
    (out / "states-00999.safetensors").unlink()
    (out / "plan.json").unlink()
    with pytest.raises(StoreError, match=r"without a plan\.json"):
        extract(case.request(out, limit=30))


def test_an_unreadable_shard_is_not_taken_for_a_damaged_one(
    case: Case, small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "hidden"
    _copy(small, out)
    # Permissions do not stop root; a directory gives another error than "no such file" to all.
    (out / "states-00003.safetensors").unlink()
    (out / "states-00003.safetensors").mkdir()
    with pytest.raises(StoreError, match=r"states-00003\.safetensors.*cannot be read"):
        extract(case.request(out, limit=30))
    assert (out / MANIFEST).exists()
    assert (out / "states-00003.json").exists()


def test_verified_sha256_are_those_of_the_files(small: Path) -> None:
    files = json.loads((small / VERIFIED).read_text())["files"]
    assert set(files) == set(content(small)) - {".lock"}
    for name, entry in files.items():
        assert entry["sha256"] == sha256_file(small / name)
        assert entry["inode"] == (small / name).stat().st_ino
