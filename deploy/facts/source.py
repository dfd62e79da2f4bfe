"""Source trees: git checkouts, and patches applied to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from deploy.facts.types import Commit
from deploy.operations.arguments import ProjectFile
from deploy.operations.common import project_file
from deploy.shell import LOOK, begin, known, locate, mounted_root, untold
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import OperationFailed
from runbooks.engine.model.probe import Asking, Shell, Unknown
from runbooks.engine.model.values import ABSENT, Boolean, Choice, HostPath, Integer, Text

# Read-only: no refresh of the index, no hook of a file system monitor, no fetch of a partial
# clone; and no repository above the folder is taken for it.
_GIT = r"""unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_COMMON_DIR GIT_OBJECT_DIRECTORY GIT_CONFIG
look "$repo/."
case $seen in
  absent) printf 'is\tabsent\n'; exit 0;;
  unknown) unknown "$said";;
esac
cd -P -- "$repo" 2>/dev/null || unknown 'it cannot be entered: permission denied'
if ! command -v git >/dev/null 2>&1; then
  look .git
  [ "$seen" = absent ] || unknown 'git is not on the host'
  printf 'is\tabsent\n'; exit 0
fi
above=$(pwd -P); above=${above%/*}
export GIT_CEILING_DIRECTORIES="${above:-/}" GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0 GIT_NO_LAZY_FETCH=1
ask() { git --no-optional-locks -c core.fsmonitor=false "$@"; }
said=$(ask rev-parse --git-dir 2>&1) || case $said in
  *'not a git repository'*) printf 'is\tabsent\n'; exit 0;;
  *) unknown "$(printf '%s\n' "$said" | sed -n '1s/^fatal: //p')";;
esac
if commit=$(ask rev-parse -q --verify 'HEAD^{commit}' 2>&1); then printf 'commit\t%s\n' "$commit"
elif [ -n "$commit" ]; then printf 'commit_unknown\t%s\n' "$(line "$commit")"; fi
branch=$(ask symbolic-ref -q --short HEAD 2>/dev/null) && printf 'branch\t%s\n' "$branch"
remote=$(ask config --get remote.origin.url 2>/dev/null) && printf 'remote\t%s\n' "$(line "$remote")"
if [ "$(ask rev-parse --is-bare-repository 2>/dev/null)" = true ]; then exit 0; fi
if shown=$(ask status --porcelain 2>&1); then
  if [ -z "$shown" ]; then printf 'clean\tyes\n'; else printf 'clean\tno\n'; fi
else printf 'clean_unknown\t%s\n' "$(line "$shown")"; fi
"""


class Git(Fact):
    """`git: {repo: "sglang:", commit: "3f2a9c1", clean: true}`."""

    name = "git"
    about = "A git checkout: its commit and branch, and whether files differ from them."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "repo": Argument(HostPath(), "The checkout's top folder.", required=True),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "commit": Field(Commit(), "The commit checked out; its first seven or more digits do."),
        "branch": Field(Text(), "The branch; absent when HEAD is detached."),
        "clean": Field(Boolean(), "Whether no file is changed or untracked."),
        "remote": Field(Text(), "The address of origin, without passwords."),
    }
    value = "commit"

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Ask git. A repository of another owner is unknown, since git will not read it."""
        path, root = locate(args["repo"], context)
        script = begin(repo=path) + LOOK + mounted_root(root) + _GIT
        found = known((yield Shell(f"git {args['repo']}", script)))
        if found.get("is") == "absent":
            return dict.fromkeys(self.fields, ABSENT)
        commit = found.get("commit")
        if commit is not None and not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
            raise Unknown(f"git gave no commit: {commit!r}")
        clean = {"yes": True, "no": False}.get(found.get("clean", ""), ABSENT)
        remote = found.get("remote")
        return {
            "commit": untold(found, "commit") or commit or ABSENT,
            "branch": found.get("branch", ABSENT),
            "clean": untold(found, "clean") or clean,
            "remote": re.sub(r"(?<=://)[^/@]*@", "", remote) if remote else ABSENT,
        }


# The same test as the operation's (deploy/operations/patch.py): applied is what could be taken
# back. GIT_DIR names no repository, whose rules and ownership would count otherwise.
_PATCH = r"""export GIT_DIR=/nonexistent
look "$repo/."
case $seen in
  absent) printf 'is\tmissing\n'; exit 0;;
  unknown) unknown "$said";;
esac
cd -P -- "$repo" 2>/dev/null || unknown 'it cannot be entered: permission denied'
try() {
  if command -v git >/dev/null 2>&1; then printf '%s' "$text" | git apply --check $1 -p"$strip" - 2>&1
  elif command -v patch >/dev/null 2>&1; then
    printf '%s' "$text" | patch --dry-run $1 -p"$strip" $exactly -f 2>&1
  else unknown 'the host has neither git nor patch'; fi
}
exactly=-F0
if ! command -v git >/dev/null 2>&1; then
  if ! command -v patch >/dev/null 2>&1; then unknown 'the host has neither git nor patch'; fi
  patch --version 2>&1 | grep -q GNU || exactly=
fi
forward=no; backward=no
said=$(try '') && forward=yes
back=$(try -R) && backward=yes
case $said$back in
  *'unable to open or read'*|*"an't open file"*) unknown 'a file of the patch cannot be read: permission denied';;
esac
printf 'is\tthere\nforward\t%s\nbackward\t%s\n' "$forward" "$backward"
"""


class PatchFact(Fact):
    """`patch: {repo: "sglang:", file: patches/extract-hidden.patch, is: applied}`."""

    name = "patch"
    about = "Whether a patch of the project is applied to a folder of the host."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "repo": Argument(
            HostPath(), "The folder that the patch's paths start from.", required=True
        ),
        "file": Argument(ProjectFile(), "The patch, below the project.", required=True),
        "strip": Argument(
            Integer(0), "Leading folders to strip from the patch's paths (-p).", default=1
        ),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "is": Field(
            Choice(("applied", "absent", "conflict")),
            "`absent` would apply, `conflict` would apply neither forwards nor backwards.",
        ),
    }
    value = "is"
    defaults: ClassVar[Mapping[str, Any]] = {"is": "applied"}

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Try both directions with `git apply --check` or `patch --dry-run`."""
        path, root = locate(args["repo"], context)
        strip = args.get("strip")
        script = begin(
            repo=path,
            text=self._text(args["file"], context),
            strip=str(1 if strip is None else strip),
        )
        script += LOOK + mounted_root(root) + _PATCH
        found = known((yield Shell(f"patch {args['file']}", script)))
        match found.get("is"), found.get("forward"), found.get("backward"):
            case "missing", _, _:
                return {"is": ABSENT}
            case _, "no", "yes":
                return {"is": "applied"}
            case _, "yes", "no":
                return {"is": "absent"}
            case _, "no", "no":
                return {"is": "conflict"}
            case _, "yes", "yes":
                raise Unknown("it applies forwards and backwards; its context tells nothing")
        raise Unknown("the answer cannot be read")

    def _text(self, name: str, context: Context) -> str:
        try:
            return project_file(context, name).read_bytes().decode()
        except (OperationFailed, OSError, UnicodeDecodeError) as error:
            raise RunbookError.usage(f"the patch {name} cannot be read: {error}") from None
