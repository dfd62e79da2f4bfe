"""Timed processes, and what a result needs to be understood later."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["HostMeter", "compiled", "machine", "median", "timed", "versions", "write_result"]

RESULTS = Path(__file__).resolve().parent / "results"
_TICKS = os.sysconf("SC_CLK_TCK")


def compiled(cache: Path) -> dict[str, str]:
    """This environment, in which Python keeps byte code in a folder of the benchmark's own: an
    installed program is compiled, whatever this machine's settings say. The first run fills it."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return env | {"PYTHONPYCACHEPREFIX": str(cache)}


def timed(argv: Sequence[str], cwd: Path, env: Mapping[str, str], log: Path) -> dict[str, Any]:
    """Run a process to its end: `seconds` from its start to its end, `cpu` that it and its
    children used, `exit`; what it says goes to `log`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(log, "wb") as stream:
        begun = time.perf_counter()
        done = subprocess.run(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
        )
        seconds = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 3), "cpu": round(cpu, 3), "exit": done.returncode}


class HostMeter:
    """CPU seconds of what runs on the loopback host, that is of sshd and all below it.

    A program that outlives its session has no sshd to account for it; this process adopts such
    orphans (PR_SET_CHILD_SUBREAPER of prctl(2)).
    """

    def __init__(self, sshd: int):
        self._sshd = sshd
        self._orphans = 0.0
        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)

    def read(self) -> float:
        """Seconds since sshd began, of what has ended. Waits for what has not, a while."""
        for _ in range(40):
            self._reap()
            if not _children(self._sshd) and _children(os.getpid()) == [self._sshd]:
                break
            time.sleep(0.05)
        # proc(5): cutime and cstime.
        fields = Path(f"/proc/{self._sshd}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[13]) + int(fields[14])) / _TICKS + self._orphans

    def _reap(self) -> None:
        for pid in _children(os.getpid()):
            if pid == self._sshd:
                continue
            ended, _, used = os.wait4(pid, os.WNOHANG)
            if ended:
                self._orphans += used.ru_utime + used.ru_stime


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def machine() -> dict[str, Any]:
    """What this machine is, and how busy it was."""
    cpu = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "cores": os.cpu_count(),
        "cpu": cpu[0].partition(":")[2].strip() if cpu else platform.machine(),
        "kernel": platform.release(),
        "load": [round(value, 2) for value in os.getloadavg()],
    }


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except OSError:
        return []


def versions(*distributions: str) -> dict[str, str]:
    """Python's version and those of distributions; `not installed` where one is missing."""
    found = {"python": platform.python_version()}
    for name in distributions:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)


def write_result(name: str, result: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Write `NAME.json`; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=2) + "\n")
    temporary.replace(file)
    return file
