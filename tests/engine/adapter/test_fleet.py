"""The fleet on this machine: questions, commands, files, secrets, times, greenlets."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gevent
import pytest
from paramiko import SSHException
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.util import CommandOutput
from pyinfra.operations import files

from runbooks.engine.adapter import runtime, writing
from runbooks.engine.adapter.fleet import PyinfraFleet
from runbooks.engine.adapter.inventory import make_fleet
from runbooks.engine.fleet import Fleet, ReadOnlyError, Unreachable
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.operation import Command, Delegate, Put
from runbooks.engine.model.probe import Output, Shell


def test_questions_are_answered_in_order(fleet: PyinfraFleet) -> None:
    as_protocol: Fleet = fleet
    assert as_protocol.connect(["local"]) == {}
    answers = fleet.ask(
        [
            ("local", Shell("one", "echo $EAGLE3_ROOT_DATA")),
            ("local", Shell("two", "printf '\\377'; echo no >&2; exit 4")),
            ("local", Shell("three", "sleep 9", timeout=1)),
        ]
    )
    root = fleet.hosts["local"].roots["data"].path
    assert answers[:2] == [Output(0, f"{root}\n".encode()), Output(4, b"\xff", "no\n")]
    assert isinstance(answers[2], Output)
    assert answers[2].exit == 124
    assert fleet.ask([]) == []


def test_an_unknown_host_is_an_error_with_a_suggestion(fleet: PyinfraFleet) -> None:
    with pytest.raises(RunbookError) as caught:
        fleet.ask([("locl", Shell("x", "true"))])
    assert caught.value.diagnostics[0].hint == "did you mean 'local'?"


def test_questions_do_not_wait_for_a_long_command(fleet: PyinfraFleet) -> None:
    long = gevent.spawn(fleet.perform, "local", Command(argv=("sleep", "3")))
    gevent.sleep(0.1)
    begun = time.monotonic()
    assert fleet.ask([("local", Shell("x", "echo 1"))]) == [Output(0, b"1\n")]
    assert time.monotonic() - begun < 2
    assert long.get() == Output(0)


_THREADS = """
from runbooks.engine.adapter.runtime import patch
patch()
import threading
from runbooks.engine.adapter.inventory import make_fleet
from runbooks.engine.model.operation import Command
from runbooks.engine.model.probe import Output, Shell
fleet = make_fleet("@local")
answers = {}
def work(number):
    answer = fleet.ask([("local", Shell("x", f"sleep 0.3; echo {number}"))])[0]
    fleet.perform("local", Command(script="exit 0"))
    answers[number] = answer
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert answers == {number: Output(0, f"{number}\\n".encode()) for number in range(8)}
"""


def test_threads_may_share_the_fleet() -> None:
    done = subprocess.run([sys.executable, "-c", _THREADS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_threads_without_the_patch_are_told_so(fleet: PyinfraFleet) -> None:
    if runtime.is_patched():
        pytest.skip("patched by another test")
    raised: list[BaseException] = []

    def work() -> None:
        try:
            fleet.ask([("local", Shell("x", "true"))])
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "runtime.patch()" in str(raised[0])


def test_a_command_has_its_surroundings(fleet: PyinfraFleet, tmp_path: Path) -> None:
    script = 'printf "%s|%s|" "$A" "$EAGLE3_STATE"; pwd; cat; exit 9'
    command = Command(
        script=script, env={"A": "it's\n"}, cwd=str(tmp_path), stdin=b"\0\xff", label="a\nb"
    )
    expected = f"it's\n|{tmp_path}/s|{tmp_path}\n".encode() + b"\0\xff"
    assert fleet.perform("local", command) == Output(9, expected)


def test_ctrl_c_does_not_reach_what_runs_here(fleet: PyinfraFleet) -> None:
    session = Command(script='read -r _ _ _ _ _ sid _ < "/proc/$$/stat"; echo "$sid"')
    output = fleet.perform("local", session)
    assert int(output.text) not in (os.getsid(0), 0)


def _command_lines() -> str:
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            lines.append((process / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(lines)


def test_secrets_stand_in_no_argv(fleet: PyinfraFleet) -> None:
    secret = "s3cr3t-" + "value"
    command = Command(
        script='test "$TOKEN" = "$(cat)" && sleep 1.2345 && echo same',
        env={"TOKEN": secret},
        stdin=secret.encode(),
    )
    running = gevent.spawn(fleet.perform, "local", command)
    seen = ""
    for _ in range(60):
        gevent.sleep(0.02)
        seen += _command_lines()
    assert running.get() == Output(0, b"same\n")
    assert "sleep\x001.2345" in seen
    assert secret not in seen
    assert "czNjcjN0" not in seen  # in base64


def test_a_timeout_ends_the_whole_process_group(fleet: PyinfraFleet, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"echo $$ >> {pids}; sleep 77 & echo $! >> {pids}; wait"
    begun = time.monotonic()
    output = fleet.perform("local", Command(script=script, timeout=1))
    assert output.exit == 124
    assert time.monotonic() - begun < 5
    gevent.sleep(0.2)
    for pid in pids.read_text().split():
        status = Path(f"/proc/{pid}/status")
        # A container without init keeps dead orphans as zombies.
        assert not status.exists() or "State:\tZ" in status.read_text()


@pytest.mark.parametrize("size", [0, 1, 100_000, writing.INLINE_LIMIT + 1])
@pytest.mark.parametrize("secret", [False, True])
def test_put_writes_exactly(fleet: PyinfraFleet, tmp_path: Path, size: int, secret: bool) -> None:
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    target = folder / "na$me 'x'"
    content = os.urandom(size)
    put = Put(str(target), content, "0640", owner=str(os.getuid()), secret=secret)
    assert fleet.perform("local", put) == Output(0)
    assert target.read_bytes() == content
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in folder.iterdir()] == [target.name]


def test_put_replaces_by_rename(fleet: PyinfraFleet, tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with target.open() as reader:
        assert fleet.perform("local", Put(str(target), b"new")) == Output(0)
        assert reader.read() == "old"
    assert target.read_text() == "new"


@pytest.mark.parametrize("size", [10, writing.INLINE_LIMIT + 1])
def test_put_leaves_nothing_where_it_fails(fleet: PyinfraFleet, tmp_path: Path, size: int) -> None:
    missing = fleet.perform("local", Put(str(tmp_path / "no" / "file"), b"x" * size))
    assert missing == Output(1, stderr=f"the folder {tmp_path}/no does not exist\n")
    (tmp_path / "folder").mkdir()
    folder = fleet.perform("local", Put(str(tmp_path / "folder"), b"x" * size))
    assert folder == Output(1, stderr=f"{tmp_path}/folder is a folder\n")
    before = sorted(tmp_path.iterdir())
    owner = fleet.perform("local", Put(str(tmp_path / "file"), b"x" * size, owner="nobody-here"))
    assert owner.exit == 1
    assert "nobody-here" in owner.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_a_secret_file_is_private_from_the_start(fleet: PyinfraFleet, tmp_path: Path) -> None:
    put = Put(str(tmp_path / "key"), b"x" * 500_000, "0600", secret=True)
    seen: set[int] = set()
    running = gevent.spawn(fleet.perform, "local", put)
    while not running.ready():
        gevent.sleep(0.001)
        for path in tmp_path.glob(".key.*"):
            with pytest.MonkeyPatch.context():
                try:
                    seen.add(stat.S_IMODE(path.stat().st_mode))
                except OSError:
                    continue
    assert running.get() == Output(0)
    assert seen <= {0o600}


def test_a_bad_mode_is_refused(fleet: PyinfraFleet, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="octal"):
        fleet.perform("local", Put(str(tmp_path / "file"), b"", "u+x"))


def test_read_only_refuses_every_change(fleet: PyinfraFleet, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    fleet.read_only(True)
    actions: list[Command | Put | Delegate] = [
        Command(argv=("touch", str(mark))),
        Put(str(mark), b""),
        Delegate(files.file, {"path": str(mark)}),
    ]
    for action in actions:
        with pytest.raises(ReadOnlyError):
            fleet.perform("local", action)
    # Past the protocol, on pyinfra's own host.
    (host,) = fleet.state.inventory
    for change in (
        lambda: host.run_shell_command(f"touch {mark}"),
        lambda: host.put_file("/etc/hostname", str(mark)),
        lambda: host.get_file("/etc/hostname", str(mark)),
        lambda: host.rsync("/etc/hostname", str(mark), []),
    ):
        with pytest.raises(ReadOnlyError, match="while planning"):
            change()
    assert not mark.exists()
    assert fleet.ask([("local", Shell("x", "echo still"))]) == [Output(0, b"still\n")]
    fleet.read_only(False)
    assert fleet.perform("local", actions[0]) == Output(0)
    assert mark.exists()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EOFError(), "the connection was lost"),
        (OSError("Socket is closed"), "Socket is closed"),
        (SSHException("SSH session not active"), "SSH session not active"),
        (TimeoutError(), "no answer within 100 s"),
    ],
)
def test_a_connection_that_breaks_is_unreachable(
    fleet: PyinfraFleet, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(LocalConnector, "run_shell_command", broken)
    fleet = make_fleet("inventory")
    (answer,) = fleet.ask([("local", Shell("x", "true"))])
    assert isinstance(answer, Unreachable)
    assert answer.reason == reason
    for action in (
        Command(argv=("true",)),
        Put("/tmp/x", b""),
        Delegate(files.file, {"path": "/x"}),
    ):
        with pytest.raises(Unreachable):
            fleet.perform("local", action)
    monkeypatch.undo()
    assert not fleet.state.failed_hosts


def test_half_an_answer_is_unreachable(
    fleet: PyinfraFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = LocalConnector.run_shell_command

    def half(*args: Any, **kwargs: Any) -> Any:
        status, output = whole(*args, **kwargs)
        return status, CommandOutput(output.combined_lines[:-4])

    monkeypatch.setattr(LocalConnector, "run_shell_command", half)
    fleet = make_fleet("inventory")
    first, second = fleet.ask([("local", Shell("x", "echo 1")), ("local", Shell("y", "echo 2"))])
    assert first == Output(0, b"1\n")
    assert isinstance(second, Unreachable)
    assert "cut before" in second.reason
    with pytest.raises(Unreachable, match="how far it came is not known"):
        fleet.perform("local", Command(argv=("true",)))
