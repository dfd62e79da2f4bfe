"""A real sshd on this machine's loopback, with keys of its own, and hosts that it stands for."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@dataclass
class Server:
    """A running sshd; its sessions are its children."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path

    def cut(self) -> None:
        """End every session, as a network that fails does."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in task.read_text().split():
            os.kill(int(pid), signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _keygen(file: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)


@contextmanager
def loopback_sshd(folder: Path) -> Iterator[Server]:
    """Run one with everything it needs in `folder`; ends with the block."""
    if SSHD is None:
        raise FileNotFoundError("sshd is not installed; tests/e2e/install does it")
    _keygen(folder / "host_key")
    _keygen(folder / "user_key")
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    port = _free_port()
    (folder / "sshd_config").write_text(
        f"""\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
"""
    )
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")])
    try:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield Server(process, port, folder)
    finally:
        process.terminate()
        process.wait(10)


def host_data(server: Server, port: int | None = None) -> dict[str, object]:
    """pyinfra's data of a host that is this server, or one that refuses (another port)."""
    for name in ("ssh_config", "known_hosts"):
        (server.folder / name).touch()
    return {
        "ssh_hostname": "127.0.0.1",
        "ssh_port": server.port if port is None else port,
        "ssh_user": getpass.getuser(),
        "ssh_key": str(server.folder / "user_key"),
        "ssh_config_file": str(server.folder / "ssh_config"),
        "ssh_known_hosts_file": str(server.folder / "known_hosts"),
        "ssh_allow_agent": False,
    }
