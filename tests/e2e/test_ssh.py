"""The fleet over SSH, on a real sshd of this machine's loopback with keys of its own."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gevent
import pytest
from pyinfra.operations import files

from runbooks.engine.adapter import runtime
from runbooks.engine.adapter.batch import Task
from runbooks.engine.adapter.fleet import PyinfraFleet
from runbooks.engine.adapter.inventory import make_fleet
from runbooks.engine.adapter.writing import INLINE_LIMIT
from runbooks.engine.fleet import Unreachable
from runbooks.engine.model.operation import Command, Delegate, Put
from runbooks.engine.model.probe import Output, Shell
from tests.e2e.loopback import Server, host_data

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", autouse=True)
def patched() -> None:
    """Not at import: collecting this file must not patch a worker of pytest-xdist."""
    runtime.patch()


@pytest.fixture
def fleet(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PyinfraFleet:
    hosts = [("near", host_data(server)), ("far", host_data(server, port=1))]
    (tmp_path / "hosts.py").write_text(f"machines = {hosts!r}\n")
    monkeypatch.chdir(tmp_path)
    return make_fleet("hosts.py")


def test_questions_and_changes(fleet: PyinfraFleet, tmp_path: Path) -> None:
    down = fleet.connect(["near", "far"])
    assert list(down) == ["far"]
    assert "Could not connect" in down["far"]
    near, far, second = fleet.ask(
        [
            ("near", Shell("x", "printf '\\000\\377'; echo no >&2; exit 3")),
            ("far", Shell("x", "true")),
            ("near", Shell("y", "cat; echo 2")),
        ]
    )
    assert near == Output(3, b"\0\xff", "no\n")
    assert isinstance(far, Unreachable)
    assert second == Output(0, b"2\n")
    command = Command(argv=("sh", "-c", 'printf "%s" "$A"; cat'), env={"A": "s"}, stdin=b"\0")
    assert fleet.perform("near", command) == Output(0, b"s\0")
    assert fleet.perform("near", Command(argv=("sleep", "9"), timeout=1)).exit == 124
    with pytest.raises(Unreachable):
        fleet.perform("far", command)
    delegate = Delegate(files.line, {"path": str(tmp_path / "lines"), "line": "x"})
    assert fleet.would_change("near", delegate)
    assert fleet.perform("near", delegate) == Output(0)
    assert not fleet.would_change("near", delegate)


@pytest.mark.parametrize("size", [0, 1000, INLINE_LIMIT, INLINE_LIMIT + 1, 5 * INLINE_LIMIT])
def test_put(fleet: PyinfraFleet, tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    assert fleet.perform("near", Put(str(tmp_path / "file"), content, "0600")) == Output(0)
    assert (tmp_path / "file").read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "hosts.py"]


def test_megabytes_both_ways(fleet: PyinfraFleet) -> None:
    size = 5_000_000
    answer, after = fleet.ask(
        [("near", Shell("x", f"head -c {size} /dev/zero")), ("near", Shell("y", "echo 1"))]
    )
    assert answer == Output(0, b"\0" * size)
    assert after == Output(0, b"1\n")
    given = os.urandom(3_000_000)
    output = fleet.perform("near", Command(argv=("wc", "-c"), stdin=given))
    assert output == Output(0, b"3000000\n")


def test_sockets_are_tuned(fleet: PyinfraFleet) -> None:
    fleet.connect(["near"])
    host = fleet.state.inventory.get_host("near")
    for _ in range(2):
        sock = host.connector.client.get_transport().sock
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        fleet._connections.lost(host)
        assert fleet.ask([("near", Shell("x", "true"))]) == [Output(0)]


def test_a_lost_connection_is_made_again(fleet: PyinfraFleet, server: Server) -> None:
    question = ("near", Shell("x", "echo 1"))
    assert fleet.ask([question]) == [Output(0, b"1\n")]
    server.cut()
    time.sleep(0.3)
    assert fleet.ask([question]) == [Output(0, b"1\n")]


def test_a_connection_cut_under_work(fleet: PyinfraFleet, server: Server, tmp_path: Path) -> None:
    def perform(command: Command) -> Output | Unreachable:
        try:
            return fleet.perform("near", command)
        except Unreachable as error:
            return error

    fleet.connect(["near"])
    asked = gevent.spawn(
        fleet.ask, [("near", Shell("x", "echo 1")), ("near", Shell("y", "sleep 3; echo 2"))]
    )
    changed = gevent.spawn(perform, Command(argv=("sleep", "3")))
    gevent.sleep(1)
    server.cut()
    for answer in asked.get(timeout=10):
        assert isinstance(answer, (Output, Unreachable))
        assert not isinstance(answer, Output) or answer.stdout == b"1\n"
    assert isinstance(asked.get()[1], Unreachable)
    assert isinstance(changed.get(timeout=10), Unreachable)
    # A large content goes by the file transfer channel of the new connection.
    content = os.urandom(INLINE_LIMIT + 1)
    assert fleet.perform("near", Put(str(tmp_path / "file"), content)) == Output(0)
    assert (tmp_path / "file").read_bytes() == content


def test_several_sessions_share_a_connection(fleet: PyinfraFleet) -> None:
    asked = [
        gevent.spawn(fleet.ask, [("near", Shell("x", f"sleep 0.2; echo {number}"))])
        for number in range(20)
    ]
    for number, greenlet in enumerate(asked):
        assert greenlet.get(timeout=30) == [Output(0, f"{number}\n".encode())]


def test_secrets_stand_in_no_argv(fleet: PyinfraFleet) -> None:
    secret = "s3cr3t-" + "over-ssh"
    command = Command(argv=("sleep", "1"), env={"TOKEN": secret}, stdin=secret.encode())
    running = gevent.spawn(fleet.perform, "near", command)
    while not running.ready():
        gevent.sleep(0.05)
        for process in Path("/proc").glob("[0-9]*"):
            try:
                assert secret.encode() not in (process / "cmdline").read_bytes()
            except OSError:
                continue
    assert running.get() == Output(0)


def test_questions_of_one_call_share_a_round_trip(
    fleet: PyinfraFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    send = fleet._send

    def counted(host: Any, tasks: Sequence[Task], *args: Any, **kwargs: Any) -> Any:
        sent.append(len(tasks))
        return send(host, tasks, *args, **kwargs)

    monkeypatch.setattr(fleet, "_send", counted)
    assert fleet.ask([("near", Shell("x", "echo 1"))] * 12) == [Output(0, b"1\n")] * 12
    assert sent == [12]
