"""Units with a systemctl that answers from a text, in a namespace where systemd seems to run."""

from __future__ import annotations

import hashlib
import os

import pytest

from runbooks.engine.model.probe import Unknown
from runbooks.engine.model.values import ABSENT
from tests.deploy.facts.this_machine import ThisMachine, needs_root

pytestmark = needs_root

SHOWN = """LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
Result=success
NRestarts=2
NeedDaemonReload=yes
FragmentPath={folder}/sglang.service
DropInPaths={folder}/10.conf {folder}/20.conf"""


@pytest.fixture
def systemd(machine: ThisMachine) -> ThisMachine:
    fake = machine.folder / "fake"
    fake.mkdir()
    (fake / "systemctl").write_text(
        "#!/bin/sh\n"
        f"printf '%s ' \"$@\" >> '{machine.folder}/asked'\n"
        f'case "$*" in *MainPID*) cat "{machine.folder}/pid";; *) cat "{machine.folder}/shown";;\n'
        f'esac\nexit "$(cat {machine.folder}/code)"\n'
    )
    (fake / "systemctl").chmod(0o755)
    (machine.folder / "code").write_text("0")
    machine.path = f"{fake}:{machine.path}"
    machine.wrap = (
        *("unshare", "--mount", "sh", "-c"),
        'mount -t tmpfs none /run && mkdir -p /run/systemd/system && exec "$@"',
        "sh",
    )
    return machine


def test_service(systemd: ThisMachine) -> None:
    folder = systemd.folder
    (folder / "shown").write_text(SHOWN.format(folder=folder))
    content = ""
    for name in ("sglang.service", "10.conf", "20.conf"):
        (folder / name).write_text(name)
        content += name
    fields = systemd.read("service", unit="sglang")
    assert fields["unit_sha256"] == hashlib.sha256(content.encode()).hexdigest()
    assert (fields["state"], fields["enabled"], fields["stale"]) == ("running", True, True)
    assert (folder / "asked").read_text().endswith("-- sglang.service ")
    (folder / "20.conf").unlink()
    assert isinstance(systemd.read("service", unit="sglang")["unit_sha256"], Unknown)


def test_a_bus_that_does_not_answer_is_unknown(systemd: ThisMachine) -> None:
    said = "Failed to connect to bus: Permission denied\n"
    for name, text in (("shown", said), ("pid", said), ("code", "1")):
        (systemd.folder / name).write_text(text)
    with pytest.raises(Unknown, match="Failed to connect to bus"):
        systemd.read("service", unit="sglang")
    with pytest.raises(Unknown, match="Failed to connect to bus"):
        systemd.read("process_env", unit="sglang", name="MODE")


def test_the_environment_of_a_unit(systemd: ThisMachine) -> None:
    (systemd.folder / "pid").write_text(f"MainPID={os.getpid()}\n")
    shown = systemd.read("process_env", unit="sglang", name="PATH")["value"]
    assert shown is not ABSENT and "/" in shown
    (systemd.folder / "pid").write_text("MainPID=0\n")
    assert systemd.read("process_env", unit="sglang", name="PATH")["value"] is ABSENT
