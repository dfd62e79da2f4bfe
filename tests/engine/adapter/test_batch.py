"""The composed script on the shells of this machine: what it says must come back exactly."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from runbooks.engine.adapter.batch import (
    ASK_LIMIT,
    LAUNCH,
    TAIL_LIMIT,
    Task,
    command_task,
    compose,
    environment,
    parse,
    shell_task,
)
from runbooks.engine.model.host import Host, Root
from runbooks.engine.model.operation import Command
from runbooks.engine.model.probe import Output, Shell

SHELLS = {"dash": ["dash"], "bash": ["bash"], "busybox": ["busybox", "sh"], "sh": ["sh"]}
HOST = Host("somewhere")


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    words = SHELLS[request.param]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    return words


def run(
    shell: Sequence[str],
    tasks: Sequence[Task],
    host: Host = HOST,
    cut: int | None = None,
    env: Mapping[str, str] | None = None,
) -> list[Output | None]:
    script = compose(tasks, environment(host), "Tok3n").encode()
    begun = time.monotonic()
    done = subprocess.run(
        [*shell, "-c", LAUNCH], input=script, capture_output=True, env=env, start_new_session=True
    )
    lines = done.stdout.decode("ascii")[:cut].split("\n")
    return parse(lines, tasks, "Tok3n", time.monotonic() - begun)


def ask(script: str, timeout: int = 20) -> Task:
    return shell_task(Shell("label with 'quotes' and\na newline", script, timeout=timeout))


def test_output_errors_and_status_come_back_separately(shell: list[str]) -> None:
    asked = [ask("echo out; echo err >&2; exit 3"), ask("true"), ask("printf 'no newline'")]
    assert run(shell, asked) == [
        Output(3, b"out\n", "err\n"),
        Output(0),
        Output(0, b"no newline"),
    ]


def test_every_byte_survives(shell: list[str]) -> None:
    everything = "".join(f"\\{byte:03o}" for byte in range(256))
    given = bytes(range(256)) * 40
    outputs = run(
        shell,
        [
            ask(f"printf '{everything}'"),
            command_task(Command(argv=("cat",), stdin=given)),
            command_task(Command(script="cat >&2", stdin=b"\xff\n")),
        ],
    )
    assert outputs[0] == Output(0, bytes(range(256)))
    assert outputs[1] == Output(0, given)
    assert outputs[2] == Output(0, b"", "\N{REPLACEMENT CHARACTER}\n")


def test_a_bad_script_disturbs_no_other(shell: list[str]) -> None:
    bad = [
        "kill -9 $$",
        "kill -9 0",
        "if (",
        "cat; read -r x; cat",
        "exec 1>&-; exec 2>&-; exit 9",
        "set -e; false",
        "exit 300",
        "trap '' TERM; _r() { :; }; unset PATH",
        "echo '@Tok3n .'; echo '!0!'",
        "cd /; umask 000; exec 5>&-",
    ]
    if "busybox" in shell:
        # Its `timeout` makes no process group of its own.
        bad[1] = "kill -9 $$"
    tasks = [task for script in bad for task in (ask(script), ask("echo good; pwd"))]
    outputs = run(shell, tasks)
    good = outputs[1::2]
    assert good == [Output(0, f"good\n{Path.cwd()}\n".encode())] * len(bad)
    assert outputs[0] is not None
    assert outputs[0].exit == 137
    assert outputs[4] is not None
    assert outputs[4].exit != 0
    assert outputs[6] == Output(0)
    assert outputs[16] == Output(0, b"@Tok3n .\n!0!\n")


def test_time_that_runs_out_is_124_also_for_who_ignores_the_signal(shell: list[str]) -> None:
    outputs = run(shell, [ask("sleep 60", timeout=1), ask("echo after")])
    assert outputs[0] is not None
    assert outputs[0].exit == 124
    assert outputs[1] == Output(0, b"after\n")


@pytest.mark.slow
def test_a_deaf_script_is_killed() -> None:
    outputs = run(["sh"], [ask("trap '' TERM; while :; do sleep 1; done", timeout=1)])
    assert outputs[0] is not None
    assert outputs[0].exit == 124


def test_megabytes(shell: list[str]) -> None:
    size = 3_000_000
    outputs = run(
        shell, [ask(f"head -c {size} /dev/zero | tr '\\0' x; head -c {size} /dev/zero >&2")]
    )
    assert outputs[0] is not None
    assert outputs[0].stdout == b"x" * size
    # Of errors the end is kept.
    assert len(outputs[0].stderr) == 2**20


def test_output_without_end_is_cut_and_is_no_success() -> None:
    outputs = run(["sh"], [ask("yes"), ask("echo after")])
    assert outputs[0] is not None
    assert len(outputs[0].stdout) == ASK_LIMIT
    assert outputs[0].exit != 0
    assert "cut after 16 MiB" in outputs[0].stderr
    assert outputs[1] == Output(0, b"after\n")


def test_of_a_change_the_end_of_the_output_is_kept() -> None:
    script = f"head -c {2 * TAIL_LIMIT} /dev/zero; echo end"
    outputs = run(["sh"], [command_task(Command(script=script))])
    assert outputs[0] is not None
    assert len(outputs[0].stdout) == TAIL_LIMIT
    assert outputs[0].stdout.endswith(b"\0end\n")
    assert outputs[0].exit == 0


def test_scripts_longer_than_an_argument(shell: list[str]) -> None:
    long = "# " + "x" * 300_000 + "\n"
    outputs = run(
        shell,
        [
            ask(long + "cat; echo asked; exit 5"),
            command_task(Command(script=long + "cat", stdin=b"in\0put", timeout=20)),
        ],
    )
    assert outputs == [Output(5, b"asked\n"), Output(0, b"in\0put")]


def test_the_environment_of_a_host(shell: list[str], tmp_path: Path) -> None:
    host = Host(
        "h",
        path=("$HOME/my bin", "/opt/$(touch x)"),
        state="$HOME/.local/state/x y",
        roots={"data-1": Root("data-1", Path("/data/it's"), "h", "f")},  # type: ignore[arg-type]
    )
    script = 'printf "%s\\n" "$PATH" "$EAGLE3_STATE" "$EAGLE3_ROOT_DATA_1"'
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    (output,) = run(shell, [ask(script)], host, env=env)
    assert output is not None
    path, state, root = output.lines
    assert path.startswith(f"{tmp_path}/my bin:/opt/$(touch x):")
    assert state == f"{tmp_path}/.local/state/x y"
    assert root == "/data/it's"


def test_a_command_finds_programs_and_not_the_shell_of_the_batch(shell: list[str]) -> None:
    outputs = run(
        shell,
        [
            command_task(Command(argv=("_r", "0"))),
            command_task(Command(argv=("printf", "%s|", "a b", "it's", "$HOME", ""))),
            command_task(Command(argv=("pwd",), cwd="/usr", env={"A": "x\ny'z"})),
            command_task(Command(script='printf %s "$A"', env={"A": "x\ny'z"})),
            command_task(Command(argv=("ls",), cwd="/nowhere/to be")),
        ],
    )
    assert outputs[0] is not None
    assert outputs[0].exit == 127
    assert outputs[1] == Output(0, b"a b|it's|$HOME||")
    assert outputs[2] == Output(0, b"/usr\n")
    assert outputs[3] == Output(0, b"x\ny'z")
    assert outputs[4] == Output(1, b"", "the folder /nowhere/to be cannot be entered\n")


def test_the_environment_of_a_task_does_not_reach_the_batch(shell: list[str]) -> None:
    env = {"IFS": "emi ", "_t": "false", "_c": "false", "_b": "false", "_k": "x"}
    command = Command(argv=("printf", "%s %s", "a b", "c"), env=env, timeout=20)
    long = Command(script="# " + "x" * 200_000 + "\necho long", env=env, timeout=20)
    assert run(shell, [command_task(command), command_task(long), ask("echo after")]) == [
        Output(0, b"a b c"),
        Output(0, b"long\n"),
        Output(0, b"after\n"),
    ]


def test_the_words_of_the_composition_are_inert_in_a_task(shell: list[str]) -> None:
    words = "TASK LIMIT INDEX TOKEN"
    assert (
        run(shell, [ask(f"echo {words}"), command_task(Command(argv=("echo", words)))])
        == [Output(0, f"{words}\n".encode())] * 2
    )


def test_what_needs_no_timeout_does_not_look_for_one() -> None:
    endless = command_task(Command(argv=("true",)))
    assert "timeout" not in compose([endless], environment(HOST), "t")
    assert "timeout" in compose([endless, ask("true")], environment(HOST), "t")


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 0.95])
def test_an_answer_cut_off_is_no_answer(share: float) -> None:
    tasks = [ask(f"echo {number}; seq 2000") for number in range(6)]
    whole = compose(tasks, environment(HOST), "Tok3n").encode()
    done = subprocess.run(["sh", "-c", LAUNCH], input=whole, capture_output=True)
    text = done.stdout.decode()
    outputs = parse(text[: int(len(text) * share)].split("\n"), tasks, "Tok3n")
    expected = parse(text.split("\n"), tasks, "Tok3n")
    assert None not in expected
    answered = sum(output is not None for output in outputs)
    assert outputs[:answered] == expected[:answered]
    assert outputs[answered:] == [None] * (6 - answered)
    assert answered == int(6 * share) or answered == int(6 * share) - 1


def test_a_script_that_did_not_arrive_whole_does_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = compose([ask(f"touch {mark}")], environment(HOST), "Tok3n").encode()
    done = subprocess.run(["sh", "-c", LAUNCH], input=script[:-3], capture_output=True)
    assert done.returncode == 125
    assert not mark.exists()


def _folder_of(tmp_path: Path, *programs: str) -> dict[str, str]:
    for program in programs:
        (tmp_path / program).symlink_to(shutil.which(program) or program)
    return {"PATH": str(tmp_path)}


def test_a_host_without_base64_answers_in_hexadecimal(tmp_path: Path) -> None:
    env = _folder_of(tmp_path, "sh", "cat", "head", "tail", "od", "printf")
    outputs = run(
        [shutil.which("sh") or "sh"],
        [ask("printf 'a\\000\\377'; exit 2"), command_task(Command(argv=("cat",), stdin=b"x"))],
        env=env,
    )
    assert outputs[0] == Output(2, b"a\0\xff")
    assert outputs[1] == Output(127, b"", "the host has no base64\n")


def test_a_host_that_can_encode_nothing_says_so(tmp_path: Path) -> None:
    env = _folder_of(tmp_path, "sh", "cat", "head", "tail")
    outputs = run([shutil.which("sh") or "sh"], [ask("echo 1"), ask("echo 2")], env=env)
    assert outputs == [Output(127, stderr="the host has neither base64 nor od")] * 2


def test_noise_of_a_login_shell_is_ignored() -> None:
    tasks = [ask("echo 1")]
    done = subprocess.run(
        ["sh", "-c", f"echo 'Welcome! @Tok'; echo @x; {LAUNCH}"],
        input=compose(tasks, environment(HOST), "Tok3n").encode(),
        capture_output=True,
    )
    assert parse(done.stdout.decode().split("\n"), tasks, "Tok3n") == [Output(0, b"1\n")]


def test_a_nul_cannot_travel() -> None:
    with pytest.raises(ValueError, match="NUL"):
        compose([ask("echo \0")], "", "t")
