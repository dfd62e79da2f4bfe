"""An `ensures` that may not be looked at stops its step: exit 6, and nothing is done.

As root the command runs without the capabilities by which root ignores permissions; an ordinary
user has a directory of mode 0000 instead, which its owner may not enter either.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
ROOT = os.geteuid() == 0
NOBODY = 65534

RUNBOOK = """\
runbook: denied
about: Looks into a directory of another user.
steps:
  a:
    needs: []
    hosts: [local]
    do: {{command: {{argv: [touch, "data:acted"]}}}}
    ensures: [{check}]
  b:
    needs: [a]
    hosts: [local]
    do: {{command: {{argv: [touch, "data:acted-too"]}}}}
    ensures: [path: {{path: "data:acted-too", is: file}}]
"""


@pytest.fixture
def world(tmp_path: Path):
    """A root with a directory that may not be entered, and an inventory of this machine."""
    data = tmp_path / "data"
    locked = data / "locked"
    locked.mkdir(parents=True)
    (locked / "there").write_text("x")
    root = {"path": str(data), "owner": "local", "filesystem": "t"}
    inventory = tmp_path / "inventory.py"
    spec = {"roots": {"data": root}, "state_dir": str(data / "state")}
    inventory.write_text(f"here = [('@local', {spec!r})]\n")
    if ROOT:
        os.chown(locked, NOBODY, NOBODY)
    locked.chmod(0o700 if ROOT else 0)
    yield tmp_path
    locked.chmod(0o700)


def obey_permissions() -> None:
    """Drop CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (capabilities(7)) for what is executed."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):
        if libc.prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
            raise OSError(ctypes.get_errno(), "the capability cannot be dropped")


def run(world: Path, check: str) -> tuple[int, str, list[dict]]:
    """`runbook run`; its exit code, what it said, its journal."""
    (world / "denied.yaml").write_text(RUNBOOK.format(check=check))
    runs = world / "data" / "runs"
    words = [str(world / "denied.yaml"), "-i", str(world / "inventory.py"), "-y"]
    done = subprocess.run(
        [str(Path(sys.executable).parent / "runbook"), "run", *words],
        cwd=PROJECT,
        env=os.environ | {"HOME": str(world), "RUNBOOK_RUNS": str(runs)},
        preexec_fn=obey_permissions if ROOT else None,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    journals = list(runs.glob("*/journal.jsonl"))
    records = [json.loads(line) for path in journals for line in path.read_text().splitlines()]
    return done.returncode, done.stdout + done.stderr, records


@pytest.mark.parametrize("wanted", ["absent", "file", "directory"])
@pytest.mark.parametrize("path", ["data:locked/there", "data:locked/nothing", "data:locked/a/b"])
def test_what_may_not_be_seen_is_unknown_and_never_leads_to_an_act(
    world: Path, wanted: str, path: str
) -> None:
    code, said, records = run(world, f'path: {{path: "{path}", is: {wanted}}}')
    assert code == 6, said
    assert "unknown" in said and "ermission denied" in said
    assert "Traceback" not in said
    assert not (world / "data" / "acted").exists()
    assert not (world / "data" / "acted-too").exists()
    assert not any(record["event"] in ("intent", "command") for record in records)
    outcomes = {r["step"]: r["result"] for r in records if r["event"] == "outcome"}
    assert outcomes == {"a": "unknown", "b": "skipped"}


def test_what_may_be_seen_is_done(world: Path) -> None:
    """The same world acts where it may look: the test above can fail."""
    code, said, _ = run(world, 'path: {path: "data:acted", is: file}')
    assert code == 0, said
    assert (world / "data" / "acted-too").exists()
