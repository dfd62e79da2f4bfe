"""The NVIDIA driver, and the processes on its GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from deploy.facts.types import DriverVersion
from deploy.proc import PROCESSES, Process, processes
from deploy.shell import LOOK, answers, begin, known, untold
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Asking, Output, Shell, Unknown
from runbooks.engine.model.values import ABSENT, Boolean, Choice, HostName, Integer, Size

# Three versions, never one: libraries on disk, module on disk for this kernel, module loaded.
# Debian calls the module nvidia-current.
_VERSIONS = r"""PATH=$PATH:/usr/sbin:/sbin
file=/proc/driver/nvidia/version
look "$file"
case $seen in
  present)
    if shown=$(cat "$file" 2>&1); then printf '%s\n' "$shown" | sed 's/^/loaded	/'
    else printf 'loaded_unknown\t%s\n' "$(line "${shown##*: }")"; fi;;
  unknown) printf 'loaded_unknown\t%s\n' "$said";;
esac
if command -v modinfo >/dev/null 2>&1; then
  kernel=$(uname -r)
  for module in nvidia nvidia-current nvidia-current-open; do
    shown=$(modinfo -k "$kernel" "$module" 2>&1); code=$?
    # busybox knows no -k, and means the running kernel.
    case $shown in *'invalid option'*) shown=$(modinfo "$module" 2>&1); code=$?;; esac
    if [ "$code" = 0 ] && [ -n "$shown" ]; then
      printf '%s\n' "$shown" | sed 's/^/built	/'; break
    fi
    case $shown in
      ''|*'not found'*|*'No such file or directory'*) ;;
      *) printf 'built_unknown\t%s\n' "$(line "$shown")"; break;;
    esac
  done
fi
{
  ldconfig -p 2>/dev/null | sed -n 's/.* => //p' | grep -E '/(libnvidia-ml|libcuda)\.so\.1$' |
    while IFS= read -r name; do readlink -f -- "$name"; done
  for folder in /usr/lib/*-linux-gnu /usr/lib/*-linux-gnu/nvidia/current /usr/lib64 /usr/lib \
    /usr/local/lib /usr/local/nvidia/lib64 /usr/lib/wsl/lib; do
    for name in "$folder"/libnvidia-ml.so.*.* "$folder"/libcuda.so.*.*; do
      [ -f "$name" ] && printf '%s\n' "$name"
    done
  done
} | sort -u | sed 's/^/library	/'
"""
# The version's position differs by flavour (tests/fixtures/proc-driver-nvidia-version-*.txt).
_NVRM = re.compile(r"NVRM version: NVIDIA UNIX (.*?)\s([0-9]+(?:\.[0-9]+)+)\s")
_LIBRARY = re.compile(r"/lib(?:nvidia-ml|cuda)\.so\.([0-9]+(?:\.[0-9]+)+)")
_MODULE = re.compile(r"version:\s+([0-9]+(?:\.[0-9]+)+)")


class NvidiaDriver(Fact):
    """`nvidia_driver: {loaded: same, as: kpro6}`."""

    name = "nvidia_driver"
    about = "The NVIDIA driver's versions: libraries installed, module built, module loaded."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "as": Argument(
            HostName(), "Another host; a version equal to its loaded module's reads `same`."
        ),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "installed": Field(DriverVersion(), "The version of the user-space libraries."),
        "built": Field(
            DriverVersion(), "The version of the module on disk for the running kernel."
        ),
        "loaded": Field(DriverVersion(), "The version of the module in the running kernel."),
        "flavour": Field(Choice(("open", "proprietary")), "The kind of the loaded module."),
        "consistent": Field(
            Boolean(), "Whether the libraries and the loaded module are of one version."
        ),
    }
    value = "loaded"

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Read the three versions, and the other host's loaded module."""
        label, script = "nvidia_driver", begin() + LOOK + _VERSIONS
        mine = _versions((yield Shell(label, script)))
        other = args.get("as")
        if other is None:
            return mine
        theirs = _versions((yield Shell(f"{label} of {other}", script, host=other)))["loaded"]
        if isinstance(theirs, Unknown):
            theirs = Unknown(f"on {other}: {theirs.reason}")
        compared = {
            name: _compared(mine[name], theirs, other) for name in ("installed", "built", "loaded")
        }
        return mine | compared


_COMPUTE = r"""if command -v nvidia-smi >/dev/null 2>&1; then
  shown=$(nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_gpu_memory --format=csv 2>&1)
  printf 'exit\t%s\n' "$?"
  printf '%s\n' "$shown" | sed 's/^/app	/'
fi
"""
_APP = re.compile(r"(GPU-\S+|MIG-\S+), ([0-9]+), (.*), (?:([0-9]+) MiB|\[N/A\]|\[Not Supported\])")
_UNIT = re.compile(r"/(?!user@)[^/]+\.service(?:/|$)")


class GpuProcesses(Fact):
    """`gpu_processes: {orphans: 0, zombies: 0}`."""

    name = "gpu_processes"
    about = "Processes that hold GPU memory, or are SGLang's workers: whether somebody minds them."
    arguments: ClassVar[Mapping[str, Argument]] = {}
    fields: ClassVar[Mapping[str, Field]] = {
        "count": Field(Integer(0), "How many processes the driver lists.", volatile=True),
        "memory": Field(Size(), "The GPU memory that they hold.", volatile=True),
        "orphans": Field(
            Integer(0), "Workers whose parent is gone and who belong to no unit.", volatile=True
        ),
        "zombies": Field(
            Integer(0), "Workers that ended and were not reaped, or hold memory.", volatile=True
        ),
        "foreign": Field(
            Integer(0), "Listed processes that cannot be seen from this host.", volatile=True
        ),
    }
    value = "count"

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Ask nvidia-smi, and go through /proc for SGLang's workers.

        A host without nvidia-smi has nothing to list: workers that are seen anyway count, but
        seeing none there is no evidence, and reads absent.
        """
        output = yield Shell("gpu_processes", begin() + _COMPUTE + PROCESSES)
        running = {one.pid: one for one in processes(output)}
        text = output.stdout.decode(errors="replace")
        codes = answers(text, "exit")
        apps = _apps(codes[0], answers(text, "app")) if codes else []
        listed = {pid: name for pid, name, _ in apps}
        hidden = {pid for pid in listed if pid not in running or listed[pid] == "[Not Found]"}
        minded = [
            one
            for one in running.values()
            if one.command.startswith(("sglang::", "[sglang::"))
            or one.title.startswith("sglang::")
            or one.pid in listed.keys() - hidden
        ]
        orphans = sum(not one.dead and _orphan(one, running) for one in minded)
        zombies = sum(one.dead for one in minded)
        unseen: Any = 0 if codes else ABSENT
        if hidden:
            pids = ", ".join(map(str, sorted(hidden)))
            unseen = Unknown(f"process {pids} holds GPU memory and is not visible on this host")
        sizes = [size for _, _, size in apps]
        memory: Any = Unknown("the driver does not tell the memory of a process")
        if None not in sizes:
            memory = sum(size for size in sizes if size is not None)
        return {
            "count": len(listed) if codes else ABSENT,
            "memory": memory if codes else ABSENT,
            "orphans": orphans or unseen,
            "zombies": zombies or unseen,
            "foreign": len(hidden) if codes else ABSENT,
        }


def _versions(output: Output) -> dict[str, Any]:
    found, text = known(output), output.text
    loaded = untold(found, "loaded") or _loaded(answers(text, "loaded"))
    built = untold(found, "built") or _built(answers(text, "built"))
    installed = _installed(answers(text, "library"))
    flavour: Any = loaded
    if isinstance(loaded, str):
        flavour = "open" if " Open " in f" {answers(text, 'loaded')[0]} " else "proprietary"
    consistent: Any = ABSENT
    if isinstance(loaded, Unknown):
        consistent = loaded
    elif loaded is not ABSENT and installed is not ABSENT:
        consistent = loaded == installed
    return {
        "installed": installed,
        "built": built,
        "loaded": loaded,
        "flavour": flavour,
        "consistent": consistent,
    }


def _loaded(lines: list[str]) -> Any:
    if not lines:
        return ABSENT
    match = _NVRM.search(lines[0] + " ")
    return match[2] if match else Unknown(f"no version in {lines[0]!r}")


def _built(lines: list[str]) -> Any:
    if not lines:
        return ABSENT
    matches = [match[1] for line in lines if (match := _MODULE.match(line))]
    return matches[0] if len(matches) == 1 else Unknown("modinfo gave no version")


def _installed(paths: list[str]) -> Any:
    """Libraries of two versions are shown as such, and equal none."""
    versions = sorted({match[1] for path in paths if (match := _LIBRARY.search(path))})
    # libcuda.so.1.1 and the like are emulators' and stubs' links; a driver has a branch number.
    versions = [version for version in versions if int(version.partition(".")[0]) > 100]
    return " and ".join(versions) if versions else ABSENT


def _compared(mine: Any, theirs: Any, other: str) -> Any:
    """`same`, or both versions for people. Nothing here is nothing, whatever is there."""
    if isinstance(mine, Unknown) or mine is ABSENT:
        return mine
    if isinstance(theirs, Unknown):
        return theirs
    return "same" if mine == theirs else f"{mine} ({other}: {theirs})"


def _apps(code: str, lines: list[str]) -> list[tuple[int, str, int | None]]:
    """The rows; what is no row is the driver's complaint, whatever the exit status (its exit codes are not told apart well)."""
    lines = [line.strip() for line in lines if line.strip()]
    found = []
    for line in lines:
        if line.startswith("gpu_uuid, pid,"):
            continue
        if (match := _APP.fullmatch(line)) is None:
            raise Unknown(f"nvidia-smi: {line}")
        size = int(match[4]) * 1024**2 if match[4] else None
        found.append((int(match[2]), match[3], size))
    if code != "0" or not lines:
        raise Unknown(f"nvidia-smi: exit {code}")
    return found


def _orphan(one: Process, running: Mapping[int, Process]) -> bool:
    """A worker that init inherited (sgl-project/sglang#23627); in a container, SGLang is init."""
    parent = running.get(one.parent)
    if one.parent != 1 and (parent is None or parent.title != "systemd"):
        return False
    if parent is not None and "sglang" in parent.command:
        return False
    worker = one.command.startswith("sglang::") or one.title.startswith("sglang::")
    return worker or _UNIT.search(one.group) is None
