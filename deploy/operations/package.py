"""Install one package: of the project itself, of an index, or of apt."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, ClassVar

from deploy import distribution
from deploy.distribution import NAME
from deploy.operations.common import Steps, option, project_file, succeeded, text_of
from deploy.operations.wheel import code_digest, own_files, own_wheel
from deploy.shell import LOOK, PYTHON, assign, begin, fields, quote
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import (
    Acting,
    Command,
    Delegate,
    Operation,
    OperationFailed,
    Preview,
    Previewing,
    Put,
)
from runbooks.engine.model.probe import Output, Shell, Unknown
from runbooks.engine.model.values import Choice, HostPath, Text

_APT = r"""export LC_ALL=C
command -v dpkg-query >/dev/null 2>&1 || { printf 'apt\tabsent\n'; exit 0; }
said=$(dpkg-query -W -f '${db:Status-Status}\t${Version}\n' -- "$name" 2>&1)
case $said in
  *'no packages found'*) printf 'version\tabsent\n';;
  installed*) printf 'version\t%s\n' "${said#*	}";;
  *not-installed*|*config-files*) printf 'version\tabsent\n';;
  *) printf '%s\n' "$said" >&2; exit 1;;
esac
held=$(apt-mark showhold "$name" 2>/dev/null)
if [ "${held%%:*}" = "$name" ]; then printf 'held\tyes\n'; else printf 'held\tno\n'; fi
"""

# Prints the requirements of the installed project (with the extras wanted) that do not hold.
# pip's own copy of `packaging` is used, since pip is there and packaging may not be.
_MISSING = r"""
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pip._vendor.packaging.requirements import Requirement
extras = sys.argv[2:] or [""]
for text in requires(sys.argv[1]) or []:
    wanted = Requirement(text)
    if wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in extras):
        continue
    try:
        if wanted.specifier.contains(version(wanted.name), prereleases=True):
            continue
    except PackageNotFoundError:
        pass
    print(wanted.name + str(wanted.specifier))
"""
_INSTALL = r"""export PIP_DISABLE_PIP_VERSION_CHECK=1
"$python" -m pip install --quiet --no-deps --no-index --force-reinstall -- "$wheel"
"""


class Package(Operation):
    """`package: {name: eagle3-runbooks, from: controller}`.

    `controller` installs the code that this controller runs, without an index: the wheel is
    made here and put there, with `--no-deps`. Requirements that are not met afterwards are
    asked of the host's index, under the lock file that the inventory names (`eagle3_lock`,
    a file of the project) where it names one; extras are `eagle3_extras` (`[host]`).
    `index` is pyinfra's `pip.packages`, `apt` its `apt.packages`, both with the result read
    back: pyinfra leaves a held package as it is and calls that a success.
    """

    name = "package"
    about = "Install a package: the project itself from the controller, or one of pip or apt."
    symbol = "+"
    arguments: ClassVar[Mapping[str, Argument]] = {
        "name": Argument(
            Text(pattern=r"[A-Za-z0-9][A-Za-z0-9._+-]*", example="eagle3-runbooks"),
            "The package's name.",
            required=True,
        ),
        "from": Argument(
            Choice(("controller", "index", "apt")),
            "Where from: the project's own code on the controller, pip's index, or apt.",
            default="index",
        ),
        "version": Argument(
            Text(pattern=r"[0-9A-Za-z][0-9A-Za-z.+:~!_-]*", example="1.2.0"),
            "The exact version; any version counts without it.",
        ),
        "venv": Argument(
            HostPath(),
            "The virtual environment; the inventory's eagle3_venv by default, made when missing.",
        ),
    }

    def preview(self, args: Mapping[str, Any], context: Context) -> Previewing:
        """The version (or digest) now and the wanted one."""
        now = yield from self._look(args, context)
        problem = self._problem(args, now, self._code(args, context))
        if not problem:
            return Preview(summary=f"{args['name']} {now['version']} is installed")
        return Preview(summary=f"{args['name']}: {problem}")

    def act(self, args: Mapping[str, Any], context: Context) -> Acting:
        """Install, and read the result back."""
        code = self._code(args, context)
        now = yield from self._look(args, context)
        if not self._problem(args, now, code):
            return "nothing to do"
        source = option(self, args, "from")
        if source == "apt":
            yield from self._apt(args)
        elif source == "index":
            yield from self._index(args, context, now)
        else:
            yield from self._controller(args, context, now, code)
        after = yield from self._look(args, context)
        if problem := self._problem(args, after, code):
            raise OperationFailed(f"{args['name']} was installed, but: {problem}")
        return f"{args['name']} {after['version']} installed"

    def _look(
        self, args: Mapping[str, Any], context: Context
    ) -> Generator[Shell, Output, dict[str, str]]:
        label = f"package {args['name']}"
        if option(self, args, "from") == "controller" and args["name"] != NAME:
            raise OperationFailed(
                f"{args['name']} cannot come from the controller; only {NAME} can"
            )
        if option(self, args, "from") == "apt":
            script = assign("name", args["name"]) + _APT
        else:
            program = distribution.script(args["name"])
            script = begin(program=program) + self._python(args, context) + LOOK + PYTHON
        text = text_of((yield Shell(label, script)), label)
        found = fields(text)
        if "unknown" in found:
            raise Unknown(f"{label}: {found['unknown']}")
        if found.get("apt") == "absent":
            raise OperationFailed("no apt is on this host")
        if "version" not in found:
            raise Unknown(f"{label}: unreadable answer {text!r}")
        return {key: value or "absent" for key, value in found.items()}

    def _code(self, args: Mapping[str, Any], context: Context) -> Mapping[str, bytes]:
        """The controller's code where it is wanted, read once: it may be edited meanwhile."""
        return own_files(context.project) if option(self, args, "from") == "controller" else {}

    def _problem(
        self, args: Mapping[str, Any], now: Mapping[str, str], code: Mapping[str, bytes]
    ) -> str:
        """What is not as wanted, or nothing."""
        version = now["version"]
        if option(self, args, "from") == "controller":
            wanted = code_digest(code)
            if now.get("digest") == wanted and version != "absent":
                return ""
            have = now.get("digest", "absent")
            return f"code {have if have == 'absent' else have[:12]} → {wanted[:12]} (controller)"
        if version != "absent" and args.get("version") in (None, version):
            return ""
        if version != "absent" and now.get("held") == "yes":
            raise OperationFailed(
                f"{args['name']} is held at {version}, want {args['version']}; "
                f"release it with apt-mark unhold {args['name']}"
            )
        return f"{version} → {args.get('version') or 'any version'}"

    def _venv(self, args: Mapping[str, Any], context: Context) -> str:
        venv = args.get("venv") or context.host.data.get("eagle3_venv") or ""
        return context.host.resolve(str(venv)) if venv else ""

    def _python(self, args: Mapping[str, Any], context: Context) -> str:
        venv = self._venv(args, context)
        return assign("python", f"{venv}/bin/python" if venv else "python3")

    def _apt(self, args: Mapping[str, Any]) -> Steps:
        from pyinfra.operations import apt  # slow to import, and only acting needs it

        name, version = args["name"], args.get("version")
        wanted = {
            "packages": [f"{name}={version}" if version else name],
            "update": True,
            "cache_time": 3600,
        }
        output = yield Delegate(apt.packages, wanted, f"package {name} (apt)")
        succeeded(output, f"apt install {name}")

    def _index(self, args: Mapping[str, Any], context: Context, now: Mapping[str, str]) -> Steps:
        from pyinfra.operations import pip  # slow to import, and only acting needs it

        yield from self._make_venv(args, context, now)
        name, version, venv = args["name"], args.get("version"), self._venv(args, context)
        wanted = {
            "packages": [f"{name}=={version}" if version else name],
            "virtualenv": venv or None,
            "pip": "pip" if venv else "pip3",
        }
        output = yield Delegate(pip.packages, wanted, f"package {name} (pip)")
        succeeded(output, f"pip install {name}")

    def _make_venv(
        self, args: Mapping[str, Any], context: Context, now: Mapping[str, str]
    ) -> Steps:
        venv = self._venv(args, context)
        if now.get("python") != "absent":
            return
        if not venv:
            raise OperationFailed("no python3 is on this host")
        from pyinfra.operations import pip

        output = yield Delegate(pip.venv, {"path": venv, "python": "python3"}, f"venv {venv}")
        succeeded(output, f"making {venv}")

    def _controller(
        self,
        args: Mapping[str, Any],
        context: Context,
        now: Mapping[str, str],
        code: Mapping[str, bytes],
    ) -> Steps:
        yield from self._make_venv(args, context, now)
        wheel = own_wheel(code)
        python = self._python(args, context)
        script = 'mkdir -p "${EAGLE3_STATE:?}/wheels" && cd -P "$EAGLE3_STATE/wheels" && pwd -P\n'
        output = yield Command(script=script, label=f"package {NAME} folder")
        folder = succeeded(output, "making the folder of wheels").text.strip()
        output = yield Put(f"{folder}/{wheel.name}", wheel.content)
        succeeded(output, f"writing {wheel.name}")
        script = python + assign("wheel", f"{folder}/{wheel.name}") + _INSTALL
        output = yield Command(script=script, label=f"package {NAME}")
        if "externally-managed" in output.stderr:
            raise OperationFailed(
                "the host's Python belongs to its system; declare eagle3_venv in the inventory"
            )
        succeeded(output, f"pip install {wheel.name}")
        yield from self._requirements(context, python)

    def _requirements(self, context: Context, python: str) -> Steps:
        extras = context.host.data.get("eagle3_extras", ["host"])
        words = " ".join(map(quote, [NAME, *extras]))
        script = python + assign("code", _MISSING) + f'"$python" -I -B -c "$code" {words}\n'
        label = f"package {NAME} requirements"
        missing = text_of((yield Shell(label, script)), label).split("\n")
        missing = [line for line in missing if line]
        if not missing:
            return
        words = " ".join(map(quote, missing))
        script = python + f'"$python" -m pip install --quiet -c /dev/stdin -- {words}\n'
        lock = context.host.data.get("eagle3_lock")
        constraints = project_file(context, str(lock)).read_bytes() if lock else b""
        output = yield Command(script=script, stdin=constraints, label=label)
        succeeded(output, f"{NAME} is installed, its requirements {', '.join(missing)} are not")
