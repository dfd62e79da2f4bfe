"""A runbook on two SSH hosts through both front doors: done once, then nothing changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.loopback import Server, host_data

PROJECT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

RUNBOOK = """\
runbook: both
about: Two hosts, a gate, a command, a file, a job, a delete.
steps:
  room:
    needs: []
    hosts: [machines]
    requires: [disk_free: {root: data, ge: 1 MiB}]
  mark:
    needs: [room]
    hosts: [machines]
    do: {command: {argv: [touch, "data:mark"]}}
    ensures: [path: {path: data:mark, is: file}]
  file:
    needs: [mark]
    hosts: [one]
    do: {copy: {src: LICENSE, dest: data:licence}}
    ensures: [path: {path: data:licence, source: LICENSE, same: true}]
  work:
    needs: [mark]
    hosts: [two]
    do: {job: {argv: [sh, -c, "sleep 1; touch \\"$EAGLE3_ROOT_DATA\\"/worked"]}}
    ensures: [path: {path: data:worked, is: file}]
  purge:
    needs: [file, work]
    hosts: [two]
    requires: [tree: {path: data:old, one_filesystem: true}]
    do: {delete: {paths: [data:old]}}
    irreversible: {loses: old files, restore: none}
    ensures: [path: {path: data:old, is: absent}]
"""

pytestmark = pytest.mark.e2e


@pytest.fixture
def world(server: Server, tmp_path: Path) -> Path:
    """Two hosts on one sshd, each with its own root; a third that is down and not needed."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "two" / "old").mkdir()
    (tmp_path / "two" / "old" / "file").write_text("x" * 9000)
    hosts = []
    for name in ("one", "two"):
        root = {"path": str(tmp_path / name), "owner": name, "filesystem": name}
        data = {"roots": {"data": root}, "state_dir": str(tmp_path / name / "state")}
        hosts.append((name, host_data(server) | data))
    text = f"machines = {hosts!r}\nothers = [('six', {host_data(server, port=1)!r})]\n"
    (tmp_path / "fleet.py").write_text(text)
    (tmp_path / "both.yaml").write_text(RUNBOOK)
    (tmp_path / "both.py").write_text((PROJECT / "runbooks" / "extract.py").read_text())
    return tmp_path


def run(world: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(BIN / words[0]), *words[1:]],
        cwd=PROJECT,
        env=os.environ | {"RUNBOOK_RUNS": str(world / "runs"), "HOME": str(world)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stdout, done.stdout
    return done.returncode, done.stdout


def digest(world: Path) -> str:
    """What approves the delete, from the plan."""
    code, said = run(
        world, "runbook", "plan", str(world / "both.yaml"), "-i", str(world / "fleet.py"), "--json"
    )
    assert code == 0, said
    rows = json.loads(said.splitlines()[-1])["rows"]
    return next(row["approval"] for row in rows if row["step"] == "purge")


def commands(world: Path, door: str, approval: str) -> list[str]:
    if door == "pyinfra":
        words = ["pyinfra", str(world / "fleet.py"), str(world / "both.py"), "-y"]
        return [*words, "--data", f"approve=purge={approval}"]
    words = ["runbook", "run", str(world / "both.yaml"), "-i", str(world / "fleet.py"), "-y"]
    return [*words, "--approve", f"purge={approval}"]


@pytest.mark.parametrize("door", ["runbook", "pyinfra"])
def test_both_doors_do_it_once(world: Path, door: str) -> None:
    code, said = run(world, *commands(world, door, digest(world)))
    assert code == 0, said
    assert "5 changed steps" in said
    assert (world / "one" / "licence").read_bytes() == (PROJECT / "LICENSE").read_bytes()
    assert (world / "two" / "worked").exists() and not (world / "two" / "old").exists()
    assert "six" in said and "not needed" in said
    again, said = run(world, *commands(world, door, "0-000000000000"))
    assert again == 0, said
    assert "0 changed steps" in said


@pytest.mark.parametrize("door", ["runbook", "pyinfra"])
def test_without_approval_both_doors_delete_nothing(world: Path, door: str) -> None:
    code, said = run(world, *commands(world, door, "1-000000000000"))
    assert code == 8, said
    assert (world / "two" / "old" / "file").exists()
    assert (world / "two" / "worked").exists(), "what does not depend on it was done"
