"""Free space, and the rows that files hold."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar

from deploy.facts.types import RowNumber, Rows
from deploy.shell import LOOK, answers, begin, known, locate, mounted_root, number, untold
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Asking, Shell, Unknown
from runbooks.engine.model.values import ABSENT, HostPath, Integer, RootName, Size, Text

# The nearest folder that is there: a root that a step will make lies on its filesystem.
_DF = r"""while :; do
  look "$path"
  case $seen in
    present) break;;
    unknown) unknown "$path: $said";;
  esac
  path=${path%/*}; path=${path:-/}
done
shown=$(df -Pk -- "$path" 2>&1) || unknown "$(printf '%s\n' "$shown" | sed -n '$s/.*: //p')"
printf 'df\t%s\n' "$(printf '%s\n' "$shown" | tail -n 1)"
if shown=$(df -Pi -- "$path" 2>&1); then printf 'inodes\t%s\n' "$(printf '%s\n' "$shown" | tail -n 1)"
else printf 'inodes_unknown\t%s\n' "$(line "$shown")"; fi
"""
# From the right: a device's name may hold spaces.
_DF_LINE = re.compile(r"(.+?)\s+([0-9]+|-)\s+(-?[0-9]+|-)\s+(-?[0-9]+|-)\s+([0-9]+%|-)\s+(/.*)")

_TIMEOUT = 1800
_BINARY = (".parquet", ".arrow", ".safetensors", ".npy", ".npz", ".gz", ".zst", ".bin", ".pt")

# Blank lines are no rows. awk skips empty files, so find names them. A path always begins with
# `/`, so that awk takes none for an assignment. `.done` files record their rows in a line.
_ROWS = r"""look "$path" -L
case $seen in
  absent) printf 'is\tabsent\n'; exit 0;;
  unknown) unknown "$said";;
esac
if [ -d "$path" ]; then
  said=$(find -H "$path" 2>&1 >/dev/null) || unknown "$(printf '%s\n' "$said" | sed -n '1s/^[^:]*: //p')"
  printf 'jsonl\t%s\ndone\t%s\n' "$(find -H "$path" -name '*.jsonl' ! -type d | grep -c /)" \
    "$(find -H "$path" -name '*.done' ! -type d | grep -c /)"
  find -H "$path" \( -name '*.jsonl' -o -name '*.done' \) ! -type d -size 0 | sed 's/^/empty	/'
  denied=$(find -H "$path" \( -name '*.jsonl' -o -name '*.done' \) ! -type d -exec sh -c \
    'for one; do [ -r "$one" ] || printf "%s\n" "$one"; done' sh {} + | head -n 1)
  [ -z "$denied" ] || unknown "${denied##*/} cannot be read"
  find -H "$path" -name '*.jsonl' ! -type d -exec awk 'NF { n++ } END { print "rows\t" n + 0 }' {} + ||
    unknown 'a *.jsonl file cannot be read'
  find -H "$path" -name '*.done' ! -type d -exec awk \
    'FNR == 1 { print "recorded\t" FILENAME "\t" substr($0, 1, 200) }' {} + ||
    unknown 'a *.done file cannot be read'
else
  [ -f "$path" ] || unknown 'it is neither a file nor a folder'
  printf 'jsonl\t1\ndone\t0\n'
  [ -s "$path" ] || printf 'empty\t%s\n' "$path"
  shown=$(awk 'NF { n++ } END { print "rows\t" n + 0 }' "$path" 2>&1) || unknown "$(line "$shown")"
  printf '%s\n' "$shown"
fi
"""


class DiskFree(Fact):
    """`disk_free: {root: data, ge: 3.5 TiB}`."""

    name = "disk_free"
    about = "The space that is free for this user on the filesystem of a root or a path."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "root": Argument(RootName(), "The root; write it or `path`."),
        "path": Argument(HostPath(), "The path; of one that is not there yet, its nearest parent."),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "free": Field(Size(estimate=True), "The free bytes.", volatile=True),
        "inodes_free": Field(
            Integer(0), "The free inodes; absent where there is no limit.", volatile=True
        ),
        "filesystem": Field(Text(), "The device or dataset, as df(1) names it."),
        "mount": Field(Text(), "Where it is mounted."),
    }
    value = "free"

    def check_arguments(self, args: Mapping[str, Any]) -> str | None:
        """A root or a path."""
        if args.get("path") is None and args.get("root") is None:
            return "disk_free says neither root nor path; write one of them"
        return None

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Ask df(1). Of two places the path counts."""
        if problem := self.check_arguments(args):
            raise Unknown(problem)
        place = args.get("path") or f"{args['root']}:"
        path, root = locate(place, context)
        label = f"disk_free path={place}" if args.get("path") else f"disk_free root={args['root']}"
        script = begin(path=path) + LOOK + mounted_root(root) + _DF
        found = known((yield Shell(label, script)))
        match = _DF_LINE.fullmatch(found.get("df", ""))
        if match is None or match[4] == "-":
            raise Unknown(f"the answer of df cannot be read: {found.get('df')!r}")
        return {
            "free": max(0, int(match[4])) * 1024,
            "inodes_free": untold(found, "inodes") or _inodes(found.get("inodes", "")),
            "filesystem": match[1],
            "mount": match[6],
        }


class RowCount(Fact):
    """`row_count: {path: data:merged, eq: 87_800_000}`."""

    name = "row_count"
    about = (
        "The rows of a file (lines that are not blank), or of all *.jsonl files below a folder, "
        "or the sum of what its *.done files record."
    )
    arguments: ClassVar[Mapping[str, Argument]] = {
        "path": Argument(HostPath(), "The file or folder.", required=True),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "rows": Field(RowNumber(0), "The number of rows."),
        "files": Field(Integer(0), "The number of files counted."),
        "empty": Field(Integer(0), "The number of counted files without any row."),
    }
    value = "rows"

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Count. A file that cannot be read makes it unknown; an empty one is named."""
        path, root = locate(args["path"], context)
        suffix = PurePosixPath(path).suffix
        script = begin(path=path) + LOOK + mounted_root(root) + _ROWS
        output = yield Shell(f"row_count {args['path']}", script, timeout=_TIMEOUT)
        found, text = known(output), output.text
        if found.get("is") == "absent":
            return dict.fromkeys(self.fields, ABSENT)
        if suffix in _BINARY:
            raise Unknown(
                f"rows of a {suffix} file are not lines; ask `dataset` or `hidden_states`"
            )
        lines = number(found.get("jsonl"), "the number of *.jsonl files")
        done = number(found.get("done"), "the number of *.done files")
        if lines and done:
            raise Unknown("it holds *.jsonl and *.done files; name the folder of one kind")
        rows = sum(number(part, "the number of rows") for part in answers(text, "rows"))
        rows += sum(_recorded(part) for part in answers(text, "recorded"))
        empty = [PurePosixPath(name).name for name in answers(text, "empty")]
        return {
            "rows": Rows(rows, _named(empty)),
            "files": lines + done,
            "empty": len(empty),
        }


def _inodes(line: str) -> Any:
    """Free inodes; zfs and btrfs make them as needed and print `-` or a total of 0."""
    match = _DF_LINE.fullmatch(line)
    if match is None:
        return Unknown(f"the answer of df -i cannot be read: {line!r}")
    return ABSENT if match[4] == "-" or match[2] in ("0", "-") else max(0, int(match[4]))


def _recorded(text: str) -> int:
    """The rows that a `.done` file records: a whole number, or JSON with `rows`."""
    name, _, content = text.partition("\t")
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    if isinstance(value, dict):
        value = value.get("rows")
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        shard = PurePosixPath(name).name
        raise Unknown(f"{shard} records no number of rows: {content[:40]!r}")
    return value


def _named(names: list[str]) -> str:
    if not names:
        return ""
    if len(names) == 1:
        return f"{names[0]} is empty"
    return f"{', '.join(sorted(names)[:3])}{' …' if len(names) > 3 else ''} are empty"
