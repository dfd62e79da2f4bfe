"""What the scripts of facts share: quoting, and shell functions that look without changing.

Every script prints `key<TAB>value` lines; `unknown<TAB>REASON` says that it could not look.
"""

from __future__ import annotations

import dataclasses
import posixpath
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from runbooks.engine.model.host import Context, Host, Root
from runbooks.engine.model.probe import Output, Unknown

__all__ = [
    "LOOK",
    "MOUNTED",
    "MOUNTS",
    "PROBE",
    "PYTHON",
    "answers",
    "assign",
    "begin",
    "enclosing",
    "fields",
    "known",
    "locate",
    "mounted_root",
    "number",
    "one_line",
    "quote",
    "unit_name",
    "untold",
]

quote = shlex.quote

# In the text of a probe, so that a look at processes finds and leaves out those of probes.
PROBE = "eagle3-probe"

_BEGIN = (
    f"""export LC_ALL=C
: {PROBE}
"""
    + r"""unknown() { printf 'unknown\t%s\n' "$(line "$1")"; exit 0; }
line() { printf '%s' "$1" | tr '\n\t\r' '   '; }
"""
)

# `look PATH [-L]` sets `seen` to present, absent or unknown, and `said` to the reason. The
# error of stat(2) tells "nothing there" (ENOENT, ENOTDIR) from "may not look" (EACCES, EPERM,
# ELOOP, ENAMETOOLONG, EIO, ESTALE): `test -e` is false for all of them. GNU, busybox with glibc
# and busybox with musl spell these two alike.
LOOK = r"""look() {
  if said=$(stat $2 -- "$1" 2>&1 >/dev/null); then seen=present; said=; return 0; fi
  judge_look
}
judge_look() {
  case $said in *': '*) said=${said##*: };; *) said=;; esac
  case $said in
    'No such file or directory'|'Not a directory') seen=absent;;
    *) seen=unknown; said=${said:-stat failed};;
  esac
  return 0
}
"""

# Runs `program` with `python`. A Python that is not there has no package; one that fails says
# why. Needs LOOK: `command -v` takes a venv in a folder that may not be entered for absent.
PYTHON = r"""case $python in
  /*)
    look "$python" -L
    case $seen in
      absent) printf 'python\tabsent\nversion\t\ndigest\t\n'; exit 0;;
      unknown) unknown "$python: $said";;
    esac;;
  *) command -v -- "$python" >/dev/null 2>&1 || {
    printf 'python\tabsent\nversion\t\ndigest\t\n'; exit 0
  };;
esac
cd /
"$python" -B -c "$program" || exit 1
"""

# Mount points in mountinfo spell space, tab and backslash in octal: proc(5). An autofs entry
# says that something could be mounted, not that it is.
MOUNTED = r"""spelt() { printf '%s' "$1" | sed 's/\\/\\134/g; s/ /\\040/g; s/	/\\011/g'; }
mounted() {
  inside=$(spelt "$1")
  while read -r _ _ _ _ point rest; do
    case $rest in *' - autofs '*) continue;; esac
    [ "$point" = / ] && continue
    case $inside in "$point"|"$point"/*) return 0;; esac
  done < /proc/self/mountinfo
  return 1
}
"""

# `mounts PATH` sets `count` to the number of mount points at it or below it.
MOUNTS = (
    MOUNTED
    + r"""mounts() {
  below=$(spelt "$1"); count=0
  while read -r _ _ _ _ point rest; do
    case $point in "$below"|"$below"/*) count=$((count + 1));; esac
  done < /proc/self/mountinfo
}
[ -r /proc/self/mountinfo ] || unknown 'the mounts cannot be read (/proc/self/mountinfo)'
"""
)

_MOUNTED_ROOT = r"""look "$root/."
case $seen in
  absent) unknown "the root $name is not mounted: $root is not there";;
  unknown) unknown "the root $name ($root): $said";;
esac
top=$(cd -P -- "$root" 2>/dev/null && pwd -P) || unknown "the root $name ($root) cannot be entered"
mounted "$top" || unknown "the root $name ($root) is not mounted"
"""


@dataclass(frozen=True, slots=True)
class _Located(Root):
    """A root as `locate` gives it: with every declared root that the path lies in."""

    around: tuple[Root, ...] = ()


def begin(**variables: str) -> str:
    """The first lines of a script: the locale, `unknown REASON`, and variables of exact text."""
    return _BEGIN + "".join(assign(name, value) for name, value in variables.items())


def assign(name: str, value: str) -> str:
    """A shell assignment of exactly this text."""
    return f"{name}={quote(value)}\n"


def fields(text: str) -> dict[str, str]:
    """`key<TAB>value` lines as a mapping; the last of a key wins."""
    pairs = (line.partition("\t") for line in text.split("\n"))
    return {key: value for key, tab, value in pairs if tab}


def answers(text: str, key: str) -> list[str]:
    """All values of one key, in order."""
    pairs = (line.partition("\t") for line in text.split("\n"))
    return [value for found, tab, value in pairs if tab and found == key]


def known(output: Output) -> dict[str, str]:
    """The fields of a script that could look; Unknown with its reason otherwise."""
    found = fields(output.expect())
    if "unknown" in found:
        raise Unknown(found["unknown"])
    return found


def number(text: str | None, what: str) -> int:
    """A whole number, strictly; Unknown otherwise."""
    if text is None or not text.isascii() or not text.isdigit():
        raise Unknown(f"{what} cannot be read: {text!r}")
    return int(text)


def untold(found: Mapping[str, str], key: str) -> Unknown | None:
    """The reason why a part could not be looked at (`KEY_unknown`), as a field's value."""
    reason = found.get(f"{key}_unknown")
    return None if reason is None else Unknown(reason or f"{key} cannot be read")


def locate(text: str, context: Context) -> tuple[str, Root | None]:
    """The host's path, and the root that it names or lies in (for `mounted_root`)."""
    path = str(PurePosixPath(context.host.resolve(text)))
    around = enclosing(path, context.host)
    root = context.host.root_of(text) or (around[-1] if around else None)
    if root is None:
        return path, None
    own = {field.name: getattr(root, field.name) for field in dataclasses.fields(Root)}
    return path, _Located(**own, around=around)


def enclosing(path: str | PurePosixPath, host: Host) -> tuple[Root, ...]:
    """Every root of the host that is the path or lies above it, the outermost first."""
    plain = PurePosixPath(posixpath.normpath(path))
    above = {PurePosixPath(path), *PurePosixPath(path).parents, plain, *plain.parents}
    found = [root for root in host.roots.values() if root.path in above]
    return tuple(sorted(found, key=lambda root: len(root.path.parts)))


def mounted_root(root: Root | None) -> str:
    """Ends a script with unknown unless what must be mounted is. Needs LOOK.

    Without its mount a root is an empty folder, in which everything seems to be absent. Of a
    root of `locate` every declared root counts that the path lies in, whichever it names.
    """
    around = root.around if isinstance(root, _Located) else ()
    needed = [one for one in around or (root,) if one is not None and one.mounted]
    if not needed:
        return ""
    return MOUNTS + "".join(
        assign("root", str(one.path)) + assign("name", one.name) + _MOUNTED_ROOT for one in needed
    )


def one_line(label: str) -> str:
    """A label of free text: it becomes a comment of the script, which a new line would end."""
    return " ".join(label.split())


def unit_name(name: str) -> str:
    """`sglang` is `sglang.service`, as systemctl(1) has it."""
    suffixes = [
        "service",
        "socket",
        "timer",
        "target",
        "mount",
        "automount",
        "path",
        "slice",
        "scope",
        "device",
        "swap",
    ]
    return name if name.rpartition(".")[2] in suffixes and "." in name else f"{name}.service"
