"""`delete` against swapped links, mounts and paths that lead out: nothing outside is touched."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from deploy.operations.delete import Delete
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.host import Context, Host, Root
from runbooks.engine.model.operation import Command, OperationFailed, Preview
from runbooks.engine.model.probe import Unknown
from tests.deploy.operations.local_machine import LocalMachine, parsed

DELETE = Delete()


@pytest.fixture
def machine(tmp_path: Path) -> LocalMachine:
    machine = LocalMachine(tmp_path)
    fill(machine.data / "old")
    fill(tmp_path / "precious")
    return machine


def fill(folder: Path) -> None:
    (folder / "in ner").mkdir(parents=True)
    for name in ("a", "b\nc", "in ner/d"):
        (folder / name).write_bytes(b"x" * 5000)


def whole(folder: Path) -> bool:
    return sum(path.is_file() for path in folder.rglob("*")) == 3


def preview(machine: LocalMachine, *paths: str) -> Preview:
    args = parsed(DELETE, {"paths": list(paths)})
    result: Preview = machine.run(DELETE.preview(args, machine.context))
    return result


def act(machine: LocalMachine, *paths: str) -> str:
    args = parsed(DELETE, {"paths": list(paths)})
    return str(machine.run(DELETE.act(args, machine.context)))


def test_measures_and_deletes(machine: LocalMachine) -> None:
    found = preview(machine, "data:old", "data:gone")
    stat = (machine.data / "old").stat()
    assert found.frees["data"] >= 15000
    assert found.identity == (
        f"{machine.data}/old={stat.st_dev}:{stat.st_ino}:{int(stat.st_mtime)}"
    )
    assert ", 3 files" in found.summary
    assert "data:gone is absent" in found.summary
    assert act(machine, "data:old", "data:gone").startswith("freed ")
    assert not (machine.data / "old").exists()
    assert act(machine, "data:old") == "nothing to do"
    assert preview(machine, "data:old").frees == {}


def test_odd_names(machine: LocalMachine) -> None:
    for name in ("-rf", "a b'c\"d", "*", "$(id)", "x: No such file or directory", "ü\\n"):
        fill(machine.data / name)
        assert preview(machine, f"data:{name}").files
        act(machine, f"data:{name}")
        assert not (machine.data / name).exists()
    assert whole(machine.data / "old")


def test_a_file_and_a_nested_path(machine: LocalMachine) -> None:
    act(machine, "data:old/a", "data:old/./in ner/")
    assert [path.name for path in (machine.data / "old").iterdir()] == ["b\nc"]


@pytest.mark.parametrize("paths", [["data:old", "data:old/a"], ["data:old", "data:./old/"]])
def test_a_path_named_twice(machine: LocalMachine, paths: list[str]) -> None:
    with pytest.raises(OperationFailed, match="named twice"):
        act(machine, *paths)
    assert whole(machine.data / "old")


@pytest.mark.parametrize(
    "path", ["data:", "data:.", "data:./", "data:../precious", "data:old/../.."]
)
def test_the_grammar_refuses(machine: LocalMachine, path: str) -> None:
    with pytest.raises(ValueError, match="root"):
        parsed(DELETE, {"paths": [path]})
    with pytest.raises(OperationFailed, match="strictly inside"):
        machine.run(DELETE.act({"paths": (path,)}, machine.context))


def test_an_unknown_root(machine: LocalMachine) -> None:
    with pytest.raises(RunbookError, match="not declared"):
        act(machine, "date:old")


def test_a_link_that_leaves_the_root(machine: LocalMachine) -> None:
    (machine.data / "link").symlink_to(machine.folder / "precious")
    (machine.data / "relative").symlink_to("../precious")
    (machine.data / "loop").symlink_to("loop")
    (machine.data / "self").symlink_to(".")
    for name in ("link", "relative", "loop", "self"):
        for attempt in (preview, act):
            with pytest.raises(OperationFailed, match="leaves the root"):
                attempt(machine, f"data:{name}")
    assert whole(machine.folder / "precious")


def test_a_link_on_the_way_out(machine: LocalMachine) -> None:
    (machine.data / "link").symlink_to(machine.folder)
    for attempt in (preview, act):
        with pytest.raises(OperationFailed, match="outside the root"):
            attempt(machine, "data:link/precious")
    assert whole(machine.folder / "precious")


def test_a_link_inside_the_root_goes_alone(machine: LocalMachine) -> None:
    (machine.data / "link").symlink_to("old")
    act(machine, "data:link")
    assert not (machine.data / "link").is_symlink()
    assert whole(machine.data / "old")


def test_links_in_the_tree_are_not_followed(machine: LocalMachine) -> None:
    (machine.data / "old" / "out").symlink_to(machine.folder / "precious")
    act(machine, "data:old")
    assert whole(machine.folder / "precious")


def test_a_root_that_is_a_link_is_resolved(machine: LocalMachine) -> None:
    shutil.move(machine.data, machine.folder / "real")
    machine.data.symlink_to("real")
    assert str(machine.folder / "real" / "old") in preview(machine, "data:old").summary
    act(machine, "data:old")
    assert not (machine.folder / "real" / "old").exists()


def swapped(machine: LocalMachine, change: Any) -> None:
    """Run the change once, between the last look and the removal."""

    def before(action: Any) -> None:
        if isinstance(action, Command):
            machine.before = lambda action: None
            change()

    machine.before = before


def test_target_swapped_for_a_link(machine: LocalMachine) -> None:
    old = machine.data / "old"

    def change() -> None:
        old.rename(machine.data / "aside")
        old.symlink_to(machine.folder / "precious")

    swapped(machine, change)
    with pytest.raises(OperationFailed, match="refused"):
        act(machine, "data:old")
    assert whole(machine.folder / "precious")


def test_target_swapped_for_another_folder(machine: LocalMachine) -> None:
    old = machine.data / "old"

    def change() -> None:
        old.rename(machine.data / "aside")
        fill(old)

    swapped(machine, change)
    with pytest.raises(OperationFailed, match="it was replaced"):
        act(machine, "data:old")
    assert whole(old)


def test_parent_swapped_for_a_link(machine: LocalMachine) -> None:
    (machine.data / "run").mkdir()
    fill(machine.data / "run" / "precious")

    def change() -> None:
        (machine.data / "run").rename(machine.data / "aside")
        (machine.data / "run").symlink_to(machine.folder)

    swapped(machine, change)
    with pytest.raises(OperationFailed, match="outside the root"):
        act(machine, "data:run/precious")
    assert whole(machine.folder / "precious")


def test_swapped_at_the_last_moment(machine: LocalMachine) -> None:
    """After every check, right before rm's own work: the link goes, what it names stays."""
    tools = machine.folder / "bin"
    tools.mkdir()
    old, precious = machine.data / "old", machine.folder / "precious"
    script = f"""#!/bin/sh
if [ "$1" = --help ]; then exec /bin/rm "$@"; fi
mv {old} {machine.data}/aside; ln -s {precious} {old}
mv {machine.data} {machine.folder}/moved; ln -s {machine.folder}/trap {machine.data}
exec /bin/rm "$@"
"""
    fill(machine.folder / "trap" / "old")
    (tools / "rm").write_text(script)
    (tools / "rm").chmod(0o755)
    machine.path = f"{tools}:{machine.path}"
    act(machine, "data:old")
    assert whole(precious)
    assert whole(machine.folder / "trap" / "old")
    assert whole(machine.folder / "moved" / "aside")


def test_another_root_inside_is_refused(machine: LocalMachine) -> None:
    context = machine.context
    roots = dict(context.host.roots)
    roots["nested"] = Root("nested", PurePosixPath(machine.data, "old/in ner"), "here", "disk")
    host = replace(context.host, roots=roots)
    context = replace(context, host=host, fleet={"here": host})
    with pytest.raises(OperationFailed, match="it holds the root"):
        machine.run(DELETE.preview({"paths": ("data:old",)}, context))


def test_an_unmounted_root_is_unknown(machine: LocalMachine) -> None:
    """Where the disk is not mounted, `absent` would be a lie."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if any(str(machine.data).startswith(f"{point}/") for point in mounts if point != "/"):
        pytest.skip("the temporary folder lies on a mount of its own")
    machine.mounted = True
    for attempt in (preview, act):
        for path in ("data:old", "data:gone"):
            with pytest.raises(Unknown, match="not mounted"):
                attempt(machine, path)
    assert whole(machine.data / "old")


def test_an_unmounted_root_within_the_root_is_unknown(machine: LocalMachine) -> None:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if any(str(machine.data).startswith(f"{point}/") for point in mounts if point != "/"):
        pytest.skip("the temporary folder lies on a mount of its own")
    context = machine.context
    roots = dict(context.host.roots)
    roots["hot"] = Root("hot", PurePosixPath(machine.data, "old"), "here", "disk", mounted=True)
    host = replace(context.host, roots=roots)
    context = replace(context, host=host, fleet={"here": host})
    for path in ("data:old/in ner", "data:old/gone", "hot:gone"):
        for steps in (DELETE.preview, DELETE.act):
            with pytest.raises(Unknown, match="/old is not mounted"):
                machine.run(steps({"paths": (path,)}, context))
    assert whole(machine.data / "old")
    assert "is absent" in machine.run(DELETE.preview({"paths": ("data:gone",)}, context)).summary


def test_the_owners_inner_root_must_be_mounted_too(machine: LocalMachine) -> None:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if any(str(machine.data).startswith(f"{point}/") for point in mounts if point != "/"):
        pytest.skip("the temporary folder lies on a mount of its own")
    context = machine.context
    data = context.host.roots["data"]
    inner = Root("hot", PurePosixPath(machine.data, "old"), "here", "disk", mounted=True)
    owner = replace(context.host, roots={"data": data, "hot": inner})
    host = Host("guest", roots={"data": data})
    context = Context(host, {"here": owner, "guest": host}, machine.project)
    with pytest.raises(Unknown, match=r"on here: the root .*/old is not mounted"):
        machine.run(DELETE.act({"paths": ("data:old/in ner",)}, context))
    assert whole(machine.data / "old")


def test_a_missing_root_is_unknown(machine: LocalMachine) -> None:
    shutil.rmtree(machine.data)
    with pytest.raises(Unknown, match="is not there"):
        act(machine, "data:old")


def test_the_owner_is_asked_for_mounts(machine: LocalMachine) -> None:
    context = machine.context
    host = Host("guest", roots={"data": replace(context.host.roots["data"], owner="here")})
    context = Context(host, {"here": context.host, "guest": host}, machine.project)
    machine.run(DELETE.act({"paths": ("data:old",)}, context))
    hosts = [getattr(action, "host", None) for action in machine.seen]
    assert hosts == [None, "here", None]


def may_mount() -> bool:
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True)
    return os.geteuid() == 0 and done.returncode == 0


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount")
@pytest.mark.parametrize("mount", ["--bind {precious} {inner}", "-t tmpfs none {inner}"])
@pytest.mark.parametrize("late", [False, True])
def test_a_mount_inside_is_refused(machine: LocalMachine, mount: str, late: bool) -> None:
    """A bind mount of the same filesystem too, which --one-file-system would walk into."""
    inner = machine.data / "old" / "in ner"
    quoted = mount.format(precious=f"'{machine.folder}/precious'", inner=f"'{inner}'")
    args = parsed(DELETE, {"paths": ["data:old"]})
    steps = DELETE.act(args, machine.context)
    look: Any = next(steps)
    if late:
        look = steps.send(machine.perform(look))
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"mount {quoted} || exit 99\n{look.script}"],
        capture_output=True,
        env=machine.environment(),
    )
    assert done.returncode == (3 if late else 0)
    said = done.stderr if late else done.stdout
    assert b"a mount point lies in it" in said
    assert whole(machine.folder / "precious")
    assert whole(machine.data / "old")


@pytest.mark.skipif(os.geteuid() != 0, reason="drops its privileges")
def test_a_forbidden_parent_is_unknown_not_absent(machine: LocalMachine) -> None:
    (machine.data / "old").chmod(0o700)
    machine.folder.chmod(0o755)
    look: Any = next(DELETE.preview({"paths": ("data:old/a",)}, machine.context))
    words = ["setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", look.script]
    done = subprocess.run(words, env=machine.environment(), capture_output=True, text=True)
    assert "state\tunknown" in done.stdout
