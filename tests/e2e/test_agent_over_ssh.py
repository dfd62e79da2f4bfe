"""The agent of a host over SSH: used, left aside, replaced."""

from __future__ import annotations

from pathlib import Path

import gevent
import pytest

from runbooks.engine.adapter import runtime, standing
from runbooks.engine.adapter.fleet import PyinfraFleet
from runbooks.engine.adapter.inventory import make_fleet
from runbooks.engine.fleet import Fenced, Unreachable
from runbooks.engine.model.operation import Command
from runbooks.engine.model.probe import Output, Shell
from tests.e2e.loopback import Server, host_data

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", autouse=True)
def patched() -> None:
    runtime.patch()


@pytest.fixture
def fleet(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PyinfraFleet:
    (tmp_path / "hosts.py").write_text(f"machines = {[('near', host_data(server))]!r}\n")
    monkeypatch.chdir(tmp_path)
    return make_fleet("hosts.py")


def parent(fleet: PyinfraFleet) -> str:
    (answer,) = fleet.ask([("near", Shell("x", "tr '\\0' ' ' < /proc/$PPID/cmdline; echo $PPID"))])
    assert isinstance(answer, Output)
    return answer.text


def test_round_trips_share_one_agent(fleet: PyinfraFleet) -> None:
    first = parent(fleet)
    assert "eagle3-probe" in first
    assert parent(fleet) == first
    # A change runs in a shell of its own, which the fence names.
    output = fleet.perform("near", Command(script="echo $PPID"))
    assert output.text.strip() == first.split()[-1]


def test_a_second_round_trip_at_the_same_time_needs_no_agent(fleet: PyinfraFleet) -> None:
    fleet.connect(["near"])
    waiting = gevent.spawn(fleet.ask, [("near", Shell("x", "sleep 2; echo 1"))])
    gevent.sleep(0.5)
    assert "eagle3-probe" not in parent(fleet)
    assert not waiting.ready()
    assert waiting.get() == [Output(0, b"1\n")]
    assert "eagle3-probe" in parent(fleet)


def test_an_agent_that_is_gone_is_replaced(fleet: PyinfraFleet) -> None:
    first = parent(fleet)
    (answer,) = fleet.ask([("near", Shell("x", "kill -9 $PPID; sleep 1"))])
    assert isinstance(answer, Unreachable)
    second = parent(fleet)
    assert "eagle3-probe" in second
    assert second != first


def test_a_change_behind_its_fence(fleet: PyinfraFleet, tmp_path: Path) -> None:
    touch = Command(argv=("touch", str(tmp_path / "mark")))
    with pytest.raises(Fenced, match="not ours"):
        fleet.perform("near", touch, "echo not ours; exit 1")
    assert not (tmp_path / "mark").exists()
    assert fleet.perform("near", touch, "true") == Output(0)
    assert (tmp_path / "mark").exists()


def test_a_host_without_python_gives_the_same_answers(
    fleet: PyinfraFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "PYTHONS", "/no/python3")
    asked = [("near", Shell("x", "printf '\\000\\377'; echo no >&2; exit 3"))] * 2
    for _ in range(2):
        assert fleet.ask(asked) == [Output(3, b"\0\xff", "no\n")] * 2
    assert "eagle3-probe" not in parent(fleet)
