"""The scripts of `delete`: where a target lies, what it holds, and its removal.

What they guard against: a target outside its root (`..`, a symbolic link on the way), the root
itself, another declared root inside the target, a root that is not mounted (its own, and each
declared one that it lies in besides), a mount below the target (bind mounts too, which
`--one-file-system` cannot see), and a parent or target that is swapped between the look and the
act. Against the last, removal enters the verified parent with `cd -P` and stays there, compares
the target's device and inode, and removes a bare name: a link put in its place afterwards is
removed as a link. GNU rm itself descends by file descriptors and never through a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from deploy.shell import MOUNTED, assign, enclosing, quote
from runbooks.engine.model.host import Context, Host, Root
from runbooks.engine.model.operation import OperationFailed
from runbooks.engine.model.values import split_root

__all__ = ["Removal"]

# `answer STATE REASON` ends a look. `needs ROOT` ends it unless ROOT is mounted. `mounts PATH`
# prints mount points at or below PATH, `mounted PATH` (of MOUNTED) succeeds when PATH lies at or
# below a mount point other than `/`.
_PRELUDE = (
    MOUNTED
    + r"""export LC_ALL=C
answer() { printf 'state\t%s\nreason\t%s\n' "$1" "$2"; exit 0; }
why() { ls -ld -- "$1" 2>&1 >/dev/null | sed -n '$s/.*: //p'; }
[ -r /proc/self/mountinfo ] || answer unknown 'the mounts cannot be read (/proc/self/mountinfo)'
mounts() {
  below=$(spelt "$1")
  while read -r _ _ _ _ point _; do
    case $point in "$below"|"$below"/*) printf '%s\n' "$point";; esac
  done < /proc/self/mountinfo
}
needs() {
  said=$(why "$1/.")
  case $said in
    '') ;;
    'No such file or directory'|'Not a directory') answer unknown "the root $1 is not there";;
    *) answer unknown "the root $1: $said";;
  esac
  inner=$(cd -P -- "$1" 2>/dev/null && pwd -P) || answer unknown "the root $1 cannot be entered"
  mounted "$inner" || answer unknown "the root $1 is not mounted"
}
"""
)

# Sets `top` (the real root) and enters the real parent; `here` is its path, `real` the target's.
_LOCATE = r"""said=$(why "$root/.")
case $said in
  '') ;;
  'No such file or directory'|'Not a directory') answer unknown "the root $root is not there";;
  *) answer unknown "the root $root: $said";;
esac
top=$(cd -P -- "$root" 2>/dev/null && pwd -P) || answer unknown "the root $root cannot be entered"
[ "$top" != / ] || answer refused "the root $root is / itself"
need_mounts
said=$(why "$parent/$base")
case $said in
  '') ;;
  'No such file or directory'|'Not a directory') answer absent '';;
  *) answer unknown "$parent/$base: $said";;
esac
cd -P -- "$parent" 2>/dev/null || answer unknown "$parent cannot be entered"
here=$(pwd -P)
real=$here/$base
case $here/ in
  "$top"/*) ;;
  *) answer refused "it resolves to $real, outside the root $top";;
esac
if [ -L "./$base" ]; then
  leads=$(readlink -f -- "./$base") || leads=
  case $leads in
    "$top"/*) ;;
    *) answer refused "it is a symbolic link that leaves the root $top, to ${leads:-nowhere}";;
  esac
fi
for other in "$@"; do
  other=$(cd -P -- "$other" 2>/dev/null && pwd -P) || continue
  case $other/ in "$real"/*) answer refused "it holds the root $other";; esac
done
point=$(mounts "$real")
[ -z "$point" ] || answer refused "a mount point lies in it: $point"
"""

_MEASURE = r"""inode=$(stat -c '%d:%i' -- "./$base") || answer unknown "$real vanished"
identity=$(stat -c '%d:%i:%Y' -- "./$base") || answer unknown "$real vanished"
size=$(du -skx -- "./$base" 2>&1) || answer unknown "its size cannot be read: $size"
files=$(find "./$base" -xdev ! -type d -print0 | tr -cd '\000' | wc -c)
printf 'state\tpresent\nreal\t%s\ninside\t%s\n' "$real" "${real#"$top"/}"
printf 'inode\t%s\nidentity\t%s\nkib\t%s\n' "$inode" "$identity" "${size%%	*}"
printf 'files\t%s\n' "$((files))"
"""

_REMOVE = r"""answer() { printf '%s\n' "${2:-it vanished}" >&2; exit 3; }
inode=$(stat -c '%d:%i' -- "./$base") || answer refused "$real vanished"
[ "$inode" = "$expected" ] || answer refused "it is not what was measured (it was replaced)"
one=
if rm --help 2>&1 | grep -q one-file-system; then one=--one-file-system; fi
rm -rf $one -- "./$base" || exit 1
if [ -e "./$base" ] || [ -L "./$base" ]; then
  printf '%s is still there\n' "$real" >&2
  exit 1
fi
"""

_ON_OWNER = r"""said=$(why "$root/.")
[ -z "$said" ] || answer unknown "the root $root: $said"
top=$(cd -P -- "$root" 2>/dev/null && pwd -P) || answer unknown "the root $root cannot be entered"
need_mounts
point=$(mounts "$top/$inside")
[ -z "$point" ] || answer refused "a mount point lies in it: $point"
answer clear ''
"""


@dataclass(frozen=True, slots=True)
class Removal:
    """One target: its root, its path below it, and the roots that it must not hold."""

    shown: str
    root: Root
    parent: str
    base: str
    others: tuple[str, ...]
    around: tuple[Root, ...] = ()

    @classmethod
    def of(cls, text: str, context: Context) -> Removal:
        """`root:path` on the context's host; OperationFailed for anything but a path inside."""
        context.host.resolve(text)  # a missing root is a RunbookError that names the known ones
        root, parts = context.host.root_of(text), split_root(text)
        if root is None or parts is None:
            raise OperationFailed(f"{text} names no declared root")
        names = [part for part in parts[1].split("/") if part not in ("", ".")]
        if not names or ".." in names:
            raise OperationFailed(f"{text} is not strictly inside its root")
        *above, base = names
        others = tuple(str(other.path) for other in context.host.roots.values())
        parent = PurePosixPath(root.path, *above)
        around = enclosing(parent / base, context.host)
        return cls(text, root, str(parent), base, others, around)

    @property
    def path(self) -> str:
        return f"{self.parent}/{self.base}"

    def _begin(self) -> str:
        return (
            assign("root", str(self.root.path))
            + assign("parent", self.parent)
            + assign("base", self.base)
            + _need_mounts(self.around or (self.root,))
            + f"set -- {' '.join(map(quote, self.others))}\n"
        )

    def measure(self) -> str:
        """A read-only look: state, real path, identity, KiB on the disk, files."""
        return self._begin() + _PRELUDE + _LOCATE + _MEASURE

    def script(self, inode: str) -> str:
        """Locate again and remove, in one shell; exit 3 is a refusal."""
        head, tail = _REMOVE.split("\n", 1)
        prelude = "\n".join(
            head if line.startswith("answer()") else line for line in _PRELUDE.split("\n")
        )
        return self._begin() + assign("expected", inode) + prelude + _LOCATE + tail

    def on_owner(self, owner: Host, inside: str) -> str:
        """Mounts below the target as the root's owner sees them."""
        root = owner.roots.get(self.root.name)
        if root is None:
            raise OperationFailed(
                f"{self.shown}: its owner {owner.name} does not declare the root {self.root.name}"
            )
        return (
            assign("root", str(root.path))
            + assign("inside", inside)
            + _need_mounts(enclosing(root.path / inside, owner))
            + _PRELUDE
            + _ON_OWNER
        )


def _need_mounts(roots: Sequence[Root]) -> str:
    """The function `need_mounts`: every declared root around the target that must be mounted."""
    needed = [f"needs {quote(str(root.path))}; " for root in roots if root.mounted]
    return f"need_mounts() {{ {''.join(needed)}:; }}\n"
