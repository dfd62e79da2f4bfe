"""Stores made by the real merge and the real extraction, of a tiny random model."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eagle3.runbook.here import Here, busybox_tools

CONFIG = """target: model:tiny
max_tokens: 120
seed: 3
base: data:raw
sources:
  words: {path: words.jsonl}
  held-out: {path: held-out.jsonl, exclude: true}
"""


@pytest.fixture(scope="session")
def made(tiny_target: Path) -> Iterator[Path]:
    """A folder to copy: data/raw, data/merged, data/hidden, model/tiny, merge.yaml.

    Outside pytest's own folders, which another user may not enter.
    """
    from eagle3.extract import extract
    from eagle3.merge import merge
    from eagle3.merge_config import load_config
    from tests.eagle3.extract_cases import Case, make_case

    with tempfile.TemporaryDirectory(prefix="eagle3-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        case = make_case(tiny_target, folder / "work", rows=20)
        raw = folder / "data" / "raw"
        raw.mkdir(parents=True)
        shutil.copy(folder / "work" / "words.jsonl", raw / "words.jsonl")
        (raw / "held-out.jsonl").write_text('{"id": "h", "messages": []}\n')
        (folder / "model").mkdir()
        case.target.rename(folder / "model" / "tiny")
        shutil.rmtree(folder / "work")
        (folder / "merge.yaml").write_text(CONFIG)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("EAGLE3_ROOT_DATA", str(folder / "data"))
            patch.setenv("EAGLE3_ROOT_MODEL", str(folder / "model"))
            merge(load_config(folder / "merge.yaml"), folder / "data" / "merged")
        real = Case(folder / "model" / "tiny", folder / "data" / "merged")
        extract(real.request(folder / "data" / "hidden"))
        yield folder


@pytest.fixture(params=["sh", "busybox"])
def here(made: Path, request: pytest.FixtureRequest) -> Iterator[Here]:
    """A copy of the stores, verified anew, to damage."""
    with tempfile.TemporaryDirectory(prefix="eagle3-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        tools = None
        if request.param == "busybox" and (tools := busybox_tools(folder / "tools")) is None:
            pytest.skip("needs busybox")
        shutil.copytree(made, folder, dirs_exist_ok=True)
        for store in ("merged", "hidden"):
            record(folder / "data" / store)
        yield Here(folder, tools)


def record(store: Path) -> None:
    """verified.json by the store's own writer, of the copied files."""
    from eagle3 import dataset_manifest, states_manifest

    if store.name == "merged":
        manifest = dataset_manifest.read_manifest(store)
        dataset_manifest.record_verification(store, manifest)
        inputs = {}
        for name, source in manifest.sources.items():
            status = (store.parent / "raw" / source.input.name).stat()
            inputs[name] = dataset_manifest.stat_entry(status, source.input.sha256)
        dataset_manifest.record_inputs(store, inputs)
        return
    states = states_manifest.read_states_manifest(store)
    names = [*states.files, states_manifest.MANIFEST]
    entries = {name: states_manifest.hash_file(store / name) for name in names}
    states_manifest.record_verification(store, entries)
