"""A plan touches nothing, for every registered operation: arguments come from their types."""

from __future__ import annotations

import hashlib
import itertools
import re
from pathlib import Path

import pytest

from deploy.operations import OPERATIONS
from runbooks.engine.model.operation import Operation, OperationFailed
from runbooks.engine.model.probe import Shell, Unknown
from tests.deploy.operations.local_machine import LocalMachine
from tests.deploy.operations.sample_arguments import arguments

PATCH = "--- a/file.txt\n+++ b/file.txt\n@@ -1 +1 @@\n-one\n+two\n"
MUTATING = re.compile(
    r"""(?<![\w./-])(
    rm|mv|cp|ln|mkdir|rmdir|touch|tee|chmod|chown|chgrp|truncate|install|mktemp|dd|kill|pkill
    |unlink|sync|eval|apt|apt-get|useradd|mount(?!\s+point)|umount|reboot|setsid|nohup
    |sed\s+-i|find\s.*-delete|find\s.*-exec|xargs
    |(?:ba|da|z)?sh\s+-c
    |pip\s+(?:install|download|uninstall)
    |git\s+(?:checkout|reset|clean|commit|am|pull|fetch|stash)
    |git\s+apply(?!\s+--check)
    |patch(?!=)
    |systemctl\s+(?:\$\w+\s+)?(?!show|is-active|is-enabled|list|cat|status)\w+
    )(?![\w.=/-])""",
    re.VERBOSE,
)
REDIRECT = re.compile(r"\d?(?<![-=])>{1,2}\|?\s*(\S+)")
QUOTED = re.compile(r"'[^']*'")


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        stat = path.lstat()
        content = ""
        if path.is_file() and not path.is_symlink():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path)] = (
            stat.st_mode,
            stat.st_ino,
            stat.st_size,
            stat.st_mtime_ns,
            stat.st_ctime_ns,
            content,
        )
    return found


@pytest.fixture
def machine(tmp_path: Path) -> LocalMachine:
    machine = LocalMachine(tmp_path)
    tree = machine.data / "tree"
    tree.mkdir()
    (tree / "file.txt").write_text("one\n")
    (machine.data / "link").symlink_to("tree")
    (machine.project / "some.patch").write_text(PATCH)
    return machine


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_preview_changes_nothing(operation: Operation, machine: LocalMachine) -> None:
    before = snapshot(machine.folder)
    for args in arguments(operation):
        try:
            machine.run(operation.preview(args, machine.context))
        except (OperationFailed, Unknown):
            continue
        finally:
            assert snapshot(machine.folder) == before
    assert machine.seen, "no preview looked at the world"
    assert all(isinstance(action, Shell) for action in machine.seen)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_alive_changes_nothing(operation: Operation, machine: LocalMachine) -> None:
    before = snapshot(machine.folder)
    args = next(arguments(operation))
    assert machine.run(operation.alive(args, machine.context)) is False
    assert snapshot(machine.folder) == before
    assert all(isinstance(action, Shell) for action in machine.seen)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_scripts_of_previews_hold_no_changing_words(
    operation: Operation, machine: LocalMachine
) -> None:
    for args in itertools.islice(arguments(operation), 8):
        try:
            machine.run(operation.preview(args, machine.context))
        except (OperationFailed, Unknown):
            continue
    for action in machine.seen:
        assert isinstance(action, Shell)
        assert changing_words(action.script) == []


def changing_words(script: str) -> list[str]:
    """Words of the shell's own text: literals in single quotes (shlex.quote's too) are data."""
    one_literal = script.replace("'\"'\"'", "")
    bare = QUOTED.sub("''", re.sub(r"^\s*#.*", "", one_literal, flags=re.MULTILINE))
    found = [match[0] for match in MUTATING.finditer(bare)]
    targets = [match[1].rstrip(';)"}') for match in REDIRECT.finditer(bare)]
    return found + [f"> {to}" for to in targets if to not in ("/dev/null", "&1", "&2")]


@pytest.mark.parametrize(
    "script",
    [
        "rm -rf x",
        "a && mkdir y",
        "echo x > file",
        "echo x >>file",
        'printf x | tee "$y"',
        "sed -i s/a/b/ f",
        "systemctl restart x",
        "systemctl $user stop x",
        "python3 -m pip install x",
        "git apply -p1 -",
        "sh -c 'rm x'",
    ],
)
def test_the_scan_finds(script: str) -> None:
    assert changing_words(script)


@pytest.mark.parametrize(
    "script",
    [
        "ls 2>&1 >/dev/null",
        "systemctl show x",
        "echo no >&2",
        "printf 'rm x'",
        "git apply --check -",
    ],
)
def test_the_scan_lets_pass(script: str) -> None:
    assert changing_words(script) == []
