"""The test fleet itself: hosts that are apart, links that can be cut, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.fleet import HOSTS, Fleet, make_fleet, namespaces, sweep
from tests.e2e.matrix import ACTS, World, approvals_of, finished, runbook

pytestmark = pytest.mark.e2e

PROJECT = Path(__file__).resolve().parents[2]


def ssh(fleet: Fleet, host: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Over the wire, as a controller does it."""
    data = dict(fleet.ssh_data(host))
    options = [f"UserKnownHostsFile={data['ssh_known_hosts_file']}", "ConnectTimeout=2"]
    words = ["ssh", "-F", str(data["ssh_config_file"]), "-i", str(data["ssh_key"])]
    words += [word for option in (*options, "BatchMode=yes") for word in ("-o", option)]
    words += [f"{data['ssh_user']}@{data['ssh_hostname']}", *argv]
    return subprocess.run(
        fleet.controller(words), capture_output=True, text=True, timeout=60, check=False
    )


def test_hosts_are_apart(fleet: Fleet) -> None:
    """Names, boots, processes, HOME and addresses are each host's own; roots are seen outside."""
    look = "cat /proc/sys/kernel/hostname /proc/sys/kernel/random/boot_id; cat /proc/1/comm; ls ~"
    (fleet.folder / "beta" / "home" / "only-here").touch()
    seen = {}
    for host in HOSTS:
        done = ssh(fleet, host, look)
        assert done.returncode == 0, done.stderr
        seen[host] = done.stdout.splitlines()
    assert [words[0] for words in seen.values()] == list(HOSTS)
    boots = {words[1] for words in seen.values()}
    here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert len(boots | {here}) == 4
    assert {words[2] for words in seen.values()} == {"sshd"}
    assert [words[3:] for words in seen.values()] == [[], ["only-here"], []]
    sleeper = "sleep 300 </dev/null >/dev/null 2>&1 & pgrep -x sleep | wc -l"
    assert ssh(fleet, "alpha", sleeper).stdout.strip() == "1"
    assert fleet.on("beta", "sh", "-c", "pgrep -x sleep | wc -l").strip() == "0"


def test_a_cut_host_is_silent_until_it_is_mended(fleet: Fleet) -> None:
    fleet.cut("gamma")
    try:
        done = ssh(fleet, "gamma", "true")
        assert done.returncode == 255 and "timed out" in done.stderr
        assert ssh(fleet, "beta", "true").returncode == 0
    finally:
        fleet.mend("gamma")
    assert ssh(fleet, "gamma", "true").returncode == 0


def test_sessions_end_and_what_they_started_goes_on(fleet: Fleet, tmp_path: Path) -> None:
    world = World.make(fleet, tmp_path / "world")
    code, said = finished(runbook(fleet, world, *world.words("plan", "--json")))
    assert code == 0, said
    words = world.words("run", "-y", *approvals_of(said))
    world.hold("mark", "beta")
    process = runbook(fleet, world, *words)
    try:
        while not world.held("mark", "beta"):
            assert process.poll() is None
            time.sleep(0.05)
        fleet.kill_sessions("beta")
        code, said = finished(process)
        assert code == 4, said
        world.let_go("mark", "beta")
        while not world.acts("end")["mark", "beta"]:
            time.sleep(0.05)
    finally:
        process.kill()
    code, said = finished(runbook(fleet, world, *words))
    assert code == 0, said
    assert world.acts() == world.acts("end") == dict.fromkeys(ACTS, 1)
    code, said = finished(runbook(fleet, world, *words))
    assert code == 0 and "\n0 changed steps" in said


def test_nothing_is_left_behind(namespaced: None, tmp_path: Path) -> None:
    before = namespaces()
    with (
        pytest.raises(ZeroDivisionError),
        make_fleet(tmp_path / "fleet") as fleet,
    ):
        made = sorted(set(namespaces()) - set(before))
        assert len(made) == 4
        fleet.on("alpha", "sh", "-c", "setsid sleep 300 </dev/null >/dev/null 2>&1 &")
        raise ZeroDivisionError
    assert namespaces() == before


def test_a_killed_test_run_is_swept_up(namespaced: None, tmp_path: Path) -> None:
    before = namespaces()
    script = (
        "import os, signal, pathlib\n"
        "from tests.e2e.fleet import make_fleet\n"
        f"with make_fleet(pathlib.Path({str(tmp_path / 'fleet')!r})):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, check=False)
    assert done.returncode == -9
    left = sorted(set(namespaces()) - set(before))
    assert len(left) == 4
    processes = ["pgrep", "-f", f"{tmp_path}/fleet/.*/sshd_config"]
    assert len(subprocess.run(processes, capture_output=True, check=True).stdout.split()) >= 3
    sweep()
    assert not set(left) & set(namespaces())
    assert subprocess.run(processes, capture_output=True, check=False).stdout == b""
