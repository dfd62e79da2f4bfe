"""Looks at directories of a host: one script of several parts, and what each part saw.

A part is a directory. Its body prints lines `key<TAB>value…` and small files whole, between
`file<TAB>NAME` and `end<TAB>NAME`. Plain POSIX shell with `stat`, `find`, `grep`, `head` and
`sha256sum` of GNU or busybox.
"""

from __future__ import annotations

import calendar
import re
import stat
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from deploy.shell import LOOK, assign, begin, locate, mounted_root
from eagle3.json_lines import parse_json
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Output, Shell, Unknown

__all__ = ["GIVE", "LIST", "Asks", "Entry", "Part", "Seen", "entries", "entry_of", "look"]

T = TypeVar("T")
# What asks a host and then returns a T.
Asks = Generator[Shell, Output, T]

# `enter PATH` ends the part where there is no such directory, or where it may not be entered.
_ENTER = r"""enter() {
  look "$1/."
  case $seen in
    absent) printf 'is\tabsent\n'; exit 0;;
    unknown) unknown "$1: $said";;
  esac
  cd -P -- "$1" 2>/dev/null || unknown "$1: it cannot be entered"
  ls . >/dev/null 2>&1 || unknown "$1: it cannot be listed (permission denied)"
  printf 'is\tpresent\n'
}
give() {
  look "$1" -L
  case $seen in
    absent) return 0;;
    unknown) unknown "$path/$1: $said";;
  esac
  [ -f "$1" ] || unknown "$path/$1: it is no file"
  [ -r "$1" ] || unknown "$path/$1: Permission denied"
  printf 'file\t%s\n' "$1"
  cat -- "$1" 2>/dev/null || { printf '\n'; unknown "$path/$1: it cannot be read"; }
  printf '\nend\t%s\n' "$1"
}
list() {
  find . ! -name . -prune -exec stat -L -c 'stat	%f	%s	%i	%y	%n' -- {} + 2>&1
  printf 'listed\t%s\n' $?
}
"""

# Bodies of parts. `give NAME` prints a file, or nothing when it is not there.
GIVE = "give {}\n"
LIST = "list\n"

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{9}))?(?: [+-]0000)?", re.ASCII
)
# A link to nothing, or a file that went away meanwhile: missing, if anybody wants it.
_VANISHED = re.compile(r"(?:find|stat): .*\./.*: No such file or directory")


@dataclass(frozen=True, slots=True)
class Part:
    """A directory to look at, as a runbook names it, and what to do once it is entered."""

    key: str
    path: str
    body: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as stat(2) has it, links followed; `mtime_ns` is None where the host hides it."""

    regular: bool
    size: int
    inode: int
    mtime_ns: int | None


@dataclass
class Seen:
    """What a part saw. `path` is the host's path; `there` says that the directory is."""

    path: str
    there: bool = False
    lines: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    unknown: str | None = None

    def json(self, name: str) -> Any:
        """The JSON value of a small file. Raises Unknown when it is damaged, KeyError if absent."""
        try:
            return parse_json(self.files[name].decode())
        except ValueError as error:
            raise Unknown(f"{self.path}/{name}: no JSON: {error}") from None

    def values(self, key: str) -> list[str]:
        """The rest of every line that begins with `key`."""
        return [line[len(key) + 1 :] for line in self.lines if line.startswith(key + "\t")]


def look(label: str, parts: Sequence[Part], context: Context, timeout: int = 300) -> Asks[Any]:
    """Ask for all parts in one script: `Seen` by key. Raises Unknown where one may not look."""
    script = begin(TZ="UTC0") + "export TZ\n" + LOOK + _ENTER
    paths = {}
    for part in parts:
        path, root = locate(part.path, context)
        paths[part.key] = path
        inside = assign("path", path) + mounted_root(root) + 'enter "$path"\n' + part.body
        script += f"printf 'part\\t{part.key}\\n'\n(\n{inside})\n"
        script += f"printf 'done\\t{part.key}\\t%s\\n' $?\n"
    output = yield Shell(label, script, timeout=timeout)
    if output.exit != 0:
        raise Unknown("timed out" if output.exit == 124 else output.complaint)
    found = _parse(output.stdout, paths)
    for seen in found.values():
        if seen.unknown is not None:
            raise Unknown(seen.unknown)
    return found


def _parse(data: bytes, paths: dict[str, str]) -> dict[str, Seen]:
    found: dict[str, Seen] = {}
    done: set[str] = set()
    current = Seen("")
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        end = len(data) if end < 0 else end
        line = data[position:end].decode(errors="surrogateescape")
        key, _, rest = line.partition("\t")
        position = end + 1
        if key == "part":
            current = found[rest] = Seen(paths[rest])
        elif key == "done":
            name, _, status = rest.partition("\t")
            if status != "0" and current.unknown is None:
                current.unknown = f"{current.path}: the look at it ended early (exit {status})"
            done.add(name)
        elif key == "unknown":
            current.unknown = rest
        elif key == "is":
            current.there = rest == "present"
        elif key == "file":
            mark = b"\nend\t" + rest.encode(errors="surrogateescape") + b"\n"
            end = data.find(mark, position)
            if end >= 0:
                current.files[rest] = data[position:end]
                position = end + len(mark)
            # Otherwise its text goes by as lines, and the last of them is the reason.
        else:
            current.lines.append(line)
    if missing := [key for key in paths if key not in done]:
        raise Unknown(f"{paths[missing[0]]}: the look at it ended early")
    return found


def entries(seen: Seen) -> dict[str, Entry]:
    """What `LIST` saw, by name. Raises Unknown where a file may not be looked at."""
    found = {}
    excused = False
    for line in seen.lines:
        match line.split("\t", 5):
            case ["stat", mode, size, inode, modified, name] if name.startswith("./"):
                try:
                    found[name[2:]] = entry_of(mode, size, inode, modified)
                except ValueError:
                    raise Unknown(f"{seen.path}: stat said {line!r}") from None
            case ["listed", status] if status != "0" and not excused:
                raise Unknown(f"{seen.path}: its listing failed (exit {status})")
            case [said] if _VANISHED.fullmatch(said):
                excused = True
            case [said] if said:
                raise Unknown(f"{seen.path}: {said}")
    return found


def entry_of(mode: str, size: str, inode: str, modified: str) -> Entry:
    """What `stat -L -c '%f %s %i %y'` says of a file, with TZ=UTC0. Raises ValueError."""
    regular = stat.S_ISREG(int(mode, 16))
    return Entry(regular, int(size), int(inode), _nanoseconds(modified))


def _nanoseconds(text: str) -> int | None:
    match = _TIME.fullmatch(text)
    if match is None or match[7] is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    seconds = calendar.timegm((year, month, day, hour, minute, second))
    return seconds * 10**9 + int(match[7])
