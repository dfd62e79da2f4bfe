"""Jobs as units of systemd, with stand-ins for systemd-run and systemctl that keep what they got.

The stand-ins start the command as a service manager does: with an environment of its own, an
invocation id, no terminal. tests/e2e/test_jobs_systemd.py has the real ones.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.operations import job_unit
from deploy.operations.job_cancel import cancel_job
from deploy.operations.job_start import start_script
from runbooks.engine.model.operation import OperationFailed, Progress
from tests.deploy.operations.job_machine import (
    SHELLS,
    folder,
    job_machine,
    judged,
    kill,
    run,
    start,
    supervisor,
    until,
)
from tests.deploy.operations.local_machine import LocalMachine

SECRET = "s3cr3t '\"$(touch x)`\n\\ % \u00e9"
INVOCATION = "0123456789abcdef0123456789abcdef"
# Keeps what it got in KEPT/run.NAME, and whether the name was taken; then starts the command.
SYSTEMD_RUN = r"""#!/bin/sh
kept=%(kept)s; unit=
for word in "$@"; do case $word in --unit=*) unit=${word#--unit=};; esac; done
printf '%%s\n' "$*" >> "$kept/asked"
[ ! -e "$kept/refuse" ] || { cat "$kept/refuse" >&2; exit 1; }
if ! mkdir "$kept/unit.$unit" 2>/dev/null; then
  echo "Failed to start transient service unit: Unit $unit was already loaded." >&2; exit 1
fi
while [ "${1#--}" != "$1" ]; do shift; done
[ ! -e "$kept/numb" ] || exit 0
setsid env -i PATH=/usr/bin:/bin INVOCATION_ID=%(id)s UNIT_OF_FAKE="$unit" "$@" \
  </dev/null >/dev/null 2>&1 &
"""
SYSTEMCTL = r"""#!/bin/sh
kept=%(kept)s
printf '%%s\n' "$*" >> "$kept/systemctl"
case "$*" in
  *ActiveState*) [ ! -e "$kept/numb" ] || { echo ActiveState=failed; exit 0; }; echo ActiveState=active;;
  *'-p Result'*) cat "$kept/result" 2>/dev/null;;
  *InvocationID*) echo InvocationID=%(id)s;;
esac
"""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="a unit of the system's manager is started by root"
)


@pytest.fixture(params=SHELLS)
def machine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LocalMachine]:
    with job_machine(tmp_path, request.param) as machine:
        tools, kept = tmp_path / "systemd", tmp_path / "kept"
        runtime = tmp_path / "run"
        for place in (tools, kept, runtime):
            place.mkdir()
        for name, text in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL)):
            (tools / name).write_text(text % {"kept": kept, "id": INVOCATION})
            (tools / name).chmod(0o755)
        machine.path = f"{tools}:{machine.path}"
        monkeypatch.setattr(job_unit, "BOOTED", str(tools))
        monkeypatch.setattr(job_unit, "INIT", "/proc/self")
        monkeypatch.setattr(job_unit, "RUNTIME", str(runtime))
        yield machine


def kept(machine: LocalMachine, name: str) -> str:
    file = machine.folder / "kept" / name
    return file.read_text() if file.exists() else ""


def pipes(machine: LocalMachine) -> list[Path]:
    return list((machine.folder / "run").iterdir())


def test_the_job_is_a_unit(machine: LocalMachine) -> None:
    script = 'umask; pwd; printf "%s|" "$TOKEN"; echo "$INVOCATION_ID"; ls -l /proc/self/fd/0'
    assert "exit 0" in run(machine, "sh", "-c", script, env={"TOKEN": SECRET})
    state = judged(machine)
    assert state.unit == "eagle3-extract-one-1.service"
    assert state.meta is not None and state.meta["unit"] == state.unit
    record = (folder(machine) / "1" / "unit").read_text()
    assert record == f"eagle3-extract-one-1.service {INVOCATION} system\n"
    log = Path(state.log).read_text()
    umask = subprocess.run(["sh", "-c", "umask"], capture_output=True, text=True).stdout.strip()
    home = machine.folder / "home"
    assert log.startswith(f"{umask}\n{home}\n{SECRET}|{INVOCATION}\n")
    assert log.rstrip().endswith("/dev/null")
    assert not (home / "x").exists()
    assert pipes(machine) == []


def test_what_systemd_is_told(machine: LocalMachine) -> None:
    start(machine, "sleep", "300", env={"TOKEN": SECRET})
    asked = kept(machine, "asked")
    for word in (
        "--property=Type=exec",
        "--property=KillMode=control-group",
        "--property=OOMPolicy=continue",
        "--property=IgnoreSIGPIPE=no",
        "--property=LimitNOFILE=",
    ):
        assert word in asked
    assert "s3cr3t" not in asked and "sleep" not in asked
    assert "unlimited" not in asked


def test_a_secret_is_in_no_file_and_no_argv(machine: LocalMachine) -> None:
    start(machine, "sleep", "300", env={"TOKEN": SECRET})
    state = judged(machine)
    for pid in (state.pid, supervisor(machine)):
        assert b"s3cr3t" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert b"TOKEN=s3cr3t" in Path(f"/proc/{state.pid}/environ").read_bytes()
    files = [path for path in machine.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"s3cr3t" in path.read_bytes()]


def test_only_the_owner_may_read_the_pipe(machine: LocalMachine) -> None:
    """The unit has not opened it yet."""
    (machine.folder / "kept" / "numb").touch()
    script = start_script(machine.runbook, machine.step, ["sleep", "300"], None)
    starter = subprocess.Popen(
        [machine.shell, "-c", script],
        env=machine.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    until(lambda: pipes(machine))
    (pipe,) = pipes(machine)
    assert pipe.stat().st_mode & 0o7777 == 0o600 and pipe.is_fifo()
    assert starter.communicate()[0]
    assert pipes(machine) == []


def test_systemd_run_that_fails_is_said_loudly(machine: LocalMachine) -> None:
    (machine.folder / "kept" / "refuse").write_text("Failed to connect to bus:\nNo such file\n")
    note = "it has no unit of its own, but a session: systemd-run: Failed to connect to bus: No su"
    assert f"({note}" in run(machine, "true", env={"TOKEN": SECRET})
    shown = [action.text for action in machine.seen if isinstance(action, Progress)]
    assert any(text.startswith(f"the job runs; {note}") for text in shown)
    assert judged(machine).unit == ""
    assert not (folder(machine) / "1" / "unit").exists()
    assert pipes(machine) == []
    with pytest.raises(OperationFailed, match=f"(?s)exit 3.*{note}"):
        run(machine, "sh", "-c", "exit 3")
    assert kept(machine, "asked").count("\n") == 2, "asked once each time"


def test_a_unit_that_ends_before_it_begins(machine: LocalMachine) -> None:
    """Its shell may not read the pipe, say: the job starts in a session, once."""
    (machine.folder / "kept" / "numb").touch()
    starts = machine.folder / "starts"
    said = run(machine, "sh", "-c", f"echo x >> {starts}")
    assert "the unit eagle3-extract-one-1.service ended before the job began" in said
    assert starts.read_text() == "x\n"
    assert judged(machine).unit == ""


def test_a_name_that_is_taken(machine: LocalMachine) -> None:
    """By another state folder on this host: the job gets a name of its own."""
    (machine.folder / "kept" / "unit.eagle3-extract-one-1.service").mkdir()
    said = start(machine, "sleep", "300")
    assert said["unit"].startswith("eagle3-extract-one-1-") and "note" not in said
    assert judged(machine).unit == said["unit"]


def test_eight_starters_start_one(machine: LocalMachine) -> None:
    starts = machine.folder / "starts"
    script = start_script(
        machine.runbook, machine.step, ("sh", "-c", f"echo $$ >> {starts}; sleep 300"), None
    )
    starters = [
        subprocess.Popen(
            [machine.shell, "-c", script],
            env=machine.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    said = [starter.communicate()[0] for starter in starters]
    assert all(starter.returncode == 0 for starter in starters)
    assert sorted("ours\tyes" in text for text in said) == [False] * 7 + [True]
    until(starts.exists)
    assert starts.read_text().split() == [str(judged(machine).pid)]
    until(lambda: not list((folder(machine) / "1").glob(".meta*")))


def test_names_of_units_are_safe(machine: LocalMachine) -> None:
    machine.runbook, machine.step = "a b/../$(id)", "x%i\\é" + "y" * 150
    unit = start(machine, "sleep", "300")["unit"]
    assert len(unit) < 250
    assert unit.isascii() and not set(unit) & set("%\\ /$()")


def test_units_that_failed_are_reset_at_the_next_start(machine: LocalMachine) -> None:
    with pytest.raises(OperationFailed, match="exit 3"):
        run(machine, "sh", "-c", "exit 3")
    assert "reset-failed" not in kept(machine, "systemctl")
    run(machine, "true")
    assert "reset-failed eagle3-extract-one-1.service" in kept(machine, "systemctl")


def test_a_unit_killed_by_oom_with_its_supervisor(machine: LocalMachine) -> None:
    start(machine, "sleep", "300")
    result = machine.folder / "kept" / "result"
    result.write_text(f"Result=oom-kill\nInvocationID={INVOCATION}\n")
    for pid in (supervisor(machine), judged(machine).pid):
        kill(pid or 0)
    until(lambda: judged(machine).state == "lost")
    assert judged(machine).reason.endswith("killed by the kernel's out-of-memory killer")


def test_cancel_of_a_unit(machine: LocalMachine) -> None:
    start(machine, "sh", "-c", "trap '' TERM; sleep 300 & wait; sleep 300")
    pid = judged(machine).pid or 0
    until(lambda: Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    assert "exit 137" in machine.run(cancel_job(machine.context, grace=1))
    assert judged(machine).how == "exit 137 (signal 9), cancelled by an operator"
    assert "kill --signal=KILL eagle3-extract-one-1.service" in kept(machine, "systemctl")


def test_without_systemd_nothing_is_said(
    machine: LocalMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_unit, "BOOTED", str(machine.folder / "none"))
    assert run(machine, "true").startswith("the job ended with exit 0 after")
    assert not any(isinstance(a, Progress) and "unit" in a.text for a in machine.seen)
    assert kept(machine, "asked") == ""


def test_in_another_namespace_of_mounts_there_is_no_unit(
    machine: LocalMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit would see other files than the starter."""
    init = machine.folder / "init"
    (init / "ns").mkdir(parents=True)
    (init / "ns" / "mnt").symlink_to("mnt:[1]")
    monkeypatch.setattr(job_unit, "INIT", str(init))
    assert start(machine, "true") == {"run": "1", "ours": "yes"}
    assert kept(machine, "asked") == ""
