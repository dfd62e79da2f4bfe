"""Jobs as units of a real systemd, which is process 1 of namespaces of its own (systemd.py)."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.operations.job import Job
from deploy.operations.job_cancel import cancel_job
from deploy.operations.job_folder import JobState, job_state, probe
from deploy.operations.job_members import left_script
from deploy.operations.job_start import start_script
from runbooks.engine.model.host import Origin
from runbooks.engine.model.operation import Command, OperationFailed
from runbooks.engine.model.probe import Output, Shell
from tests.deploy.operations.job_machine import kill, processes_below, until
from tests.deploy.operations.local_machine import parsed
from tests.e2e.systemd import SystemdMachine, missing, real_systemd

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(bool(missing()), reason=f"LOUD: no systemd can be started: {missing()}"),
]

JOB = Job()
NOBODY = 65534
SECRET = "s3cr3t '\"$(touch x)`\n\\ % \u00e9"
UNIT = "eagle3-extract-one-1.service"
# A child, a grandchild, one in a session of its own, one that left its parents and its mark.
FAMILY = """
echo $$ >> pids
sh -c 'echo $$ >> pids; sleep 300 & echo $! >> pids; wait' &
setsid sh -c 'echo $$ >> pids; exec sleep 300' &
(setsid env -i sh -c 'echo $$ >> pids; exec sleep 300' &)
wait
"""


@pytest.fixture(scope="module")
def init() -> Iterator[int]:
    with real_systemd() as init:
        yield init


USERS_MANAGER = f"""set -e
install -d -o nobody -m 700 /run/user/{NOBODY}
systemctl is-active --quiet users ||
systemd-run --quiet --unit=users --uid={NOBODY} --property=Delegate=yes --property=Type=exec \
  --setenv=XDG_RUNTIME_DIR=/run/user/{NOBODY} \
  --setenv=SYSTEMD_UNIT_PATH=/run/user/{NOBODY}/systemd/transient:/run/units \
  /lib/systemd/systemd --user --unit=eagle3-test.target
until [ -S /run/user/{NOBODY}/systemd/private ]; do sleep 0.1; done
"""


class NobodysMachine(SystemdMachine):
    """The same host for a user whose own manager runs."""

    def _run(
        self, words: list[str], env: Mapping[str, str], cwd: str | None, stdin: bytes | None
    ) -> Output:
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
        return super()._run([*drop, *words], env, cwd, stdin)


@pytest.fixture
def nobody(init: int) -> Iterator[NobodysMachine]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        machine = NobodysMachine(Path(folder))
        for name in ("home", "tmp", "data"):
            (machine.folder / name).chmod(0o777)
        machine.init = init
        as_root = SystemdMachine(machine.folder)
        as_root.init = init
        as_root.inside(USERS_MANAGER + "touch /var/lib/systemd/linger/nobody")
        yield machine
        for pid in processes_below(machine.folder):
            kill(pid)


@pytest.fixture
def machine(tmp_path: Path, init: int) -> Iterator[SystemdMachine]:
    machine = SystemdMachine(tmp_path)
    machine.init = init
    yield machine
    machine.inside("systemctl kill -s KILL 'eagle3-extract-*.service' || true")
    until(lambda: "running" not in machine.inside("systemctl list-units 'eagle3-e*.service'"))
    machine.inside("systemctl reset-failed")


def judged(machine: SystemdMachine) -> JobState:
    return job_state(machine.perform(Shell("probe", probe("extract", "one"))).text)


def start(machine: SystemdMachine, *argv: str, **env: str) -> dict[str, str]:
    script = start_script("extract", "one", argv, None)
    output = machine.perform(Command(script=script, env=env))
    assert output.exit == 0, output.stderr
    return dict(line.split("\t") for line in output.lines)


def run(machine: SystemdMachine, *argv: str, **more: Any) -> str:
    args = parsed(JOB, {"argv": list(argv), **more})
    return str(machine.run(JOB.act(args, machine.context)))


def shown(machine: SystemdMachine, unit: str, *properties: str) -> list[str]:
    words = " ".join(f"-p {name}" for name in properties)
    return machine.inside(f"systemctl show {words} '{unit}'").splitlines()


def test_a_job_is_a_unit_in_the_starters_surroundings(machine: SystemdMachine) -> None:
    script = 'umask; pwd; ulimit -n; ulimit -l; ulimit -s; printf "%s|" "$TOKEN"; exec sleep 300'
    outside = machine.inside("umask 027; umask; pwd; ulimit -n; ulimit -l; ulimit -s")
    wrapped = f"umask 027\n{start_script('extract', 'one', ['sh', '-c', script], None)}"
    output = machine.perform(Command(script=wrapped, env={"TOKEN": SECRET}))
    assert output.exit == 0, output.stderr
    assert f"unit\t{UNIT}\nnote\t\n" in output.text
    log = Path(judged(machine).log)
    until(lambda: log.read_text().endswith("|"))
    assert log.read_text() == f"{outside}{SECRET}|"
    assert not (machine.folder / "home" / "x").exists()
    unit, invocation, manager = (log.parent / "unit").read_text().split()
    assert shown(machine, unit, "InvocationID") == [f"InvocationID={invocation}"]
    assert (unit, manager) == (UNIT, "system")
    (record,) = machine.run(JOB.jobs(machine.context))
    assert (record.unit, record.state) == (UNIT, "running")


def test_a_secret_is_nowhere_to_be_read(machine: SystemdMachine) -> None:
    start(machine, "sleep", "300", TOKEN=SECRET)
    pid = judged(machine).pid
    assert "s3cr3t" in machine.inside(f"tr '\\0' '\\n' < /proc/{pid}/environ")
    assert "s3cr3t" not in machine.inside("systemctl show '*'; systemctl status '*' || true")
    assert "s3cr3t" not in machine.inside("cat /proc/[0-9]*/cmdline")
    found = machine.inside("grep -rl s3cr3t /run . || true; ls /run/eagle3* 2>/dev/null || true")
    assert found == ""


def test_a_failed_unit_is_kept_and_reset_at_the_next_start(machine: SystemdMachine) -> None:
    with pytest.raises(OperationFailed, match="the job ended with exit 7"):
        run(machine, "sh", "-c", "exit 7")
    until(lambda: "ActiveState=failed" in shown(machine, UNIT, "ActiveState"))
    assert shown(machine, UNIT, "Result", "ExecMainStatus") == [
        "Result=exit-code",
        "ExecMainStatus=7",
    ]
    assert "exit 0" in run(machine, "true")
    assert shown(machine, UNIT, "LoadState") == ["LoadState=not-found"]


def test_cancel_ends_the_whole_family(machine: SystemdMachine) -> None:
    start(machine, "sh", "-c", FAMILY)
    pids = machine.folder / "home" / "pids"
    until(lambda: pids.exists() and len(pids.read_text().split()) == 5)
    # The cgroup alone tells of the one that left everything; the sixth is the supervisor.
    left = machine.perform(Shell("left", left_script("extract", "one", 1))).text
    assert {word.split(":")[0] for word in left.split()[1:]} > set(pids.read_text().split())
    context = replace(machine.context, origin=Origin("r", "alice", "desk"))
    said = machine.run(cancel_job(context))
    assert said.endswith("exit 143 (signal 15), cancelled by alice")
    left = machine.inside(
        f"for p in {' '.join(pids.read_text().split())}; do ls -d /proc/$p; done; :"
    )
    assert left == ""
    until(lambda: "ActiveState=failed" in shown(machine, UNIT, "ActiveState"))


def test_cancel_kills_what_is_deaf(machine: SystemdMachine) -> None:
    start(machine, "sh", "-c", f"trap '' TERM\n{FAMILY}")
    pids = machine.folder / "home" / "pids"
    until(lambda: pids.exists() and len(pids.read_text().split()) == 5)
    said = machine.run(cancel_job(machine.context, grace=1))
    assert said.endswith("exit 137 (signal 9), cancelled by an operator")
    left = machine.inside(
        f"for p in {' '.join(pids.read_text().split())}; do ls -d /proc/$p; done; :"
    )
    assert left == ""


def test_a_stopped_unit_leaves_an_exit_status(machine: SystemdMachine) -> None:
    """As a shutdown of the host stops it: TERM to all; the supervisor writes and ends last."""
    start(machine, "sh", "-c", "sleep 300; exit 1")
    machine.inside(f"systemctl stop {UNIT}")
    assert judged(machine).how == "exit 143 (signal 15)"


def test_all_killed_at_once_is_lost(machine: SystemdMachine) -> None:
    start(machine, "sleep", "300")
    machine.inside(f"systemctl kill -s KILL {UNIT}")
    until(lambda: judged(machine).state != "running")
    assert judged(machine).state == "lost"
    assert "left no exit status" in judged(machine).reason


def test_what_the_program_leaves_behind_ends_with_it(machine: SystemdMachine) -> None:
    start(machine, "sh", "-c", "(setsid env -i sleep 300 & echo $! > pid)")
    until(lambda: judged(machine).state == "ended")
    pid = (machine.folder / "home" / "pid").read_text().strip()
    until(lambda: machine.inside(f"ls -d /proc/{pid} || true") == "")


def test_the_program_hears_interrupts_and_broken_pipes(machine: SystemdMachine) -> None:
    start(machine, "sh", "-c", "yes | head -n 1; exec sleep 300")
    state = judged(machine)
    ignored = machine.inside(f"grep SigIgn /proc/{state.pid}/status").split()[1]
    assert int(ignored, 16) & (1 << 1 | 1 << 12) == 0
    machine.inside(f"kill -s INT {state.pid}")
    until(lambda: judged(machine).state == "ended")
    assert judged(machine).exit == 130


def test_two_state_folders_share_a_name(machine: SystemdMachine) -> None:
    start(machine, "sleep", "300")
    script = start_script("extract", "one", ["sleep", "300"], None)
    other = {"EAGLE3_STATE": str(machine.folder / "other")}
    output = machine.perform(Command(script=script, env=other))
    said = dict(line.split("\t") for line in output.lines)
    assert said["ours"] == "yes" and said["note"] == ""
    assert said["unit"].startswith("eagle3-extract-one-1-")


def test_eight_starters_start_one(machine: SystemdMachine) -> None:
    starts = machine.folder / "starts"
    argv = ("sh", "-c", f"echo x >> {starts}; sleep 300")
    enter = ["nsenter", "--target", str(machine.init), "--mount", "--pid", "--cgroup", "--wd=."]
    starters = [
        subprocess.Popen(
            [*enter, "--", "sh", "-c", start_script("extract", "one", argv, None)],
            env=machine.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    said = [starter.communicate()[0] for starter in starters]
    assert sorted("ours\tyes" in text for text in said) == [False] * 7 + [True]
    until(starts.exists)
    assert starts.read_text() == "x\n"
    units = "systemctl list-units --state=running --plain --no-legend 'eagle3-extract-*'"
    until(lambda: len(machine.inside(units).splitlines()) == 1)


def test_killed_by_oom(machine: SystemdMachine) -> None:
    """The unit's own cgroup counts it, where the memory controller is of version 2."""
    controllers = machine.inside("cat /sys/fs/cgroup/cgroup.controllers").split()
    if "memory" not in controllers:
        pytest.skip("LOUD: the memory controller of this kernel is bound to cgroup version 1")
    start(machine, "sh", "-c", "until [ -e go ]; do sleep 0.1; done; head -c 400M /dev/zero | tail")
    machine.inside(f"systemctl set-property --runtime {UNIT} MemoryMax=64M MemorySwapMax=0")
    (machine.folder / "home" / "go").touch()
    until(lambda: judged(machine).state == "ended")
    assert "the kernel's out-of-memory killer" in judged(machine).reason


def test_without_systemd_run_a_session_is_said_loudly(machine: SystemdMachine) -> None:
    tools = machine.folder / "tools"
    tools.mkdir()
    (tools / "systemd-run").write_text("#!/bin/sh\necho 'Access denied' >&2; exit 1\n")
    (tools / "systemd-run").chmod(0o755)
    machine.path = f"{tools}:{machine.path}"
    note = "it has no unit of its own, but a session: systemd-run: Access denied"
    assert run(machine, "true").endswith(f"({note})")


def test_a_user_with_a_manager_that_lingers(nobody: NobodysMachine) -> None:
    said = start(nobody, "sh", "-c", f"trap '' TERM\n{FAMILY}", TOKEN=SECRET)
    assert (said["unit"], said["note"]) == (UNIT, "")
    state = judged(nobody)
    assert (Path(state.log).parent / "unit").read_text().endswith(" user\n")
    pids = nobody.folder / "home" / "pids"
    until(lambda: pids.exists() and len(pids.read_text().split()) == 5)
    show = f"XDG_RUNTIME_DIR=/run/user/{NOBODY} systemctl --user show '{UNIT}'"
    assert "ActiveState=active" in nobody.inside(show)
    assert "s3cr3t" not in nobody.inside(show)
    assert nobody.inside(f"ls /run/user/{NOBODY} | grep eagle3 || true") == ""
    assert "exit 137" in nobody.run(cancel_job(nobody.context, grace=1))
    left = f"for p in {' '.join(pids.read_text().split())}; do ls -d /proc/$p; done; :"
    assert nobody.inside(left) == ""


def test_a_user_whose_manager_ends_with_the_session(nobody: NobodysMachine) -> None:
    """A unit of it would not outlive the connection; a session of its own may."""
    as_root = SystemdMachine(nobody.folder)
    as_root.init = nobody.init
    as_root.inside("rm /var/lib/systemd/linger/nobody")
    said = start(nobody, "true")
    assert (said["ours"], said["unit"], said["note"]) == ("yes", "", "")
