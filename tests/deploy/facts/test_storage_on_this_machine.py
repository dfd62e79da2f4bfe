"""Paths, trees, disks and rows, for real: permissions, mounts, open files."""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from runbooks.engine.model.check import Check, Truth, Want, judge
from runbooks.engine.model.fact import Reading
from runbooks.engine.model.host import Root
from runbooks.engine.model.probe import Unknown
from runbooks.engine.model.values import ABSENT
from tests.deploy.facts.this_machine import BY_NAME, ThisMachine, needs_root


@pytest.fixture
def locked(machine: ThisMachine) -> ThisMachine:
    """`locked/` may not be entered by the user who looks; it holds the file `f`."""
    place = machine.folder / "locked"
    place.mkdir()
    (place / "f").write_text("x")
    (place / "f.jsonl").write_text("1\n")
    place.chmod(0o700 if os.geteuid() == 0 else 0o000)
    machine.nobody = True
    yield machine
    place.chmod(0o700)


@pytest.mark.parametrize("name", ["f", "missing", "deep/er/missing"])
def test_what_may_not_be_seen_is_unknown_and_never_absent(locked: ThisMachine, name: str) -> None:
    with pytest.raises(Unknown, match=r"[Pp]ermission denied"):
        locked.read("path", path=f"data:locked/{name}")
    for fact, args in (
        ("tree", {"path": f"data:locked/{name}"}),
        ("row_count", {"path": f"data:locked/{name}"}),
        ("disk_free", {"path": f"data:locked/{name}"}),
        ("git", {"repo": f"data:locked/{name}"}),
    ):
        with pytest.raises(Unknown, match=r"[Pp]ermission denied"):
            locked.read(fact, **args)


def test_a_forbidden_path_does_not_satisfy_is_absent(locked: ThisMachine) -> None:
    fact = BY_NAME["path"]
    with pytest.raises(Unknown) as caught:
        locked.read("path", path="data:locked/f")
    want = Want("is", "eq", "absent", fact.fields["is"].type)
    check = Check(fact, {"path": "data:locked/f"}, (want,))
    finding = judge(check, Reading({}, "here", 0.0, unknown=caught.value.reason))
    assert finding.truth is Truth.UNKNOWN
    assert "Permission denied" in finding.sentence()


def test_the_forbidden_folder_itself_is_seen(locked: ThisMachine) -> None:
    assert locked.read("path", path="data:locked")["is"] == "directory"


def test_a_part_that_may_not_be_read_makes_size_and_rows_unknown(locked: ThisMachine) -> None:
    fields = locked.read("tree", path="data:")
    for name in ("size", "files"):
        assert isinstance(fields[name], Unknown), name
    with pytest.raises(Unknown, match="Permission denied"):
        locked.read("row_count", path="data:")


def test_kinds(machine: ThisMachine) -> None:
    place = machine.folder
    (place / "file").write_bytes(b"\xff\x00")
    (place / "file").chmod(0o640)
    (place / "folder").mkdir()
    (place / "link").symlink_to("file")
    (place / "dangling").symlink_to("nowhere")
    (place / "loop").symlink_to("loop")
    os.mkfifo(place / "pipe")
    odd = "with ' \" $(touch x) `touch y` ; *.é"
    (place / odd).write_text("x")

    def kind(name: str, **more: object) -> object:
        return machine.read("path", path=f"data:{name}", **more)["is"]

    assert [kind(name) for name in ("file", "folder", "link", "dangling", "pipe", odd)] == [
        "file",
        "directory",
        "link",
        "link",
        "other",
        "file",
    ]
    assert kind("link", follow=True) == "file"
    assert kind("dangling", follow=True) == "absent"
    assert kind("missing") == kind("missing/deeper") == kind("file/below") == "absent"
    fields = machine.read("path", path="data:file", digest=True)
    assert (fields["size"], fields["mode"]) == (2, "0640")
    assert fields["sha256"] == hashlib.sha256(b"\xff\x00").hexdigest()
    assert not (place / "x").exists()


@pytest.mark.parametrize("path", ["data:loop/x", "data:" + "n" * 300])
def test_other_errors_are_unknown(machine: ThisMachine, path: str) -> None:
    (machine.folder / "loop").symlink_to("loop")
    with pytest.raises(Unknown):
        machine.read("path", path=path)


def test_a_root_without_its_mount_is_unknown(machine: ThisMachine) -> None:
    machine.mounted = True
    for fact, args in (
        ("path", {"path": "data:x"}),
        ("path", {"path": str(machine.folder / "x")}),
        ("tree", {"path": "data:x"}),
        ("disk_free", {"root": "data"}),
        ("row_count", {"path": "data:x"}),
        ("git", {"repo": "data:x"}),
    ):
        with pytest.raises(Unknown, match="not mounted"):
            machine.read(fact, **args)
    machine.folder = machine.folder / "missing"
    with pytest.raises(Unknown, match="not mounted"):
        machine.read("path", path="data:x")


def nested(machine: ThisMachine) -> None:
    """A root within the root `data`, which alone must be mounted."""
    place = PurePosixPath(machine.folder, "ho t")
    Path(place).mkdir()
    machine.roots = (Root("hot", place, "here", "disk", mounted=True),)


def test_a_path_in_two_roots_needs_the_mounts_of_both(machine: ThisMachine) -> None:
    """`data:ho t/x` lies in `hot` too: without its mount nothing in it is absent."""
    nested(machine)
    folder = machine.folder
    for path in ("data:ho t/x", "hot:x", f"{folder}/ho t/x", f"{folder}/y/../ho t/x"):
        for fact, args in (
            ("path", {"path": path}),
            ("tree", {"path": path}),
            ("disk_free", {"path": path}),
            ("row_count", {"path": path}),
            ("git", {"repo": path}),
        ):
            with pytest.raises(Unknown, match=r"the root hot \(.*\) is not mounted"):
                machine.read(fact, **args)
    assert machine.read("path", path="data:x")["is"] == "absent"
    assert machine.read("path", path="data:ho tter")["is"] == "absent"


def test_a_path_in_an_inner_root_needs_the_mount_of_the_outer(machine: ThisMachine) -> None:
    machine.mounted = True
    (machine.folder / "inner").mkdir()
    machine.roots = (Root("inner", PurePosixPath(machine.folder, "inner"), "here", "disk"),)
    for path in ("inner:x", f"{machine.folder}/inner/x"):
        with pytest.raises(Unknown, match=r"the root data \(.*\) is not mounted"):
            machine.read("path", path=path)


@needs_root
def test_a_path_in_two_mounted_roots_is_read(machine: ThisMachine) -> None:
    nested(machine)
    in_namespace(machine, f"mount -t tmpfs none '{machine.folder}/ho t'")
    assert machine.read("path", path="data:ho t/x")["is"] == "absent"
    assert machine.read("disk_free", path="data:ho t/x")["mount"] == f"{machine.folder}/ho t"


def in_namespace(machine: ThisMachine, setup: str) -> None:
    """Scripts run in their own mount and process namespaces, after `setup`."""
    machine.wrap = (
        *("unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c"),
        f'{setup}\nexec "$@"',
        "sh",
    )


@needs_root
def test_a_mounted_root_and_a_mount_below(machine: ThisMachine) -> None:
    place = machine.folder / "with space"
    (place / "t/below").mkdir(parents=True)
    machine.folder, machine.mounted = place, True
    in_namespace(
        machine,
        f"mount -t tmpfs none '{place}' && mkdir -p '{place}/t/below' '{place}/u'"
        f" && mount --bind '{place}/u' '{place}/t/below'",
    )
    assert machine.read("path", path="data:x")["is"] == "absent"
    fields = machine.read("tree", path="data:t")
    assert (fields["mounts_below"], fields["one_filesystem"]) == (1, False)
    whole = machine.read("tree", path="data:")
    assert whole["mounts_below"] == 1
    alone = machine.read("tree", path="data:u")
    assert (alone["mounts_below"], alone["one_filesystem"]) == (0, True)
    assert machine.read("tree", path="data:t/below")["one_filesystem"] is False
    assert machine.read("disk_free", root="data")["mount"] == str(place)


@needs_root
@pytest.mark.parametrize(
    ("setup", "count"),
    [
        ("true", 0),
        ("exec 7< {t}/f", 1),
        ("exec 7< {t}/f 8< {t}/f 9< {t}/g", 2),
        ("exec 7< {t}/../outside", 0),
        ("(cd {t} && exec sleep 60) & sleep 0.3", 1),
        ("mkdir {t}/../b && mount --bind {t} {t}/../b && exec 7< {t}/../b/f", 1),
    ],
    ids=["nothing", "open", "distinct", "outside", "cwd", "bind"],
)
def test_open_files(machine: ThisMachine, setup: str, count: int) -> None:
    tree = machine.folder / "t"
    tree.mkdir()
    for name in ("t/f", "t/g", "outside"):
        (machine.folder / name).write_text("x" * 4096)
    in_namespace(machine, setup.format(t=tree))
    fields = machine.read("tree", path="data:t")
    assert fields["open_files"] == count
    assert fields["files"] == 2


@needs_root
def test_a_mapped_file_is_open(machine: ThisMachine) -> None:
    (machine.folder / "t").mkdir()
    file = machine.folder / "t" / "f"
    file.write_bytes(b"x" * mmap.PAGESIZE)
    # Python's mmap keeps a descriptor of its own; ctypes maps without one.
    program = machine.folder / "map.py"
    program.write_text(
        "import ctypes, os, time\n"
        f"f = os.open({str(file)!r}, os.O_RDONLY)\n"
        "mmap = ctypes.CDLL(None).mmap\n"
        "mmap.restype = ctypes.c_void_p\n"
        f"mmap(None, {mmap.PAGESIZE}, 1, 2, f, ctypes.c_long(0))\n"
        "os.close(f)\nprint(flush=True)\ntime.sleep(60)\n"
    )
    python3 = shutil.which("python3")
    in_namespace(machine, f"{python3} {program} & sleep 1")
    assert machine.read("tree", path="data:t")["open_files"] == 1


def test_a_user_who_does_not_see_all_processes_claims_nothing(machine: ThisMachine) -> None:
    (machine.folder / "t").mkdir()
    machine.nobody = True
    assert isinstance(machine.read("tree", path="data:t")["open_files"], Unknown)


def test_tree_size_and_names(machine: ThisMachine) -> None:
    tree = machine.folder / "t"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "new\nline").write_bytes(os.urandom(100_000))
    (tree / "link").symlink_to("/")
    fields = machine.read("tree", path="data:t")
    assert fields["files"] == 2
    shown = subprocess.run(["du", "-skx", tree], capture_output=True, text=True, check=True).stdout
    assert fields["size"] == int(shown.split()[0]) * 1024 >= 100_000
    assert machine.read("tree", path="data:missing") == dict.fromkeys(fields, ABSENT)


def test_disk_free_of_a_folder_that_is_not_there_yet(machine: ThisMachine) -> None:
    here = machine.read("disk_free", root="data")
    assert here["free"] > 0
    there = machine.read("disk_free", path="data:not/yet/there")
    assert there["mount"] == here["mount"]
    stats = os.statvfs(machine.folder)
    assert abs(here["free"] - stats.f_bavail * stats.f_frsize) < 2**30


def test_rows(machine: ThisMachine) -> None:
    rows = machine.folder / "rows"
    (rows / "sub").mkdir(parents=True)
    (rows / "a=b c.jsonl").write_text('{"x": 1}\n\n{"x": 2}')
    (rows / "sub" / "d.jsonl").write_text("1\n2\n3\n")
    (rows / "other.txt").write_text("1\n")
    assert machine.read("row_count", path="data:rows")["rows"] == 5
    assert machine.read("row_count", path="data:rows/a=b c.jsonl")["rows"] == 2
    assert machine.read("row_count", path="data:missing")["rows"] is ABSENT


def test_an_empty_shard_is_named(machine: ThisMachine) -> None:
    shards = machine.folder / "hidden"
    shards.mkdir()
    for number in range(2, 6):
        (shards / f"000{number}.done").write_text("10000\n")
    (shards / "0001.done").touch()
    fields = machine.read("row_count", path="data:hidden")
    assert (fields["rows"], fields["empty"]) == (40_000, 1)
    fact = BY_NAME["row_count"]
    want = Want("rows", "eq", 50_000, fact.fields["rows"].type)
    finding = judge(Check(fact, {"path": "data:hidden"}, (want,)), Reading(fields, "here", 0.0))
    assert finding.truth is Truth.FALSE
    assert "0001.done is empty" in finding.sentence()


def test_an_unreadable_shard_is_unknown(machine: ThisMachine) -> None:
    shard = machine.folder / "a.jsonl"
    shard.write_text("1\n")
    shard.chmod(0o600 if os.geteuid() == 0 else 0)
    machine.nobody = True
    with pytest.raises(Unknown, match=r"a\.jsonl"):
        machine.read("row_count", path="data:")


def test_nothing_is_changed(machine: ThisMachine) -> None:
    (machine.folder / "t").mkdir()
    (machine.folder / "t" / "f.jsonl").write_text("1\n")

    def shape() -> list[tuple[Path, int]]:
        return [(path, path.lstat().st_mtime_ns) for path in sorted(machine.folder.rglob("*"))]

    before = shape()
    for fact, args in (
        ("path", {"path": "data:t/f.jsonl", "digest": True}),
        ("tree", {"path": "data:t"}),
        ("row_count", {"path": "data:t"}),
        ("disk_free", {"root": "data"}),
        ("job", {}),
        ("git", {"repo": "data:t"}),
    ):
        machine.read(fact, **args)
    assert shape() == before
