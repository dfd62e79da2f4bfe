"""A real systemd as process 1 of namespaces of its own, on this machine's files.

It has its own processes, mounts, /run and cgroups, starts no service of this machine, and ends
with its process 1. It boots in a fraction of a second.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from runbooks.engine.model.probe import Output
from tests.deploy.operations.local_machine import LocalMachine

__all__ = ["SystemdMachine", "missing", "real_systemd"]

SYSTEMD = "/lib/systemd/systemd"
# The machine's own units stay out of the way; these are the targets that systemd itself asks for.
TARGETS = ("eagle3-test", "sysinit", "basic", "shutdown")
_OUTER = """set -e
mount -t tmpfs tmpfs /run
umount -l /sys/fs/cgroup || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir "/sys/fs/cgroup/$1"
echo $$ > "/sys/fs/cgroup/$1/cgroup.procs"
exec unshare --cgroup --pid --fork --mount-proc --mount --propagation private --kill-child \
  sh -c "$2"
"""
_INNER = f"""set -e
umount -l /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /run/units
for name in {" ".join(TARGETS)}; do
  printf '[Unit]\\nDefaultDependencies=no\\n' > "/run/units/$name.target"
done
mount -t tmpfs tmpfs /var/lib/systemd
mkdir -p /var/lib/systemd/linger /run/user
exec env -i container=test PATH="$PATH" SYSTEMD_UNIT_PATH=/run/systemd/transient:/run/units \
  {SYSTEMD} --system --unit=eagle3-test.target --log-target=console --show-status=no
"""
_CLEAR = """mount -t cgroup2 cgroup2 /mnt && cd /mnt || exit 1
find "$1" -depth -type d -exec rmdir {} +
"""


def missing() -> str:
    """Why no systemd can be started here, or nothing."""
    if os.geteuid() != 0:
        return "only root can make namespaces"
    for program in ("unshare", "nsenter", "systemd-run", "systemctl"):
        if shutil.which(program) is None:
            return f"{program} is not installed; tests/e2e/install does it"
    if not Path(SYSTEMD).exists():
        return f"{SYSTEMD} is not installed; tests/e2e/install does it"
    if "cgroup2" not in Path("/proc/filesystems").read_text():
        return "this kernel has no cgroup2"
    return ""


class SystemdMachine(LocalMachine):
    """This machine's files as a host on which systemd runs."""

    init: int = 0

    def _run(
        self, words: list[str], env: Mapping[str, str], cwd: str | None, stdin: bytes | None
    ) -> Output:
        enter = ["nsenter", "--target", str(self.init), "--mount", "--pid", "--cgroup", "--wd=."]
        return super()._run([*enter, "--", *words], env, cwd, stdin)

    def inside(self, script: str) -> str:
        """The output of a script that works."""
        output = self._run(["sh", "-c", script], {}, None, None)
        assert output.exit == 0, output
        return output.text


@contextmanager
def real_systemd() -> Iterator[int]:
    """Boot one; gives its process id as this machine sees it."""
    group = f"eagle3-systemd-{os.getpid()}"
    outer = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", _OUTER, "sh", group, _INNER],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    init = 0
    try:
        init = _booted(outer)
        yield init
    finally:
        if init:
            os.kill(init, signal.SIGKILL)
        outer.kill()
        outer.wait()
        clear = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _CLEAR, "sh", group]
        for _ in range(50):
            if subprocess.run(clear, capture_output=True).returncode == 0:
                break
            time.sleep(0.1)


def _booted(outer: subprocess.Popen[bytes]) -> int:
    """Wait until it answers; its process id."""
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    state = ""
    for _ in range(300):
        if outer.poll() is not None:
            assert outer.stdout is not None
            raise RuntimeError(f"systemd did not start: {outer.stdout.read().decode()}")
        for pid in children.read_text().split():
            asked = subprocess.run(
                ["nsenter", "-t", pid, "-m", "-p", "-C", "systemctl", "is-system-running"],
                capture_output=True,
                text=True,
            )
            state = asked.stdout.strip()
            if state in ("running", "degraded"):
                return int(pid)
        time.sleep(0.1)
    raise RuntimeError(f"systemd did not come up in 30 s (it says {state!r})")
