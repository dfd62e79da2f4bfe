"""Apply a patch to a source tree, whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from deploy.operations.arguments import ProjectFile
from deploy.operations.common import counted, last_lines, option, project_file, succeeded, text_of
from deploy.shell import assign, fields, quote
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import (
    Acting,
    Command,
    Operation,
    OperationFailed,
    Preview,
    Previewing,
)
from runbooks.engine.model.probe import Shell, Unknown
from runbooks.engine.model.values import Boolean, HostPath, Integer

# GIT_DIR names no repository, so that none is looked for: `git apply` below some repository
# obeys its configuration and ownership rules, and skips files outside the current folder
# without a word (git-apply(1)). `check` tells which directions would apply.
_PRELUDE = r"""export LC_ALL=C GIT_DIR=/nonexistent
answer() { printf 'state\t%s\n' "$1"; exit 0; }
give() { printf '%s' "$text"; }
said=$(ls -d -- "$repo/." 2>&1 >/dev/null)
case $said in
  '') ;;
  *'No such file or directory'*|*'Not a directory'*) answer missing;;
  *) printf '%s\n' "$said" >&2; exit 1;;
esac
cd -P -- "$repo" || exit 1
"""
_LOOK = r"""command -v git >/dev/null 2>&1 || answer 'no git'
forward=no; backward=no
give | git apply --check -p"$strip" - 2>/dev/null && forward=yes
give | git apply --check -R -p"$strip" - 2>/dev/null && backward=yes
printf 'forward\t%s\nbackward\t%s\n' "$forward" "$backward"
give | git apply --check $reverse -p"$strip" - 2>&1 | sed 's/^/said	/'
answer looked
"""

# The result is made in a scratch folder beside the files, then renamed over them one by one;
# nothing of the tree changes before all of it is there, and a failed rename is taken back.
# Exit 4 is a conflict. patch(1) is the second choice: with -F0, since fuzz guesses.
_ACT = r"""top=$PWD
scratch=$(mktemp -d "$top/.eagle3-patch.XXXXXX") || exit 1
moved=0
undo() {
  code=$?
  trap - EXIT
  if [ "$code" != 0 ]; then
    cd "$top"
    for file in "$@"; do
      [ "$moved" -gt 0 ] || break
      moved=$((moved - 1))
      if [ -e "$scratch/old/$file" ]; then mv -f -- "$scratch/old/$file" "$file"
      else rm -f -- "$file"; fi
    done
  fi
  rm -rf -- "$scratch"
  exit "$code"
}
trap 'undo "$@"' EXIT
trap 'exit 130' HUP INT TERM
mkdir "$scratch/new" "$scratch/old" || exit 1
for file in "$@"; do
  if [ -L "$file" ]; then echo "$file is a symbolic link" >&2; exit 4; fi
  case $file in */*) folder=${file%/*};; *) folder=.;; esac
  mkdir -p -- "$scratch/new/$folder" "$scratch/old/$folder" || exit 1
  [ -d "$folder" ] || continue
  real=$(cd -P -- "$folder" && pwd -P) || exit 1
  case $real/ in "$top"/*) ;; *) echo "$folder leads out of $top" >&2; exit 4;; esac
  [ -e "$file" ] || continue
  cp -p -- "$file" "$scratch/new/$file" && cp -p -- "$file" "$scratch/old/$file" || exit 1
done
cd "$scratch/new" || exit 1
if command -v git >/dev/null 2>&1; then
  give | git apply $reverse -p"$strip" - || exit 4
elif command -v patch >/dev/null 2>&1; then
  opposite=-R; [ -z "$reverse" ] || opposite=
  if give | patch $opposite -p"$strip" -F0 -f -s --dry-run >/dev/null 2>&1; then answer already; fi
  give | patch $reverse -p"$strip" -F0 -f -s --no-backup-if-mismatch >&2 || exit 4
else
  echo 'neither git nor patch is on the host' >&2; exit 1
fi
cd "$top" || exit 1
for file in "$@"; do
  if ! [ -e "$scratch/new/$file" ]; then
    moved=$((moved + 1)); rm -f -- "$file" || exit 1
    continue
  fi
  case $file in */*) mkdir -p -- "${file%/*}" || exit 1;; esac
  if [ -e "$file" ]; then
    cp -p -- "$file" "$scratch/next" && cat "$scratch/new/$file" > "$scratch/next" || exit 1
  else
    mv -- "$scratch/new/$file" "$scratch/next" || exit 1
  fi
  sync "$scratch/next" 2>/dev/null
  moved=$((moved + 1)); mv -f -- "$scratch/next" "$file" || exit 1
done
printf 'state\tdone\n'
"""

_HUNK = re.compile(r"@@ -[0-9]+(?:,([0-9]+))? \+[0-9]+(?:,([0-9]+))? @@")
_BEYOND = ("rename from ", "rename to ", "copy from ", "old mode ", "GIT binary patch")


class Patch(Operation):
    """`patch: {repo: "sglang:", file: patches/extract-hidden.patch}`.

    pyinfra has no unified-diff operation. A patch counts as
    applied when its reverse would apply without fuzz.
    """

    name = "patch"
    about = "Apply (or take back) a unified diff of the project to a folder of the host."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "repo": Argument(
            HostPath(), "The folder that the patch's paths start from.", required=True
        ),
        "file": Argument(ProjectFile(), "The patch, below the project.", required=True),
        "reverse": Argument(Boolean(), "Take the patch back.", default=False),
        "strip": Argument(
            Integer(0), "Leading folders to strip from the patch's paths (-p).", default=1
        ),
    }

    def preview(self, args: Mapping[str, Any], context: Context) -> Previewing:
        """Whether it would apply, and its text."""
        text = self._text(args, context)
        files = patched_files(text, option(self, args, "strip"), args["file"])
        state = yield Shell(self._label(args), self._begin(args, context, text) + _LOOK)
        already, problem = self._judge(args, text_of(state, self._label(args)))
        if already:
            return Preview(summary=already)
        verb = "take back" if option(self, args, "reverse") else "apply"
        note = f" ({problem})" if problem else ""
        return Preview(
            summary=f"{verb} {args['file']}: {counted(len(files), 'file')}{note}", diff=text
        )

    def act(self, args: Mapping[str, Any], context: Context) -> Acting:
        """Look again; make the patched files aside and rename them into place."""
        text = self._text(args, context)
        files = patched_files(text, option(self, args, "strip"), args["file"])
        begin = self._begin(args, context, text)
        state = yield Shell(self._label(args), begin + _LOOK)
        already, _ = self._judge(args, text_of(state, self._label(args)))
        if already:
            return "nothing to do"
        script = begin + f"set -- {' '.join(map(quote, files))}\n" + _ACT
        output = yield Command(script=script, label=self._label(args))
        if output.exit == 4:
            said = last_lines(output.stderr)
            raise OperationFailed(f"{args['file']} does not apply, nothing was changed\n{said}")
        succeeded(output, f"{args['file']} (nothing was changed)")
        if fields(output.text).get("state") == "already":
            return "nothing to do"
        return f"{counted(len(files), 'file')} {'restored' if option(self, args, 'reverse') else 'patched'}"

    def _label(self, args: Mapping[str, Any]) -> str:
        return f"patch {args['file']}"

    def _text(self, args: Mapping[str, Any], context: Context) -> str:
        path = project_file(context, args["file"])
        try:
            text = path.read_bytes().decode()
        except (UnicodeDecodeError, IsADirectoryError):
            raise OperationFailed(f"{path} is no text file") from None
        if "\0" in text:
            raise OperationFailed(f"{path} is no text file")
        return text

    def _begin(self, args: Mapping[str, Any], context: Context, text: str) -> str:
        return (
            assign("repo", context.host.resolve(args["repo"]))
            + assign("strip", str(option(self, args, "strip")))
            + assign("reverse", "-R" if option(self, args, "reverse") else "")
            + assign("text", text)
            + _PRELUDE
        )

    def _judge(self, args: Mapping[str, Any], answer: str) -> tuple[str, str]:
        """(why nothing is to do, what is not known yet); OperationFailed for a conflict."""
        found = fields(answer)
        state = found.get("state")
        if state == "missing":
            raise OperationFailed(f"{args['repo']} is no folder of the host")
        if state == "no git":
            return "", "git is not on the host: patch(1) tries it when it acts"
        if state != "looked":
            raise Unknown(f"{self._label(args)}: unreadable answer {answer!r}")
        if option(self, args, "reverse"):
            wanted, already = found["backward"], found["forward"] == "yes"
        else:
            wanted, already = found["forward"], found["backward"] == "yes"
        reverse = option(self, args, "reverse")
        if already and not (reverse and wanted == "yes"):
            return f"{args['file']} is {'not applied' if reverse else 'applied already'}", ""
        if wanted == "yes":
            return "", ""
        said = [
            line.partition("\t")[2] for line in answer.splitlines() if line.startswith("said\t")
        ]
        raise OperationFailed("\n".join([f"{args['file']} does not apply:", *said]))


def patched_files(text: str, strip: int, shown: str) -> tuple[str, ...]:
    """The files that a unified diff changes, stripped; OperationFailed for what it cannot be."""
    found: dict[str, None] = {}
    old = new = 0
    before = ""
    for number, line in enumerate(text.split("\n"), 1):
        if old > 0 or new > 0:
            old -= line[:1] in (" ", "-", "")
            new -= line[:1] in (" ", "+", "")
        elif line.startswith(_BEYOND):
            raise OperationFailed(f"{shown}:{number}: only changes of text files are applied")
        elif match := _HUNK.match(line):
            old, new = (int(count) if count is not None else 1 for count in match.groups())
        elif line.startswith("--- "):
            before = line[4:]
        elif line.startswith("+++ "):
            names = [name.split("\t")[0].rstrip("\r") for name in (line[4:], before)]
            name = next((name for name in names if name != "/dev/null"), "")
            parts = name.split("/")[strip:]
            if not parts or ".." in parts or name.startswith(("/", '"')):
                raise OperationFailed(f"{shown}:{number}: {name!r} is no path inside the folder")
            found["/".join(parts)] = None
    if not found:
        raise OperationFailed(f"{shown} holds no change: it is no unified diff")
    return tuple(found)
