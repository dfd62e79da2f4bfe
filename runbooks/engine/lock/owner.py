"""Who holds a lock, and when it is proved that nobody does any more.

The owner is a process of a controller. It is named by the machine, the machine's boot, the
process namespace, the pid and its start time, since a pid alone is used again. Only a process
of the same machine can prove its death: what another machine does is not known here.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runbooks.engine.model.host import Origin
from runbooks.engine.model.values import show_duration

__all__ = ["Owner", "Process", "operator"]


def operator() -> str:
    """The user who runs this controller."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A user without a name, as containers have.
        return f"uid {os.getuid()}"


@dataclass(frozen=True, slots=True)
class Process:
    """A process of one boot of one machine; empty where the machine does not tell."""

    machine: str
    boot: str
    namespace: str
    pid: int
    start: str

    @classmethod
    def current(cls) -> Process:
        return cls(
            machine=_text("/etc/machine-id"),
            boot=_text("/proc/sys/kernel/random/boot_id"),
            namespace=_link("/proc/self/ns/pid"),
            pid=os.getpid(),
            start=_start("self"),
        )

    def death(self) -> str | None:
        """The proof that this process is gone, or None where there is none."""
        here = Process.current()
        if not self.boot or not here.boot:
            return None
        if self.boot != here.boot:
            # Another boot of this machine ended every process of the one before. Containers
            # of one image may share a machine id, so the host name has to agree too (`Owner`).
            same = bool(self.machine) and self.machine == here.machine
            return "its machine has rebooted" if same else None
        if not self.namespace or self.namespace != here.namespace:
            return None  # a pid of another container
        if self.start and _start(str(self.pid)) != self.start:
            return f"its process {self.pid} is gone"
        return None


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def _start(pid: str) -> str:
    """Field 22 of /proc/PID/stat (proc(5)); empty for one that is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


@dataclass(frozen=True, slots=True)
class Owner:
    """What a lock says of its run. `since` is in seconds since the epoch, by the controller.

    `hosts` are those that the lock protects: a live job on one of them keeps it.
    """

    run: str
    runbook: str
    operator: str
    controller: str
    since: float
    process: Process
    hosts: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, origin: Origin, runbook: str, since: float, hosts: tuple[str, ...]) -> Owner:
        return cls(
            origin.run,
            runbook,
            origin.operator,
            origin.controller,
            since,
            Process.current(),
            hosts,
        )

    def death(self) -> str | None:
        """The proof that the run's controller is gone, or None."""
        if self.controller != socket.gethostname():
            return None
        return self.process.death()

    def describe(self, now: float) -> str:
        """`by alice on laptop for 3h12m (run … of extract, process 4711)`."""
        age = show_duration(max(0.0, now - self.since))
        return (
            f"by {self.operator} on {self.controller} for {age}"
            f" (run {self.run} of {self.runbook}, process {self.process.pid})"
        )

    def encode(self) -> str:
        """One line of JSON, short enough for the text of a symbolic link (4,095 bytes)."""
        data = asdict(self) | {"since": round(self.since)}
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Owner:
        """ValueError where it is not one."""
        try:
            data: dict[str, Any] = json.loads(text)
            process = Process(**data.pop("process"))
            data["hosts"] = tuple(data["hosts"])
            return cls(**data, process=process)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"no owner of a lock: {error}") from None
