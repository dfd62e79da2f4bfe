"""The agent of a host, run on this machine by a socket: answers as those of the shells."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from runbooks.engine.adapter import agent, batch
from runbooks.engine.adapter import standing as standing_module
from runbooks.engine.adapter.batch import ASK_LIMIT, TAIL_LIMIT, Task, command_task, shell_task
from runbooks.engine.adapter.fence import fenced, refusal
from runbooks.engine.adapter.standing import Standing, introduce, launcher, request_of
from runbooks.engine.model.host import Host
from runbooks.engine.model.operation import Command
from runbooks.engine.model.probe import Output, Shell

SHELLS = {"dash": ["dash"], "bash": ["bash"], "busybox": ["busybox", "sh"]}


class Channel:
    """What Standing uses of an SSH channel, to a process of this machine."""

    def __init__(self, argv: Sequence[str], env: dict[str, str] | None = None):
        self._near, far = socket.socketpair()
        self.process = subprocess.Popen(argv, stdin=far, stdout=far, env=env)
        far.close()
        self.settimeout = self._near.settimeout
        self.sendall = self._near.sendall
        self.recv = self._near.recv

    def close(self) -> None:
        self._near.close()
        self.process.wait(10)


def opened(
    env: dict[str, str] | None = None, host: Host | None = None, shell: Sequence[str] = ("sh",)
) -> tuple[Channel, Standing]:
    preamble = batch.environment(host or Host("near")).encode()
    program = shutil.which(shell[0]) or shell[0]
    channel = Channel([program, *shell[1:], "-c", launcher(len(preamble), "Tok3n")], env)
    standing = Standing(channel)
    introduce(standing, preamble, "Tok3n")
    return channel, standing


@pytest.fixture(params=SHELLS)
def standing(request: pytest.FixtureRequest) -> Iterator[Standing]:
    words = SHELLS[request.param]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    channel, standing = opened(shell=words)
    yield standing
    channel.close()


@pytest.fixture
def one() -> Iterator[Standing]:
    channel, standing = opened()
    yield standing
    channel.close()


def ask(script: str, timeout: int | None = 20) -> Task:
    return shell_task(Shell("label with 'quotes' and\na newline", script, timeout=timeout or 20))


def test_the_limits_are_those_of_the_shells() -> None:
    assert (agent.ASK_LIMIT, agent.TAIL_LIMIT) == (ASK_LIMIT, TAIL_LIMIT)


def test_output_errors_and_status_come_back_separately(standing: Standing) -> None:
    for _ in range(2):
        asked = [ask("echo out; echo err >&2; exit 3"), ask("true"), ask("printf 'no newline'")]
        assert standing.ask(asked, 60) == [
            Output(3, b"out\n", "err\n"),
            Output(0),
            Output(0, b"no newline"),
        ]


def test_every_byte_survives(one: Standing) -> None:
    everything = "".join(f"\\{byte:03o}" for byte in range(256))
    given = bytes(range(256)) * 4000
    assert one.ask(
        [
            ask(f"printf '{everything}'"),
            command_task(Command(argv=("cat",), stdin=given)),
            command_task(Command(script="cat >&2", stdin=b"\xff\n")),
            command_task(Command(argv=("true",), stdin=given)),
        ],
        60,
    ) == [
        Output(0, bytes(range(256))),
        Output(0, given),
        Output(0, b"", "\N{REPLACEMENT CHARACTER}\n"),
        Output(0),
    ]


BAD = {
    "kill -9 $$": 137,
    "kill -9 0": 137,
    "if (": 2,
    "cat; read -r x; cat": 0,
    "exec 1>&-; exec 2>&-; exit 9": 9,
    "set -e; false": 1,
    "exit 300": 44,
    "kill -TERM $$": 143,
    "exec 9<&-; cd /; umask 000; exit 5": 5,
}


@pytest.mark.parametrize("script", BAD)
def test_a_bad_script_disturbs_no_other(one: Standing, script: str) -> None:
    bad, good = one.ask([ask(script), ask("echo good; pwd; umask")], 60)
    mask = f"{os.umask(os.umask(0o22)):04o}"
    assert bad.exit == BAD[script]
    assert good == Output(0, f"good\n{Path.cwd()}\n{mask}\n".encode())


def test_time_that_runs_out_is_124_with_what_was_said(one: Standing) -> None:
    late, after = one.ask([ask("echo before; sleep 60", 1), ask("echo after")], 60)
    assert late == Output(124, b"before\n")
    assert after == Output(0, b"after\n")


def test_what_a_program_leaves_behind_holds_its_output_till_its_time_is_over(
    one: Standing,
) -> None:
    holding = command_task(Command(script="echo done; setsid sleep 60 & exit 0", timeout=1))
    assert one.ask([holding], 60) == [Output(124, b"done\n")]
    assert one.ask([ask("echo next")], 60) == [Output(0, b"next\n")]


@pytest.mark.slow
def test_a_deaf_script_is_killed(one: Standing) -> None:
    (output,) = one.ask([ask("trap '' TERM; while :; do sleep 1; done", 1)], 60)
    assert output.exit == 124


def test_output_without_end(one: Standing) -> None:
    asked, after, changed, errors = one.ask(
        [
            ask("yes"),
            ask("echo after"),
            command_task(Command(script=f"head -c {3 * TAIL_LIMIT} /dev/zero; echo end")),
            ask(f"head -c {3 * TAIL_LIMIT} /dev/zero >&2; echo end >&2"),
        ],
        60,
    )
    assert len(asked.stdout) == ASK_LIMIT
    assert asked.exit != 0
    assert "cut after 16 MiB" in asked.stderr
    assert after == Output(0, b"after\n")
    assert len(changed.stdout) == TAIL_LIMIT
    assert changed.stdout.endswith(b"\0end\n")
    assert len(errors.stderr) == TAIL_LIMIT
    assert errors.stderr.endswith("\0end\n")


def test_scripts_that_stand_in_no_argv(standing: Standing) -> None:
    long = "# " + "x" * 300_000 + "\n"
    look = "tr '\\0' ' ' < /proc/$$/cmdline"
    outputs = standing.ask(
        [
            ask(long + "cat; echo asked; exit 5"),
            command_task(Command(script=long + "cat", stdin=b"in\0put", timeout=20)),
            Task(script=f": s3cret; {look}", hidden=True),
            command_task(Command(script=look, env={"A": "s3cret"})),
        ],
        60,
    )
    assert outputs[:2] == [Output(5, b"asked\n"), Output(0, b"in\0put")]
    for output in outputs[2:]:
        assert output.exit == 0
        assert output.stdout
        assert b"s3cret" not in output.stdout


def test_commands(standing: Standing) -> None:
    outputs = standing.ask(
        [
            command_task(Command(argv=("no-such-program", "0"))),
            command_task(Command(argv=("printf", "%s|", "a b", "it's", "$HOME", ""))),
            command_task(Command(argv=("pwd",), cwd="/usr", env={"A": "x\ny'z"})),
            command_task(Command(script='printf %s "$A"', env={"A": "x\ny'z"})),
            command_task(Command(argv=("ls",), cwd="/nowhere/to be")),
        ],
        60,
    )
    assert outputs[0].exit == 127
    assert outputs[1] == Output(0, b"a b|it's|$HOME||")
    assert outputs[2] == Output(0, b"/usr\n")
    assert outputs[3] == Output(0, b"x\ny'z")
    assert outputs[4] == Output(1, b"", "the folder /nowhere/to be cannot be entered\n")


def test_the_environment_of_a_host(tmp_path: Path) -> None:
    host = Host("h", path=("$HOME/my bin", "/opt/$(touch x)"), state="$HOME/.local/x y")
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    channel, standing = opened(env, host)
    try:
        for _ in range(2):
            (output,) = standing.ask([ask('printf "%s\\n" "$PATH" "$EAGLE3_STATE"')], 60)
            path, state = output.lines
            assert path == f"{tmp_path}/my bin:/opt/$(touch x):{env['PATH']}"
            assert state == f"{tmp_path}/.local/x y"
    finally:
        channel.close()


def test_a_fence_refuses_in_the_shell_that_would_run_the_change(
    one: Standing, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    change = command_task(Command(argv=("touch", str(mark))))
    (output,) = one.ask([change], 60, fenced("echo it is not ours; exit 1", "abc"))
    assert refusal(output.stdout.decode().split("\n"), "abc") == "it is not ours"
    assert not mark.exists()
    pid = command_task(Command(script="echo $$"))
    (output,) = one.ask([pid], 60, fenced(f"echo $$ > {mark}", "abc"))
    assert output == Output(0, mark.read_bytes())


def test_a_request_that_did_not_arrive_whole_does_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    channel, standing = opened()
    channel.sendall(request_of([ask(f"touch {mark}")])[:-1])
    standing.end()
    assert channel.process.returncode == 0
    assert not mark.exists()


def test_a_cut_answer_is_an_error(one: Standing) -> None:
    with pytest.raises(EOFError):
        one.ask([ask("kill -9 $PPID")], 60)


def test_no_answer_in_time_is_an_error(one: Standing) -> None:
    with pytest.raises(TimeoutError):
        one.ask([Task(script="sleep 3")], 0.2)


def test_a_host_without_python_has_no_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("sh", "head"):
        (tmp_path / program).symlink_to(shutil.which(program) or program)
    monkeypatch.setattr(standing_module, "PYTHONS", "python3")
    with pytest.raises(EOFError):
        opened({"PATH": str(tmp_path)})


def test_a_python_that_is_too_old_is_no_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("sh", "head"):
        (tmp_path / program).symlink_to(shutil.which(program) or program)
    (tmp_path / "python3").write_text("#!/bin/sh\necho SyntaxError >&2\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.setattr(standing_module, "PYTHONS", "python3")
    with pytest.raises((EOFError, OSError)):
        opened({"PATH": str(tmp_path)})
