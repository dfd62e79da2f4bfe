"""`dataset_inputs`: the files that a merge config names, before the merge begins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar

from deploy.shell import LOOK, begin, known, locate, mounted_root, number, quote
from eagle3.errors import EagleError
from eagle3.merge_config import resolve_path
from eagle3.runbook.config import config_of, reason
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Asking, Shell, Unknown
from runbooks.engine.model.values import Integer, Size, Text

__all__ = ["DatasetInputs", "input_paths"]

# `input NUMBER PATH`; the subshell lets each have its own root.
_INPUT = r"""input() {
  look "$2" -L
  case $seen in
    absent) printf '%s\tmissing\n' "$1"; return 0;;
    unknown) unknown "$2: $said";;
  esac
  if ! [ -f "$2" ]; then printf '%s\tother\n' "$1"
  elif ! [ -r "$2" ]; then unknown "$2: Permission denied"
  else size=$(stat -L -c %s -- "$2" 2>/dev/null) || unknown "$2: it changed meanwhile"
    printf '%s\t%s\n' "$1" "$size"
  fi
}
"""


class DatasetInputs(Fact):
    """`dataset_inputs: {config: merge/100k.yaml, present: all}`."""

    name = "dataset_inputs"
    about = "The input files of a merge config. Excluded sources are not needed."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "config": Argument(
            Text(),
            "The merge config: a file of the project, or one that the package brings "
            "(eagle3/configs).",
            required=True,
        ),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "present": Field(Text(), "`all`, or what is missing or empty: `missing: code (PATH)`."),
        "count": Field(Integer(0), "The number of files that are there and not empty."),
        "bytes": Field(Size(), "The bytes of the files that are there."),
    }
    value = "present"
    defaults: ClassVar[Mapping[str, Any]] = {"present": "all"}

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Whether each file is there and may be read; what may not be seen is unknown."""
        paths = input_paths(args["config"], context)
        script = begin() + LOOK + _INPUT
        for index, path in enumerate(paths.values()):
            _, root = locate(path, context)
            script += f"(\n{mounted_root(root)}input {index} {quote(path)}\n) || exit 1\n"
        found = known((yield Shell(f"dataset_inputs {args['config']}", script)))
        missing, others, empty, sizes = [], [], [], []
        for index, (name, path) in enumerate(paths.items()):
            said = found.get(str(index))
            shown = f"{name} ({path})"
            if said == "missing":
                missing.append(shown)
            elif said == "other":
                others.append(shown)
            else:
                sizes.append(number(said, f"the size of {shown}"))
                if sizes[-1] == 0:
                    empty.append(shown)
        faults = [
            f"{word}: {', '.join(names)}"
            for word, names in (("missing", missing), ("no file", others), ("empty", empty))
            if names
        ]
        return {
            "present": "; ".join(faults) or "all",
            "count": len(sizes) - len(empty),
            "bytes": sum(sizes),
        }


def input_paths(config: str, context: Context) -> dict[str, str]:
    """The host's path of each source that is read, found as the merge on the host finds it.

    Raises Unknown where that is not known.
    """
    found = {}
    for name, text in config_of(config, context).input_paths().items():
        try:
            path = str(resolve_path(text, context.host.environment()))
        except EagleError as error:
            raise Unknown(f"{config}: source {name}: {reason(error)}") from None
        if not PurePosixPath(path).is_absolute():
            raise Unknown(
                f"{config}: source {name}: {text} is relative, and where a job starts is not "
                "known; write root:path, or a base"
            )
        found[name] = path
    return found
