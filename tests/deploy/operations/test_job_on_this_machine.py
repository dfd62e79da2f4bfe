"""Jobs with real processes: started once, judged by what is true, whatever was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.operations.job_folder import job_state, probe
from deploy.operations.job_progress import progress_script, read_progress, resolved
from deploy.operations.job_start import start_script
from deploy.shell import fields
from runbooks.engine.model.operation import Command, OperationFailed, Progress
from runbooks.engine.model.probe import Shell, Unknown
from tests.deploy.operations.job_machine import (
    JOB,
    folder,
    job_machine,
    judged,
    kill,
    preview,
    run,
    start,
    supervisor,
    until,
)
from tests.deploy.operations.local_machine import LocalMachine, parsed


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LocalMachine]:
    with job_machine(tmp_path) as machine:
        yield machine


def test_runs_to_its_end(machine: LocalMachine) -> None:
    said = run(machine, "sh", "-c", "echo hello; echo $X > data; umask", env={"X": "1 2"})
    assert said.startswith("the job ended with exit 0")
    state = judged(machine)
    assert (state.state, state.exit, state.run) == ("ended", 0, 1)
    assert Path(state.log).read_text().splitlines()[0] == "hello"
    assert (machine.folder / "home" / "data").read_text() == "1 2\n"


def test_keeps_the_umask_and_the_environment(machine: LocalMachine) -> None:
    names = {"state": "a", "run": "b", "line": "c", "folder": "d", "digest": "e", "spec": "f"}
    script = "umask; echo $state $run $line $folder $digest $spec; ls -l /proc/self/fd/0"
    run(machine, "sh", "-c", script, env=names)
    log = Path(judged(machine).log).read_text().splitlines()
    outside = subprocess.run(["sh", "-c", "umask"], capture_output=True, text=True, check=True)
    assert log[0] == outside.stdout.strip()
    assert log[1] == "a b c d e f"
    assert log[2].endswith("/dev/null")


def test_answers_to_interrupts_as_a_program_of_its_own(machine: LocalMachine) -> None:
    start(machine, "sleep", "300")
    pid = judged(machine).pid
    assert pid
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = int(next(x for x in status.splitlines() if x.startswith("SigIgn")).split()[1], 16)
    assert ignored & (1 << (signal.SIGINT - 1)) == 0
    assert os.getsid(pid) not in (os.getsid(0), 0)
    kill(pid, signal.SIGINT)
    until(lambda: judged(machine).state == "ended")
    assert judged(machine).exit == 130


def test_failure_gives_exit_and_last_lines(machine: LocalMachine) -> None:
    # A folder of PATH that may not be entered would make 126 of 127.
    machine.path = "/usr/bin:/bin"
    with pytest.raises(OperationFailed, match=r"(?s)exit 7 after.*the reason"):
        run(machine, "sh", "-c", "echo the reason >&2; exit 7")
    with pytest.raises(OperationFailed, match="exit 127"):
        run(machine, "no-such-program-anywhere")
    assert "the last one: exit 127" in preview(machine, "true")


def test_a_rerun_starts_anew_and_keeps_the_previous(machine: LocalMachine) -> None:
    for _ in range(3):
        run(machine, "true")
    kept = sorted(path.name for path in folder(machine).iterdir() if path.is_dir())
    assert kept == ["2", "3"]
    assert judged(machine).run == 3


def test_a_live_job_is_attached_to(machine: LocalMachine) -> None:
    gate = machine.folder / "gate"
    argv = ("sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done")
    assert start(machine, *argv)["ours"] == "yes"
    args = parsed(JOB, {"argv": list(argv)})
    assert machine.run(JOB.alive(args, machine.context)) is True
    assert preview(machine, *argv).startswith("attach to process")
    assert start(machine, *argv) == {"run": "1", "ours": "no"}
    with pytest.raises(OperationFailed, match="another job of this step lives"):
        run(machine, "sleep", "1")
    with pytest.raises(OperationFailed, match="another job of this step lives"):
        preview(machine, "sleep", "1")
    gate.touch()
    attached = JOB.attach(args, machine.context)
    assert attached is not None
    assert "exit 0" in machine.run(attached)
    assert judged(machine).run == 1
    assert machine.run(JOB.alive(args, machine.context)) is False


def test_eight_starters_start_one(machine: LocalMachine) -> None:
    starts = machine.folder / "starts"
    script = start_script(
        machine.runbook, machine.step, ("sh", "-c", f"echo $$ >> {starts}; sleep 300"), None
    )
    starters = [
        subprocess.Popen(
            ["sh", "-c", script],
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
    assert len({text.splitlines()[0] for text in said}) == 1
    until(starts.exists)
    assert len(starts.read_text().splitlines()) == 1
    assert Path(starts).read_text().strip() == str(judged(machine).pid)


def test_starters_after_a_crash_start_one(machine: LocalMachine) -> None:
    start(machine, "sleep", "300")
    kill(supervisor(machine))
    kill(judged(machine).pid or 0)
    until(lambda: judged(machine).state == "lost")
    test_eight_starters_start_one(machine)
    assert judged(machine).run == 2


def test_supervisor_outlives_polite_signals(machine: LocalMachine) -> None:
    gate = machine.folder / "gate"
    start(machine, "sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done; exit 3")
    for sign in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        kill(supervisor(machine), sign)
    gate.touch()
    until(lambda: judged(machine).state != "running")
    assert judged(machine).exit == 3


def test_a_job_that_cannot_claim_says_so(machine: LocalMachine) -> None:
    """No link can be made: nothing starts, nobody waits for it."""
    tools = machine.folder / "bin"
    tools.mkdir()
    (tools / "ln").write_text("#!/bin/sh\nexit 1\n")
    (tools / "ln").chmod(0o755)
    machine.path = f"{tools}:{machine.path}"
    mark = machine.folder / "mark"
    with pytest.raises(OperationFailed, match="the job did not start"):
        run(machine, "touch", str(mark))
    assert not mark.exists()
    assert judged(machine).state == "none"


@pytest.mark.skipif(os.geteuid() != 0, reason="drops its privileges")
def test_a_forbidden_folder_is_unknown_not_none(machine: LocalMachine) -> None:
    run(machine, "true")
    for place in (folder(machine), machine.state):
        place.chmod(0o700)
        script = probe(machine.runbook, machine.step)
        words = ["setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", script]
        machine.folder.chmod(0o755)
        done = subprocess.run(words, env=machine.environment(), capture_output=True, text=True)
        assert done.returncode != 0
        assert "ermission denied" in done.stderr


def test_progress_of_a_file_and_of_a_count(machine: LocalMachine) -> None:
    shards = machine.data / "hidden"
    shards.mkdir()
    (shards / "a b.done").touch()
    start(machine, "sh", "-c", "printf 'first\\rsecond\\n'; sleep 300")
    until(lambda: judged(machine).log_size > 0)
    (machine.data / "progress.json").write_text(
        '{"done": 6412, "total": 8780, "rate": 2.5, "eta_s": 947.2, "unit": "shards"}'
    )
    for progress, wanted in (
        ({"file": "data:progress.json"}, (6412.0, 8780.0, "shards", 947.2)),
        ({"count": "data:hidden/*.done", "of": 10}, (1.0, 10.0, "files", None)),
        ({"count": "data:hidden/*.none", "of": 10}, (0.0, 10.0, "files", None)),
    ):
        argv = ["sh", "-c", "printf 'first\\rsecond\\n'; sleep 300"]
        args = parsed(JOB, {"argv": argv, "progress": progress})
        steps = JOB.act(args, machine.context)
        action: Any = next(steps)
        while not isinstance(action, Progress):
            action = steps.send(machine.perform(action))
        assert (action.done, action.total, action.unit, action.eta) == wanted
        assert action.text == ("2.5 shards/s" if "file" in progress else "second")
        assert action.beat is not None and action.beat >= 0
        steps.close()


@pytest.mark.parametrize("shell", ["sh", "bash", "busybox"])
def test_the_progress_file_of_an_earlier_run_is_not_shown(
    machine: LocalMachine, shell: str
) -> None:
    """A resumed job has not written yet: what lies there says how far the last one was."""
    if which(shell) is None:
        pytest.skip(f"LOUD: {shell} is not on this machine")
    file = machine.data / "progress.json"
    file.write_text('{"done": 9, "total": 10, "rate": 9, "unit": "shards"}')
    os.utime(file, (time.time() - 5,) * 2)
    argv = ["sh", "-c", "echo loading; sleep 300"]
    start(machine, *argv)
    until(lambda: judged(machine).log_size > 0)
    args = parsed(JOB, {"argv": argv, "progress": {"file": "data:progress.json"}})
    script = progress_script(resolved(args["progress"], machine.context.host))
    for fresh, wanted in ((False, (None, None, "loading")), (True, (9.0, 10.0, "9 shards/s"))):
        if fresh:
            file.touch()
        state = Shell("probe", probe(machine.runbook, machine.step) + script)
        words = ["busybox", "sh"] if shell == "busybox" else [shell]
        output = machine._run([*words, "-c", state.script], {}, None, None)
        progress, _ = read_progress(job_state(output.text), fields(output.text), None, None)
        assert (progress.done, progress.total, progress.text) == wanted


def test_names_of_steps_are_safe_and_distinct(machine: LocalMachine) -> None:
    machine.step = "extract[shard=0]/../x y"
    assert "exit 0" in run(machine, "true")
    places = list((machine.state / "jobs" / "extract").iterdir())
    assert len(places) == 1
    assert "/" not in places[0].name and " " not in places[0].name
    machine.step = "extract_shard_0__.._x_y"
    assert judged(machine).state == "none"


def test_secrets_stay_off_the_disk_and_the_command_line(machine: LocalMachine) -> None:
    start(machine, "sh", "-c", "sleep 300", env={"TOKEN": "s3cr3t-value"})
    state = judged(machine)
    for pid in (state.pid, supervisor(machine)):
        assert b"s3cr3t" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    kept = [path for path in machine.folder.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if b"s3cr3t" in path.read_bytes()]
    assert b"TOKEN=s3cr3t-value" in Path(f"/proc/{state.pid}/environ").read_bytes()


@pytest.mark.parametrize("tools", ["busybox-like setsid", "no setsid"])
def test_runs_without_the_tools_of_util_linux(machine: LocalMachine, tools: str) -> None:
    """`setsid` without --fork, or none: the job still starts once and gives its status."""
    tools_folder = machine.folder / "bin"
    tools_folder.mkdir()
    needed = "sh cat id ln ls mv rm mkdir date stat head tail tr sed grep sync sleep readlink nohup"
    for name in needed.split():
        (tools_folder / name).symlink_to(Path("/usr/bin") / name)
    if tools != "no setsid":
        real = tools_folder / "setsid"
        real.write_text('#!/bin/sh\n[ "$1" != --help ] || exit 1\nexec /usr/bin/setsid "$@"\n')
        real.chmod(0o755)
    machine.path = str(tools_folder)
    machine.shell = "/usr/bin/sh"
    with pytest.raises(OperationFailed, match="exit 9"):
        run(machine, "sh", "-c", "exit 9")
    assert judged(machine).run == 1


def test_runs_under_bash(machine: LocalMachine) -> None:
    machine.shell = "bash"
    assert "exit 0" in run(machine, "sh", "-c", "exit 0")


WORDS = st.sampled_from(
    [
        "now",
        "run",
        "boot",
        "claim",
        "started",
        "program",
        "supervisor",
        "exit",
        "ended",
        "log",
        "unit",
        "result",
        "cancelled",
        "killed",
        "meta",
        "spec",
    ]
)
VALUES = st.one_of(
    st.text(max_size=12),
    st.integers(-1, 9).map(str),
    st.sampled_from(
        ["1:2:b:3:4:d:1-1", "x:2:b:3:4:d:1-1", "S 2", "Z 2", " ", "", "1 2 /l", "unit ²", "{}"]
    ),
)
WHOLE = {
    "now": "9",
    "run": "1",
    "boot": "b",
    "claim": "1:2:b:3:4:d:1-1",
    "started": "1",
    "program": "S 2",
    "supervisor": "S 4",
}


@given(st.lists(st.tuples(WORDS, VALUES)))
def test_any_answer_is_a_state_or_unknown(pairs: list[tuple[str, str]]) -> None:
    try:
        found = WHOLE | dict(pairs)
        state = job_state("".join(f"{key}\t{value}\n" for key, value in found.items()))
    except Unknown:
        return
    assert state.state in ("none", "running", "ended", "lost")
    assert (state.exit is not None) == (state.state == "ended")


def test_a_starter_that_slept_cannot_take_an_old_number(machine: LocalMachine) -> None:
    """It looked when nothing had run; meanwhile run 1 came and went."""
    starts = machine.folder / "starts"
    argv = ("sh", "-c", f"echo x >> {starts}")
    script = start_script(machine.runbook, machine.step, argv, None)
    slept = script.replace("j_run=$((j_run + 1))", "j_run=1")
    assert slept != script
    start(machine, *argv)
    until(lambda: judged(machine).state == "ended")
    output = machine.perform(Command(script=slept))
    assert (output.exit, output.text) == (0, "run\t1\nours\tno\n")
    assert starts.read_text() == "x\n"
