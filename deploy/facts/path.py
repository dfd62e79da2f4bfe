"""One path: what is there, or that nothing is."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping
from typing import Any, ClassVar

from deploy.operations.arguments import Mode, Plain, ProjectFile, Sha256
from deploy.operations.common import holds_secret
from deploy.operations.template import render
from deploy.shell import LOOK, begin, known, locate, mounted_root, untold
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import OperationFailed
from runbooks.engine.model.probe import Asking, Shell, Unknown
from runbooks.engine.model.values import ABSENT, Boolean, Choice, HostPath, MapOf, Size, Text

# One look that tells what is there, or why nothing can be told.
_LOOK = r"""if said=$(stat $follow -c '%f	%s	%a	%u	%g	%U	%G' -- "$path" 2>&1); then
  printf 'is\tpresent\nstat\t%s\n' "$said"
else
  judge_look
  case $seen in
    absent) printf 'is\tabsent\n'; exit 0;;
    unknown) unknown "$said";;
  esac
fi
if [ -L "$path" ]; then printf 'target\t%s\n' "$(line "$(readlink -- "$path")")"; fi
"""
_DIGEST = r"""if [ -f "$path" ] && { [ -n "$follow" ] || ! [ -L "$path" ]; }; then
  if digest=$(sha256sum < "$path" 2>&1); then printf 'sha256\t%s\n' "${digest%% *}"
  else printf 'sha256_unknown\t%s\n' "$(line "${digest##*: }")"; fi
fi
"""
# Reading a model's file takes its time.
_DIGEST_TIMEOUT = 3600
_KINDS = (
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "directory"),
    (stat.S_ISLNK, "link"),
)


class PathFact(Fact):
    """`path: {path: data:hidden-10k, is: absent}`."""

    name = "path"
    about = "What lies at a path: a file, a directory, a link, something else, or nothing."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "path": Argument(HostPath(), "The path: root:path, or an absolute one.", required=True),
        "follow": Argument(
            Boolean(), "Follow a link at the path itself, and describe its target.", default=False
        ),
        "digest": Argument(
            Boolean(), "Read the whole file for `sha256`; otherwise it is unknown.", default=False
        ),
        "source": Argument(ProjectFile(), "A file of the project, to compare for `same`."),
        "template": Argument(
            ProjectFile(),
            "A template, below deploy/templates or below the project, to compare what it gives.",
        ),
        "vars": Argument(MapOf(Plain()), "What the template is given, beside `host` and `roots`."),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "is": Field(
            Choice(("absent", "file", "directory", "link", "other")), "What lies at the path."
        ),
        "size": Field(Size(), "The bytes of a file."),
        "mode": Field(Mode(), "The permissions in octal digits."),
        "owner": Field(Text(), "The owner's name."),
        "group": Field(Text(), "The group's name."),
        "target": Field(Text(), "The text of a link."),
        "sha256": Field(Sha256(), "The file's SHA-256 digest; needs `digest: true`."),
        "same": Field(Boolean(), "Whether the file has the content of `source` or `template`."),
    }
    value = "is"

    def check_arguments(self, args: Mapping[str, Any]) -> str | None:
        """One thing to compare with; variables are a template's."""
        if args.get("source") is not None and args.get("template") is not None:
            return "path says source and template; write one of them"
        if args.get("vars") and args.get("template") is None:
            return "path says vars without a template; write template: FILE"
        return None

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """The kind, and the file's particulars. What this user may not see is unknown.

        Where nothing is, it is not the same as anything, be the wanted content known or not.
        """
        if problem := self.check_arguments(args):
            raise Unknown(problem)
        path, root = locate(args["path"], context)
        wanted = _wanted(args, context)
        whole = bool(args.get("digest")) or isinstance(wanted, str)
        script = begin(path=path, follow="-L" if args.get("follow") else "") + LOOK
        script += mounted_root(root) + _LOOK + (_DIGEST if whole else "")
        timeout = _DIGEST_TIMEOUT if whole else 60
        found = known((yield Shell(f"path {args['path']}", script, timeout=timeout)))
        if found.get("is") == "absent":
            return dict.fromkeys(self.fields, ABSENT) | {"is": "absent"}
        described = _described(found, whole)
        return described | {"same": _same(described["sha256"], wanted)}


def _wanted(args: Mapping[str, Any], context: Context) -> str | Unknown:
    """The SHA-256 of what the project wants there, read or rendered now."""
    source, template = args.get("source"), args.get("template")
    if source is not None:
        try:
            return hashlib.sha256((context.project / source).read_bytes()).hexdigest()
        except OSError as error:
            return Unknown(f"source {source}: {error.strerror}")
    if template is None:
        return Unknown("there is nothing to compare with; write `source: FILE` or `template: FILE`")
    try:
        content = render(template, args.get("vars") or {}, context)
    except OperationFailed as error:
        return Unknown(f"template {template}: {error}")
    if holds_secret(content):
        return Unknown(f"template {template} holds a secret, which is not known while planning")
    return hashlib.sha256(content.encode()).hexdigest()


def _same(sha256: Any, wanted: str | Unknown) -> Any:
    if isinstance(wanted, Unknown):
        return wanted
    return sha256 == wanted if isinstance(sha256, str) else sha256


def _described(found: Mapping[str, str], digest: bool) -> dict[str, Any]:
    parts = found.get("stat", "").split("\t")
    try:
        raw, size, mode, uid, gid, owner, group = parts
        bits, length = int(raw, 16), int(size)
    except ValueError:
        raise Unknown(f"the answer of stat cannot be read: {found.get('stat')!r}") from None
    kind = next((word for test, word in _KINDS if test(bits)), "other")
    sha256: Any = ABSENT
    if not digest:
        sha256 = Unknown("the file was not read for it; write `digest: true`")
    elif kind == "file":
        sha256 = untold(found, "sha256") or found.get("sha256") or Unknown("sha256sum said nothing")
    return {
        "is": kind,
        "size": length if kind == "file" else ABSENT,
        "mode": mode.rjust(4, "0"),
        "owner": owner if owner != "UNKNOWN" else uid,
        "group": group if group != "UNKNOWN" else gid,
        "target": found.get("target", ABSENT),
        "sha256": sha256,
    }
