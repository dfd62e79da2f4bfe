"""Fake hosts: scripted answers in, records of changes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyinfra.operations import systemd

from runbooks.engine.adapter.fake import load_responses
from runbooks.engine.adapter.fleet import PyinfraFleet
from runbooks.engine.adapter.inventory import make_fleet
from runbooks.engine.fleet import Unreachable
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.operation import Command, Delegate, Put
from runbooks.engine.model.probe import Output, Shell


def test_the_fake_fleet_is_the_fleet(fake_fleet: PyinfraFleet) -> None:
    hosts = fake_fleet.hosts
    assert list(hosts) == ["kpro6", "llm-two", "llm-one"]
    assert hosts["llm-two"].groups[:3] == ("containers", "gpu_nodes", "tank")
    assert hosts["llm-two"].resolve("model:kimi-k2.5") == "/data/models/kimi-k2.5"
    assert hosts["llm-one"].roots["data"].owner == "kpro6"


def test_labels_find_their_answers(fake_fleet: PyinfraFleet) -> None:
    label = "disk_free root=data"
    answers = fake_fleet.ask(
        [
            ("llm-two", Shell(label, "df")),
            ("kpro6", Shell(label, "df")),
            ("kpro6", Shell("proxmox guests", "pct list")),
            ("kpro6", Shell("another", "true")),
        ]
    )
    assert answers == [
        Output(0, b"7\n"),
        Output(0, b"42\n43\n"),
        Output(127, b"", "a\npct: not found\n"),
        Output(125, b"", "no scripted answer to this question\n"),
    ]


def test_changes_are_recorded_and_may_fail(fake_fleet: PyinfraFleet) -> None:
    actions: list[Command | Put | Delegate] = [
        Command(argv=("eagle3", "merge"), label="merge"),
        Put("/etc/x", b"secret", secret=True),
        Delegate(systemd.service, {"service": "x"}),
    ]
    for action in actions:
        assert fake_fleet.perform("llm-two", action) == Output(0)
    assert fake_fleet.recorded == [("llm-two", action) for action in actions]
    purge = Command(script="rm", label="purge")
    assert fake_fleet.perform("kpro6", purge) == Output(3, b"", "no\n")
    (host,) = [host for host in fake_fleet.state.inventory if host.name == "@fake/llm-two"]
    assert "secret" not in "".join(host.connector.executed_commands)
    assert fake_fleet.would_change("llm-two", Delegate(systemd.service, {"service": "x"}))


def test_answers_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "answers.yaml"
    file.write_text("all: {x: {stdot: 1}}")
    with pytest.raises(RunbookError) as caught:
        load_responses(file, "h")
    assert caught.value.diagnostics[0].hint == "did you mean 'stdout'?"
    file.write_text("all: {x: 1}\nh: {x: {exit: 2}}")
    answers = load_responses(file, "h")
    assert next(iter(answers)) == "x"
    assert answers["x"]["success"] is False
    assert isinstance(list(answers)[-1], re.Pattern)


def test_a_fake_host_can_be_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hosts.py").write_text(
        'up = [("@fake/one", {"fake_delay": 0.0, "fake_delay_jitter": 0.0})]\n'
        'down = [("@fake/two", {"fake_down": "No route to host"})]\n'
    )
    monkeypatch.chdir(tmp_path)
    fleet = make_fleet("hosts.py")
    assert fleet.connect(["one", "two"]) == {"two": "No route to host"}
    question = Shell("x", "true")
    one, two = fleet.ask([("one", question), ("two", question)])
    assert one == Output(0)
    assert isinstance(two, Unreachable)
    assert str(two) == "two: No route to host"
    with pytest.raises(Unreachable):
        fleet.perform("two", Command(argv=("true",)))
