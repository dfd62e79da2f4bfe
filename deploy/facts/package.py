"""Installed packages, and whether the project's own code on a host is the controller's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from deploy import distribution
from deploy.facts.types import PackageDigest
from deploy.shell import LOOK, PYTHON, answers, begin, known
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Asking, Shell, Unknown
from runbooks.engine.model.values import ABSENT, Choice, HostPath, Text

_DPKG = r"""command -v dpkg-query >/dev/null 2>&1 || { printf 'status\t\n'; exit 0; }
if shown=$(dpkg-query -W -f '${db:Status-Abbrev}|${Version}\n' -- "$name" 2>&1); then
  printf '%s\n' "$shown" | sed 's/^/status	/'
else
  case $shown in
    *'no packages found matching'*) printf 'status\t\n';;
    *) unknown "$(printf '%s\n' "$shown" | tail -n 1)";;
  esac
fi
"""


class PackageFact(Fact):
    """`package: {name: eagle3-runbooks, digest: controller}`."""

    name = "package"
    about = "An installed package: a Python distribution, or one of Debian's."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "name": Argument(Text(r"[A-Za-z0-9][A-Za-z0-9+._-]*"), "The package.", required=True),
        "manager": Argument(Choice(("python", "apt")), "Whose package it is.", default="python"),
        "venv": Argument(
            HostPath(), "The virtual environment; the inventory's eagle3_venv by default."
        ),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "version": Field(Text(), "The installed version."),
        "digest": Field(
            PackageDigest(),
            "The digest of its installed files; `controller` when it equals the project's own "
            "code on the controller.",
        ),
        "state": Field(
            Choice(("installed", "held", "broken", "absent")),
            "`held` is apt's hold, `broken` is unpacked but not configured.",
        ),
    }
    value = "version"

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Ask the metadata of a python, or dpkg. No python and no dpkg have no packages."""
        if args.get("manager") == "apt":
            return (yield from self._debian(args))
        name, python = args["name"], self._python(args, context)
        script = begin(python=python, program=distribution.script(name)) + LOOK + PYTHON
        found = known((yield Shell(f"package {name}", script)))
        if "version" not in found:
            raise Unknown(f"{python} gave no version")
        if not found["version"]:
            return {"version": ABSENT, "digest": ABSENT, "state": "absent"}
        digest: Any = found.get("digest") or Unknown("its installation lists no files (RECORD)")
        if _canonical(name) == distribution.NAME and digest == _of_controller(context.project):
            digest = "controller"
        return {"version": found["version"], "digest": digest, "state": "installed"}

    def _debian(self, args: Mapping[str, Any]) -> Asking:
        name = args["name"]
        output = yield Shell(f"package {name} apt", begin(name=name) + _DPKG)
        known(output)
        states = answers(output.text, "status")
        if len(states) != 1:
            raise Unknown(f"dpkg-query gave {len(states)} lines; write the package as NAME:ARCH")
        status, _, version = states[0].partition("|")
        state = _dpkg_state(status)
        if state in ("installed", "held") and not version:
            raise Unknown(f"dpkg-query gave no version: {states[0]!r}")
        there = state in ("installed", "held")
        return {"version": version if there else ABSENT, "digest": ABSENT, "state": state}

    def _python(self, args: Mapping[str, Any], context: Context) -> str:
        venv = args.get("venv") or context.host.data.get("eagle3_venv")
        return f"{context.host.resolve(venv)}/bin/python" if venv else "python3"


def _dpkg_state(status: str) -> str:
    """`ii `, `hi `, `iF `, `rc `: wanted, state, error, as dpkg-query(1) has them."""
    wanted, now, error = (*status, " ", " ", " ")[:3]
    if now == "i" and error == " ":
        return "held" if wanted == "h" else "installed"
    return "absent" if now in " nc" else "broken"


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _of_controller(project: Path) -> str | None:
    """The digest of the project's code here: of its tree, or of what is installed."""
    if all((project / package).is_dir() for package in distribution.PACKAGES):
        return distribution.source_digest(project)
    return distribution.installed(distribution.NAME)[1]
