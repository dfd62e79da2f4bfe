"""Three SSH hosts on this machine, each in namespaces of its own, and a switch between them.

    controller namespace: bridge `switch` 10.77.0.1 ── port `alpha` ══ eth0 10.77.0.11  alpha
                                                    ── port `beta`  ══ eth0 10.77.0.12  beta
                                                    ── port `gamma` ══ eth0 10.77.0.13  gamma

A host has its own network, processes, /proc, mounts, host name, boot id and HOME, so what it says
of itself is as different as on real hosts; its init is its sshd. Its files are seen from outside
at the same paths. Every fleet has namespaces of its own, so all use the same addresses, and no
address or link of the machine itself is touched. Controllers run in the controller's namespace
(`Fleet.controller`).

Neighbours are fixed, so a link that is down is silent: packets vanish, nothing answers "no route
to host", as behind a router. Needs root.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["HOSTS", "Fleet", "make_fleet", "namespaces", "sweep", "why_not"]

HOSTS = ("alpha", "beta", "gamma")
_PREFIX = "eagle3-test"
_NETNS = Path("/run/netns")
_CONTROLLER = "controller"
_TOOLS = ("ip", "nsenter", "unshare", "mount", "ssh-keygen", "sshd")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
# Seconds for a host to come up, or to be gone after its end.
_PATIENCE = 20

_SSHD_CONFIG = """\
ListenAddress {address}
Port 22
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 200
Subsystem sftp internal-sftp
"""


def _tool(name: str) -> str:
    return shutil.which(name, path=_PATH) or name


def _run(*words: str, text: str | None = None) -> str:
    """Standard output; RuntimeError with what it said where it fails."""
    done = subprocess.run(
        [_tool(words[0]), *words[1:]], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(words)}: {done.stderr.strip()}")
    return done.stdout


def why_not() -> str:
    """Why no fleet can be made here; empty where one can."""
    if os.getuid() != 0:
        return "network namespaces need root"
    missing = [name for name in _TOOLS if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (tests/e2e/install does it)"
    probe = f"{_identity()}-probe"
    try:
        _run("ip", "netns", "add", probe)
        try:
            _run("ip", "-n", probe, "link", "add", "switch", "type", "bridge")
        finally:
            _run("ip", "netns", "del", probe)
        _run("unshare", "--pid", "--mount", "--uts", "--fork", "--mount-proc", "true")
    except RuntimeError as error:
        return f"namespaces are refused here: {error}"
    return ""


@dataclass
class Fleet:
    """A running fleet. `folder` holds keys and, for each host, its HOME and its sshd's log."""

    folder: Path
    prefix: str
    servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def controller(self, argv: Sequence[str]) -> list[str]:
        """The argv that runs a program where the hosts can be reached."""
        return [_tool("nsenter"), f"--net={_NETNS / self._space(_CONTROLLER)}", "--", *argv]

    def on(self, host: str, *argv: str) -> str:
        """Run a program on a host without SSH; its standard output."""
        return _run("nsenter", "-t", str(self._init(host)), "-a", *argv)

    def cut(self, host: str) -> None:
        """Unplug the host: what is sent to it or by it is lost without a word."""
        _run("ip", "-n", self._space(_CONTROLLER), "link", "set", host, "down")

    def mend(self, host: str) -> None:
        """Plug it in again."""
        _run("ip", "-n", self._space(_CONTROLLER), "link", "set", host, "up")

    def kill_sessions(self, host: str) -> None:
        """End every SSH session of the host; what the sessions started goes on."""
        for pid in _children(self._init(host)):
            # Orphans are children of the init too.
            if _comm(pid).startswith("sshd"):
                os.kill(pid, signal.SIGKILL)

    def inventory(self, hosts: Mapping[str, Mapping[str, object]]) -> str:
        """An inventory file of these hosts, group `machines`; each with its data beside
        pyinfra's (`roots`, `state_dir`, `path`)."""
        rows = [(name, self.ssh_data(name) | dict(data)) for name, data in hosts.items()]
        return f"machines = {rows!r}\n"

    def ssh_data(self, host: str) -> dict[str, object]:
        """pyinfra's data of a host: where it is, and the key that it takes."""
        return {
            "ssh_hostname": _address(host),
            "ssh_port": 22,
            "ssh_user": pwd.getpwuid(os.getuid()).pw_name,
            "ssh_key": str(self.folder / "user_key"),
            "ssh_config_file": str(self.folder / "ssh_config"),
            "ssh_known_hosts_file": str(self.folder / "known_hosts"),
            "ssh_allow_agent": False,
        }

    def _space(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def _init(self, host: str) -> int:
        """The pid, outside, of the host's first process."""
        return _children(self.servers[host].pid)[0]

    def _begin(self) -> None:
        for name in ("user_key", "host_key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))
        (self.folder / "ssh_config").touch()
        key = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        (self.folder / "known_hosts").write_text(
            "".join(f"{_address(host)} {key}\n" for host in HOSTS)
        )
        self._connect()
        Path("/run/sshd").mkdir(exist_ok=True)
        for host in HOSTS:
            self._start(host)
        for host in HOSTS:
            self._wait_for(host)

    def _connect(self) -> None:
        """Namespaces, links, addresses, and neighbours that need no asking."""
        for name in (_CONTROLLER, *HOSTS):
            _run("ip", "netns", "add", self._space(name))
        lines = [
            "link set lo up",
            f"link add switch address {_mac(_CONTROLLER)} type bridge forward_delay 0",
            f"addr add {_address(_CONTROLLER)}/24 dev switch",
            "link set switch up",
        ]
        for host in HOSTS:
            peer = f"peer name eth0 address {_mac(host)} netns {self._space(host)}"
            lines += [
                f"link add {host} type veth {peer}",
                f"link set {host} master switch up",
                f"neigh add {_address(host)} lladdr {_mac(host)} dev switch nud permanent",
            ]
        self._links(_CONTROLLER, lines)
        for host in HOSTS:
            self._links(
                host,
                [
                    "link set lo up",
                    "link set eth0 up",
                    f"addr add {_address(host)}/24 dev eth0",
                    f"neigh add {_address(_CONTROLLER)} lladdr {_mac(_CONTROLLER)}"
                    " dev eth0 nud permanent",
                ],
            )

    def _links(self, name: str, lines: Sequence[str]) -> None:
        _run("ip", "-n", self._space(name), "-batch", "-", text="\n".join(lines) + "\n")

    def _start(self, host: str) -> None:
        folder = self.folder / host
        (folder / "home").mkdir(parents=True)
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
        if folder.is_relative_to(home):
            raise RuntimeError(f"{folder} lies in {home}, which a host's own HOME covers")
        (folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        config = folder / "sshd_config"
        config.write_text(_SSHD_CONFIG.format(address=_address(host), folder=self.folder))
        script = "\n".join(
            (
                "set -e",
                f"mount --bind {shlex.quote(str(folder / 'home'))} {shlex.quote(str(home))}",
                f"mount --bind {shlex.quote(str(folder / 'boot_id'))}"
                " /proc/sys/kernel/random/boot_id",
                f"echo {host} > /proc/sys/kernel/hostname",
                f"exec {shlex.quote(_tool('sshd'))} -D -e -f {shlex.quote(str(config))}",
            )
        )
        unshare = [_tool("unshare"), "--pid", "--mount", "--uts", "--ipc", "--fork"]
        with open(folder / "log", "wb") as log:
            self.servers[host] = subprocess.Popen(
                [
                    _tool("nsenter"),
                    f"--net={_NETNS / self._space(host)}",
                    "--",
                    *unshare,
                    "--kill-child",
                    "--mount-proc",
                    "sh",
                    "-c",
                    script,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _wait_for(self, host: str) -> None:
        log = self.folder / host / "log"
        end = time.monotonic() + _PATIENCE
        while b"Server listening" not in log.read_bytes():
            if self.servers[host].poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{host} did not come up: {log.read_text()}")
            time.sleep(0.02)

    def _end(self) -> None:
        """Power off: a host's init takes all its processes with it."""
        for server in self.servers.values():
            server.kill()
        for server in self.servers.values():
            server.wait(_PATIENCE)
        for name in (_CONTROLLER, *HOSTS):
            _remove(self._space(name))


_made = 0


@contextmanager
def make_fleet(folder: Path) -> Iterator[Fleet]:
    """A fleet whose own files lie in `folder` (empty); ends with the block."""
    global _made
    _made += 1
    sweep()
    folder.mkdir(parents=True, exist_ok=True)
    fleet = Fleet(folder, f"{_identity()}-{_made}")
    try:
        fleet._begin()
        yield fleet
    finally:
        fleet._end()


def namespaces() -> list[str]:
    """The network namespaces of all fleets, of this process and of others."""
    return sorted(path.name for path in _NETNS.glob(f"{_PREFIX}-*"))


def sweep() -> None:
    """Remove the fleets of test runs that were killed."""
    for name in namespaces():
        pid, start = name.removeprefix(f"{_PREFIX}-").split("-")[:2]
        if _start_time(int(pid)) != start:
            _remove(name)


def _remove(space: str) -> None:
    """End what runs in a namespace, then the namespace; nothing where it is gone."""
    if not (_NETNS / space).exists():
        return
    end = time.monotonic() + _PATIENCE
    while pids := _run("ip", "netns", "pids", space).split():
        if time.monotonic() > end:
            raise RuntimeError(f"{space}: processes that do not end: {' '.join(pids)}")
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)
    try:
        _run("ip", "netns", "del", space)
    except RuntimeError:
        # Two test runs may sweep at the same time.
        if (_NETNS / space).exists():
            raise


def _identity() -> str:
    """Names this process for good: pids are used again."""
    return f"{_PREFIX}-{os.getpid()}-{_start_time(os.getpid())}"


def _start_time(pid: int) -> str:
    """Field 22 of /proc/PID/stat; empty where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _number(name: str) -> int:
    return 1 if name == _CONTROLLER else 11 + HOSTS.index(name)


def _address(name: str) -> str:
    return f"10.77.0.{_number(name)}"


def _mac(name: str) -> str:
    return f"02:00:0a:4d:00:{_number(name):02x}"
