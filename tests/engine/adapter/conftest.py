"""Fleets for the adapter's tests. Nothing is patched here: see `runtime`."""

from __future__ import annotations

from pathlib import Path

import pytest

from runbooks.engine.adapter.fleet import PyinfraFleet
from runbooks.engine.adapter.inventory import make_fleet

PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PyinfraFleet:
    """This machine as the host `local`, with the root `data` in a temporary folder."""
    (tmp_path / "inventory").mkdir()
    data = {"roots": {"data": {"path": str(tmp_path / "data")}}, "state_dir": str(tmp_path / "s")}
    (tmp_path / "inventory" / "hosts.py").write_text(f'machines = [("@local", {data!r})]\n')
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    return make_fleet("inventory")


@pytest.fixture
def fake_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PyinfraFleet:
    """kpro6, llm-two and llm-one as fake hosts; answers from `tmp_path/answers.yaml`."""
    (tmp_path / "answers.yaml").write_text(
        """\
kpro6:
  disk_free root=data: "42\\n43"
  proxmox guests: {stdout: [], stderr: [a, "pct: not found"], exit: 127}
  "#! purge": {stderr: no, exit: 3}
all:
  disk_free root=data: "7"
"""
    )
    monkeypatch.setenv("EAGLE3_FAKE_ANSWERS", str(tmp_path / "answers.yaml"))
    monkeypatch.chdir(PROJECT)
    return make_fleet("tests/inventories/fake.py")
