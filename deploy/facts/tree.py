"""A folder with all below it: its size, what is open in it, and what is mounted in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from deploy.proc import HIDDEN
from deploy.shell import (
    LOOK,
    MOUNTS,
    begin,
    enclosing,
    known,
    locate,
    mounted_root,
    number,
    untold,
)
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context, Host, Root
from runbooks.engine.model.probe import Asking, Shell, Unknown
from runbooks.engine.model.values import ABSENT, Boolean, HostPath, Integer, Size

# Reading the metadata of a million files takes its time.
_TIMEOUT = 1800

_HERE = r"""look "$path" -L
case $seen in
  absent) printf 'is\tabsent\n'; exit 0;;
  unknown) unknown "$said";;
esac
[ -d "$path" ] || unknown 'it is no folder'
real=$(cd -P -- "$path" 2>/dev/null && pwd -P) || unknown 'it cannot be entered: permission denied'
inside=$real
if [ -n "$base" ]; then
  top=$(cd -P -- "$base" 2>/dev/null && pwd -P) || unknown "the root $base cannot be entered"
  case $real in
    "$top") inside=;;
    "$top"/*) inside=${real#"$top"/};;
    *) unknown "it leads out of its root, to $real";;
  esac
fi
printf 'is\tpresent\ninside\t%s\n' "$(line "$inside")"
if shown=$(du -skx -- "$real" 2>&1); then printf 'kib\t%s\n' "${shown%%	*}"
else printf 'size_unknown\t%s\n' "$(printf '%s\n' "$shown" | sed -n '1s/^[^:]*: //p')"; fi
# `//` stands once in every path that find prints, whatever its name: so names with newlines count once.
files=$({ { find "$real//" -xdev ! -type d -print 2>/dev/null; echo "$?" >&3; } | grep -c //; } 3>&1)
printf 'files\t%s\n' "$(line "$files")"
"""

_COUNT_MOUNTS = r"""mounts "$real"
# A mount at the root itself is the root's own.
if [ -z "$inside" ] && mounted_at "$real"; then count=$((count - 1)); fi
printf 'mounts\t%s\n' "$count"
"""
_MOUNTED_AT = r"""mounted_at() {
  at=$(spelt "$1")
  while read -r _ _ _ _ point rest; do [ "$point" = "$at" ] && return 0; done < /proc/self/mountinfo
  return 1
}
"""

_OWNER = r"""top=$(cd -P -- "$base" 2>/dev/null && pwd -P) || unknown "the root $base cannot be entered"
real=$top${inside:+/$inside}
look "$real"
[ "$seen" = present ] || unknown "$real is not seen here (${said:-absent})"
"""

# Files are told by device and inode: a process of a container has other paths for them. What
# is mapped without an open descriptor is open too (safetensors), and so is a working folder.
# The list of open files is made first, since find opens the folders it goes through.
# A process that is not visible would not be missed, so hidden ones make it unknown.
_OPEN = (
    HIDDEN
    + r"""cd /
if [ "$hidden" = yes ]; then
  printf 'open_unknown\tprocesses of other users are hidden (hidepid)\n'; exit 0
fi
opened() {
  for process in /proc/[0-9]*; do
    [ "$process" = "/proc/$$" ] && continue
    for link in fd map_files cwd root exe; do printf '%s\0' "$process/$link"; done
  done | xargs -0 sh -c 'find "$@" -type l -exec stat -L -c "open	%d:%i" {} + 2>&1' sh
}
all=$(opened | sort -u)
denied=$(printf '%s\n' "$all" | grep -v -e '^open	' -e 'No such file or directory' -e 'No such process' -e '^$' | head -n 1)
if [ -n "$denied" ]; then
  process=$(printf '%s\n' "$denied" | sed -n 's/.*\/proc\/\([0-9]*\)\/.*/\1/p')
  printf 'open_unknown\tthe open files of process %s cannot be read (%s)\n' "$process" "$(line "${denied##*: }")"
  exit 0
fi
all=$(printf '%s\n' "$all" | sed -n 's/^open	//p')
{ printf '%s\n\n' "$all"; find "$real" -exec stat -c '%d:%i' -- {} + 2>/dev/null || echo failed; } |
awk 'BEGIN { reading = 1 }
  reading && $0 == "" { reading = 0; next }
  reading { open[$0] = 1; next }
  $0 == "failed" { failed = 1 }
  ($0 in open) && !seen[$0]++ { count++ }
  END { if (failed) print "open_unknown\tit cannot be read as a whole"; else print "open\t" count + 0 }'
"""
)


class Tree(Fact):
    """`tree: {path: data:hidden-10k, size: 924 GB, within: 2%, open_files: 0}`."""

    name = "tree"
    about = (
        "A folder with all below it: size, files, open files and mounts (as its owner sees them)."
    )
    arguments: ClassVar[Mapping[str, Argument]] = {
        "path": Argument(HostPath(), "The folder: root:path, or an absolute one.", required=True),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "size": Field(Size(), "The disk space it takes, on its own filesystem."),
        "files": Field(Integer(0), "The number of entries that are no folders."),
        "open_files": Field(
            Integer(0),
            "Files and folders in it that a process of the root's owner has open or mapped.",
            volatile=True,
        ),
        "one_filesystem": Field(
            Boolean(), "Whether nothing is mounted at it or below it, here and on the owner."
        ),
        "mounts_below": Field(Integer(0), "The number of mount points at it or below it."),
    }
    value = "size"

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Measure it here; read open files and mounts on the owner, by the owner's path."""
        path, root = locate(args["path"], context)
        owner = context.owner(root) if root else context.host
        label = f"tree {args['path']}"
        script = begin(path=path, base=str(root.path) if root else "") + LOOK + mounted_root(root)
        script += MOUNTS + _MOUNTED_AT + _HERE + _COUNT_MOUNTS
        if owner.name == context.host.name:
            script += _OPEN
        found = known((yield Shell(label, script, timeout=_TIMEOUT)))
        if found.get("is") == "absent":
            return dict.fromkeys(self.fields, ABSENT)
        mounts = number(found.get("mounts"), "the number of mounts")
        seen: Mapping[str, str] = found
        below: Any = mounts
        if root is not None and owner.name != context.host.name:
            script = self._on_owner(root, owner, found.get("inside", ""))
            shell = Shell(f"{label} on {owner.name}", script, host=owner.name, timeout=_TIMEOUT)
            try:
                seen = known((yield shell))
                below = max(mounts, number(seen.get("mounts"), "the number of mounts"))
            except Unknown as reason:
                told = Unknown(f"on {owner.name}: {reason.reason}")
                seen, below = {"open_unknown": told.reason}, told
        single = below if isinstance(below, Unknown) else below == 0
        # A mount that is seen is enough to know.
        return {
            "size": untold(found, "size") or number(found.get("kib"), "the size") * 1024,
            "files": _files(found.get("files", "")),
            "open_files": untold(seen, "open") or number(seen.get("open"), "the open files"),
            "one_filesystem": single if mounts == 0 else False,
            "mounts_below": below,
        }

    def _on_owner(self, root: Root, owner: Host, inside: str) -> str:
        theirs = owner.roots.get(root.name)
        if theirs is None:
            raise Unknown(f"its owner {owner.name} does not declare the root {root.name}")
        script = begin(base=str(theirs.path), inside=inside) + LOOK
        for one in enclosing(theirs.path / inside, owner):
            script += mounted_root(one)
        return script + MOUNTS + _MOUNTED_AT + _OWNER + _COUNT_MOUNTS + _OPEN


def _files(text: str) -> Any:
    """`0 18204`: the exit status of find, and what it printed."""
    code, _, count = text.partition(" ")
    if code != "0":
        return Unknown("some folders in it cannot be read")
    return number(count, "the number of files")
