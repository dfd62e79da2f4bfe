"""Files that a host shall have: looking at what is there, showing the difference, writing.

pyinfra's `files.put` and `files.template` are not used: their diff raises on a changed binary
and aborts the run, is missing when the parent folder is, and prints secrets in clear
(measured on 3.10.0); and they write in place where `Put` renames.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from deploy.operations.arguments import Mode
from deploy.operations.common import Steps, succeeded, text_of
from deploy.shell import quote
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.operation import Command, OperationFailed, Preview, Put
from runbooks.engine.model.probe import Output, Shell, Unknown
from runbooks.engine.model.values import Boolean, Text, show_size

__all__ = ["SHOWN", "WRITING", "HostFile", "WantedFile", "preview_files", "write_files"]

# Larger texts are named, not printed.
SHOWN = 256 * 1024


# How a file is written: the arguments that `copy` and `template` share.
WRITING: Mapping[str, Argument] = {
    "mode": Argument(Mode(), "Permissions of each file.", default="0644"),
    "owner": Argument(Text(), "The owner; unchanged (or the connecting user) by default."),
    "group": Argument(Text(), "The group; unchanged by default."),
    "backup": Argument(
        Boolean(), "Keep the replaced file beside it as NAME.before.", default=False
    ),
    "parents": Argument(Boolean(), "Make missing parent folders.", default=False),
    "secret": Argument(
        Boolean(), "Say only that the content differs; never print it.", default=False
    ),
}


@dataclass(frozen=True, slots=True)
class WantedFile:
    """A file as it shall be on the host; `source` says where the content comes from."""

    path: str
    content: bytes
    source: str
    mode: str = "0644"
    owner: str | None = None
    group: str | None = None
    secret: bool = False
    backup: bool = False
    parents: bool = False


@dataclass(frozen=True, slots=True)
class HostFile:
    """A file as it is: `kind` is file, absent, folder, link or other; `parent` a folder above."""

    kind: str
    mode: str = ""
    owner: str = ""
    group: str = ""
    size: int = 0
    sha256: str = ""
    parent: bool = True

    def differences(self, wanted: WantedFile) -> list[str]:
        """What would change, in words; empty when nothing would."""
        if self.kind == "absent":
            return ["absent"]
        found = []
        if self.sha256 != hashlib.sha256(wanted.content).hexdigest():
            found.append("content")
        for word, now, want in (
            ("mode", self.mode.rjust(4, "0"), wanted.mode),
            ("owner", self.owner, wanted.owner),
            ("group", self.group, wanted.group),
        ):
            if want is not None and now != want:
                found.append(f"{word} {now} → {want}")
        return found


# One line a path: kind, mode, owner, group, size, sha256, parent; `denied` with the reason.
# A digest is taken only where the size is the wanted one.
_LOOK = r"""export LC_ALL=C
look() {
  if said=$(stat -c '%F|%a|%U|%G|%s' "$1" 2>&1); then
    kind=${said%%|*}; rest=${said#*|}; size=${said##*|}; digest=-
    case $kind in
      regular*) kind=file
        if [ "$size" = "$2" ]; then
          if ! digest=$(sha256sum < "$1" 2>&1); then printf 'denied|%s\n' "$1"; return; fi
          digest=${digest%% *}
        fi;;
      directory) kind=folder;;
      'symbolic link') kind=link;;
      *) kind=other;;
    esac
    printf '%s|%s|%s|yes\n' "$kind" "$rest" "$digest"
  else
    case $said in
      *'No such file or directory'*|*'Not a directory'*)
        parent=no; [ -d "${1%/*}/" ] && parent=yes
        printf 'absent|||||-|%s\n' "$parent";;
      *) printf 'denied|%s\n' "$1";;
    esac
  fi
}
"""


def _look(label: str, wanted: Sequence[WantedFile]) -> Generator[Shell, Output, list[HostFile]]:
    calls = "".join(f"look {quote(file.path)} {len(file.content)}\n" for file in wanted)
    text = text_of((yield Shell(label, _LOOK + calls, timeout=300)), label)
    lines = text.splitlines()
    if len(lines) != len(wanted):
        raise Unknown(f"{label}: {len(lines)} answers to {len(wanted)} questions")
    return [_parse(line, file) for line, file in zip(lines, wanted, strict=True)]


def _parse(line: str, wanted: WantedFile) -> HostFile:
    parts = line.split("|")
    if parts[0] == "denied":
        raise Unknown(f"{wanted.path}: permission denied")
    if len(parts) != 7:
        raise Unknown(f"{wanted.path}: {line!r} is no answer")
    kind, mode, owner, group, size, digest, parent = parts
    if kind in ("folder", "link", "other"):
        words = {"folder": "a folder", "link": "a symbolic link"}
        raise OperationFailed(
            f"{wanted.path} is {words.get(kind, 'no regular file')}; "
            "it is not replaced by a file: name the file itself"
        )
    found = HostFile(kind, mode, owner, group, int(size or 0), digest, parent == "yes")
    if not found.parent and not wanted.parents:
        folder = wanted.path.rpartition("/")[0]
        raise OperationFailed(f"{folder} is no folder of the host; write parents: true to make it")
    return found


def preview_files(label: str, wanted: Sequence[WantedFile]) -> Generator[Shell, Output, Preview]:
    """Compare, and show a unified diff of small texts; read-only."""
    parts: list[str] = []
    summaries: list[str] = []
    for file, now in zip(wanted, (yield from _look(label, wanted)), strict=True):
        differences = now.differences(file)
        if not differences:
            continue
        summaries.append(f"{file.path}: {', '.join(differences)}")
        if "absent" in differences or "content" in differences:
            parts.append((yield from _difference(label, file, now)))
    if not summaries:
        return Preview(summary="no change")
    shown = "; ".join(summaries[:5])
    more = f"; and {len(summaries) - 5} more files" if len(summaries) > 5 else ""
    return Preview(summary=shown + more, diff="".join(parts))


def _difference(label: str, file: WantedFile, now: HostFile) -> Generator[Shell, Output, str]:
    if file.secret:
        return f"{file.path}: content differs (secret, not shown)\n"
    if max(now.size, len(file.content)) > SHOWN:
        return f"{file.path}: {_sizes(now, file)}, too large to show\n"
    before = b""
    if now.kind == "file":
        output = yield Shell(f"{label} content", f"cat -- {quote(file.path)}")
        if output.exit != 0:
            raise Unknown(f"{file.path}: {output.complaint}")
        before = output.stdout
    old, new = _text(before), _text(file.content)
    if old is None or new is None:
        return f"{file.path}: binary differs: {_sizes(now, file)}\n"
    return unified(old, new, file.path if now.kind == "file" else "/dev/null", file.source)


def _sizes(now: HostFile, file: WantedFile) -> str:
    before = show_size(now.size) if now.kind == "file" else "absent"
    return f"{before} → {show_size(len(file.content))}"


def _text(content: bytes) -> str | None:
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def unified(old: str, new: str, before: str, after: str) -> str:
    """A unified diff with the headers `before: …` and `after: …`."""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True),
        new.splitlines(keepends=True),
        f"before: {before}",
        f"after:  {after}",
    )
    ended = (
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
    return "".join(ended)


def write_files(label: str, wanted: Sequence[WantedFile]) -> Steps:
    """Look again and write what differs, each file whole or not at all; the number written."""
    written = 0
    for file, now in zip(wanted, (yield from _look(label, wanted)), strict=True):
        if not now.differences(file):
            continue
        if not now.parent:
            folder = file.path.rpartition("/")[0]
            output = yield Command(argv=("mkdir", "-p", "--", folder), label=f"{label} parents")
            succeeded(output, f"making {folder}")
        if file.backup and now.kind == "file":
            output = yield Command(script=_backup(file.path), label=f"{label} backup")
            succeeded(output, f"backing up {file.path}")
        output = yield Put(
            file.path, file.content, file.mode, file.owner, file.group, secret=file.secret
        )
        succeeded(output, f"writing {file.path}")
        written += 1
    return written


def _backup(path: str) -> str:
    folder, _, name = path.rpartition("/")
    partial = f"{folder}/.{name}.before.partial"
    return (
        f"cp -p -- {quote(path)} {quote(partial)} && mv -f -- {quote(partial)} "
        f"{quote(path + '.before')}\n"
    )
