"""The processes of a host, read from /proc: what ps(1) shows, without needing ps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from deploy.shell import PROBE, answers
from runbooks.engine.model.probe import Output, Unknown

__all__ = ["HIDDEN", "PROCESSES", "Process", "processes"]

# Sets `hidden` to yes where /proc hides other users' processes: a count would be too low.
HIDDEN = r"""hidden=$(sed -n 's/.* \/proc .*hidepid=\([a-z0-9]*\).*/\1/p' /proc/self/mountinfo | tail -n 1)
case $(id -u):$hidden in 0:*|*:|*:0|*:off) hidden=;; *) hidden=yes;; esac
"""

# One line a process: its stat (proc(5)), its cgroup, its command line with spaces for NULs.
PROCESSES = (
    HIDDEN
    + r"""[ -r /proc/self/stat ] || unknown '/proc cannot be read'
[ -z "$hidden" ] || unknown 'processes of other users are hidden (hidepid)'
for process in /proc/[0-9]*; do
  { IFS= read -r stat < "$process/stat"; } 2>/dev/null || continue
  group=
  { while IFS= read -r entry; do
    case $entry in 0::*|*:name=systemd:*) group=${entry##*:};; esac
  done < "$process/cgroup"; } 2>/dev/null
  command=$({ tr '\0\n\t' '   ' < "$process/cmdline"; } 2>/dev/null)
  printf 'process\t%s\t%s\t%s\n' "$stat" "$group" "$command"
done
"""
)


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `command` is its title in brackets where it has no command line."""

    pid: int
    parent: int
    state: str
    title: str
    command: str
    group: str = ""

    @property
    def dead(self) -> bool:
        """A zombie: it has ended, and its parent has not asked for its exit status."""
        return self.state in ("Z", "X", "x")

    def named(self, name: str) -> bool:
        """By its title (cut to 15 bytes by the kernel), or the file name of its program."""
        program = PurePosixPath(self.command.split(" ", 1)[0]).name
        return name in (self.title, program) or name[:15] == self.title[:15] != name


def processes(output: Output) -> list[Process]:
    """The answer of `PROCESSES`, without the probes themselves."""
    if output.exit != 0:
        output.expect()
    # A command line may hold any bytes.
    text = output.stdout.decode(errors="replace")
    if reason := answers(text, "unknown"):
        raise Unknown(reason[0])
    found = [_process(line) for line in answers(text, "process")]
    if not found:
        raise Unknown("/proc shows no process")
    return [one for one in found if PROBE not in one.command]


def _process(line: str) -> Process:
    stat, _, rest = line.partition("\t")
    group, _, command = rest.partition("\t")
    head, _, tail = stat.rpartition(")")
    pid, _, title = head.partition(" (")
    try:
        state, parent = tail.split()[:2]
        return Process(int(pid), int(parent), state, title, command.strip() or f"[{title}]", group)
    except ValueError:
        raise Unknown(f"a line of /proc cannot be read: {stat[:80]!r}") from None
