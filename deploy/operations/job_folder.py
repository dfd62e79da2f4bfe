"""A job's folder on its host: how it is laid out, looked at, and judged.

    ${EAGLE3_STATE}/jobs/RUNBOOK/STEP/
        7.claim      symbolic link, made by the program's own process right before its exec:
                     its text is `pid:start:boot:supervisor:start:digest:starter`
        7/meta.json  who started what, for other controllers (`meta_of` in job_start)
        7/spec       the argv, quoted          7/log        what the program writes
        7/unit       `UNIT INVOCATION MANAGER` where it runs under systemd
        7/cancelled  `TIME OPERATOR`, written before the first signal
        7/killed     `SCOPE COUNT`: what the out-of-memory killer did while it ran
        7/exit       its exit status, renamed into place after all of these: the truth
        6/           the previous run; older ones are removed, their claims stay

Identity is boot id, pid and start time (field 22 of /proc/PID/stat, proc(5)), because pids are
used again (jhuckaby/Cronicle#789); a zombie is dead although /proc/PID exists. The supervisor,
a session of its own, waits for the program and writes `exit`. When the supervisor alone is
killed the program goes on and is still found alive; its exit status is then lost.

Script variables begin with `j_`, so that they never change an exported variable of the program.
Nothing here needs more than a POSIX shell, `readlink`, `stat -c` and /proc (dash and busybox
alike).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.operations.common import exit_words
from deploy.shell import fields, quote
from runbooks.engine.model.host import Origin
from runbooks.engine.model.names import file_name
from runbooks.engine.model.probe import Unknown

__all__ = [
    "FORBIDDEN",
    "PROCESS",
    "REPORT",
    "JobState",
    "folder",
    "job_state",
    "probe",
    "spec_digest",
]

# `process PID` sets `j_state` and `j_start`; `j_state` is empty when there is no such process.
# `newest` sets `j_run` to the number of the newest claim, 0 without any.
PROCESS = r"""process() {
  j_state=; j_start=
  j_line=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  set -- ${j_line##*) }
  j_state=$1; j_start=${20}
}
lives() {
  process "$1"
  case $j_state in ''|Z|X) return 1;; esac
  [ "$j_start" = "$2" ]
}
newest() {
  j_run=0
  for j_claim in "$j_folder"/*.claim; do
    [ -L "$j_claim" ] || continue
    j_number=${j_claim##*/}; j_number=${j_number%.claim}
    case $j_number in *[!0-9]*) continue;; esac
    [ "$j_number" -gt "$j_run" ] && j_run=$j_number
  done
  return 0
}
"""

# `forbidden FOLDER` succeeds, and sets `j_said`, where the folder may not be looked into; a
# folder that is not there is none of these. Ends the script where /proc is not there.
FORBIDDEN = r"""[ -r /proc/self/stat ] || { echo '/proc is not readable' >&2; exit 1; }
j_boot=$(cat /proc/sys/kernel/random/boot_id) || exit 1
forbidden() {
  j_said=$(LC_ALL=C ls -d "$1" 2>&1 >/dev/null)
  case $j_said in
    *'No such file or directory'*) return 1;;
    '') { [ -r "$1" ] && [ -x "$1" ]; } && return 1; j_said="$1: Permission denied";;
  esac
  return 0
}
"""

# `report` tells of run `j_run` in `j_folder`, and sets `j_place` to the run's own folder.
# A run has ended when its program and its supervisor are both gone, or `exit` is there.
REPORT = r"""report() {
  printf 'now\t%s\nfolder\t%s\nrun\t%s\nboot\t%s\n' "$(date +%s)" "$j_folder" "$j_run" "$j_boot"
  j_place=$j_folder/$j_run
  [ "$j_run" -gt 0 ] && j_claim=$(readlink "$j_place.claim") || return 0
  printf 'claim\t%s\n' "$j_claim"
  printf 'started\t%s\n' "$(stat -c %Y "$j_place.claim")"
  j_rest=${j_claim#*:*:*:}; j_rest=${j_rest#*:}; j_lives=no
  j_born=${j_claim#*:}; lives "${j_claim%%:*}" "${j_born%%:*}" && j_lives=yes
  printf 'program\t%s %s\n' "$j_state" "$j_start"
  j_born=${j_rest%%:*}; j_rest=${j_claim#*:*:*:}
  lives "${j_rest%%:*}" "$j_born" && j_lives=yes
  printf 'supervisor\t%s %s\n' "$j_state" "$j_start"
  # After the processes: a supervisor seen dead has written the status before, or never will.
  if [ -e "$j_place/exit" ]; then
    j_lives=yes
    printf 'exit\t%s\nended\t%s\n' "$(cat "$j_place/exit")" "$(stat -c %Y "$j_place/exit")"
  fi
  for j_name in spec unit cancelled killed; do
    [ ! -e "$j_place/$j_name" ] || printf '%s\t%s\n' "$j_name" "$(head -n 1 "$j_place/$j_name")"
  done
  # Right after the claim it still has its starter's name.
  if j_meta=$(cat "$j_place/.meta-${j_claim##*:}" 2>/dev/null); then :
  elif [ -e "$j_place/meta.json" ]; then j_meta=$(cat "$j_place/meta.json") || j_meta=unreadable
  else j_meta={}
  fi
  printf 'meta\t%s\n' "$(printf '%s' "$j_meta" | tr '\n\t' '  ')"
  if [ "$j_lives" = no ] && [ -e "$j_place/unit" ]; then
    read -r j_unit j_rest < "$j_place/unit"
    j_user=; [ "${j_rest##* }" != user ] || j_user=--user
    printf 'result\t%s\n' "$(
      export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"
      systemctl $j_user show -p Result -p InvocationID "$j_unit" 2>/dev/null | tr '\n' ' ')"
  fi
  if [ -e "$j_place/log" ]; then
    printf 'log\t%s %s\n' "$(stat -c '%Y %s' "$j_place/log")" "$j_place/log"
  fi
  return 0
}
"""

_OOM = "the kernel's out-of-memory killer"


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as it is now.

    `state` is none (never started), running, ended (with `exit`) or lost. `reason` says how it
    was lost, or what ended it where that is known. Times are seconds of the host's clock;
    `supervised` says that an exit status will come. `meta` is what the starter wrote, None
    where that is damaged: the state does not depend on it.
    """

    state: str
    run: int = 0
    exit: int | None = None
    pid: int | None = None
    started: float | None = None
    ended: float | None = None
    boot: str = ""
    digest: str = ""
    spec: str = ""
    log: str = ""
    log_time: float | None = None
    log_size: int = 0
    now: float = 0.0
    supervised: bool = True
    reason: str = ""
    unit: str = ""
    cancelled: str = ""
    meta: Mapping[str, Any] | None = field(default_factory=dict)

    @property
    def how(self) -> str:
        """How it ended, for people: `exit 143 (signal 15), cancelled by alice`."""
        ended = exit_words(self.exit) if self.exit is not None else ""
        return ", ".join(part for part in (ended, self.reason) if part)

    @property
    def origin(self) -> Origin | None:
        """Who started it; None where no run did."""
        words = [(self.meta or {}).get(name) for name in ("run", "operator", "controller")]
        return Origin(*map(str, words)) if all(isinstance(word, str) for word in words) else None


def folder(runbook: str, step: str) -> str:
    """The job's folder as a shell word; EAGLE3_STATE is exported to every script."""
    return f'"${{EAGLE3_STATE:?}}"/jobs/{quote(file_name(runbook))}/{quote(file_name(step))}'


def spec_digest(argv: Sequence[str], cwd: str | None) -> str:
    """What makes two jobs of a step the same: the program, its arguments, its folder."""
    text = json.dumps([list(argv), cwd], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def probe(runbook: str, step: str, run: int | None = None) -> str:
    """A read-only script for `job_state`: the newest run, or the given one."""
    return (
        f"j_folder={folder(runbook, step)}\n"
        + PROCESS
        + FORBIDDEN
        + REPORT
        + 'if forbidden "$j_folder"; then printf \'%s\\n\' "$j_said" >&2; exit 1; fi\n'
        + (f"j_run={run}\n" if run else "newest\n")
        + "report\n"
    )


def job_state(text: str) -> JobState:
    """Judge the answer of `probe`; Unknown when it cannot be read, never "dead"."""
    found = fields(text)
    try:
        run, now, boot = int(found["run"]), float(found["now"]), found["boot"]
        if run == 0:
            return JobState("none", boot=boot, now=now)
        pid, born, booted, _, supervised, digest, _ = found["claim"].split(":")
        process = int(pid)
        program = _alive(found["program"], born)
        watched = _alive(found["supervisor"], supervised)
        log_time, log_size, log = (found.get("log") or "nan 0 ").split(" ", 2)
        code = int(found["exit"]) if "exit" in found else None
        started = float(found["started"])
        ended = float(found["ended"]) if "ended" in found else None
        size = int(log_size)
        cancelled = found["cancelled"].partition(" ")[2] if "cancelled" in found else ""
    except (KeyError, ValueError):
        raise Unknown(f"the job's state cannot be read: {text[-300:]!r}") from None
    state, reason = "running", ""
    if code is not None:
        state = "ended"
        reason = f"cancelled by {cancelled}" if cancelled else _killed(found.get("killed"), code)
    elif booted != boot:
        state, reason = "lost", "the host rebooted"
    elif not program and not watched:
        state, reason = "lost", f"process {pid} is gone and left no exit status"
        if cancelled:
            reason += f"; it was cancelled by {cancelled}"
        elif _unit_result(found) == "oom-kill":
            reason += f"; killed by {_OOM}"
    return JobState(
        state,
        run=run,
        exit=code,
        pid=process,
        started=started,
        ended=ended,
        boot=booted,
        digest=digest,
        spec=found.get("spec", ""),
        log=log,
        log_time=float(log_time) if log else None,
        log_size=size,
        now=now,
        supervised=watched,
        reason=reason,
        unit=found.get("unit", "").partition(" ")[0],
        cancelled=cancelled,
        meta=_meta(found.get("meta", "{}")),
    )


def _meta(text: str) -> dict[str, Any] | None:
    try:
        meta = json.loads(text)
    except ValueError:
        return None
    return meta if isinstance(meta, dict) else None


def _alive(seen: str, born: str) -> bool:
    """`S 12345` of /proc against the recorded start; zombies and younger namesakes are dead."""
    state, _, start = seen.partition(" ")
    return bool(state) and state not in ("Z", "X") and start == born


def _killed(seen: str | None, code: int) -> str:
    """What the out-of-memory killer had to do with an end, by the counters of job_start.

    A counter of the unit's own cgroup is proof; one that the job shares with others is
    evidence, and is told as such. The counter of a whole host says nothing but beside a KILL.
    """
    scope, _, rise = (seen or "").partition(" ")
    if code == 0 or not (rise.isascii() and rise.isdigit()) or (scope == "host" and code != 137):
        return ""
    killed = "1 process" if rise == "1" else f"{int(rise):,} processes"
    if scope == "unit":
        return f"killed by {_OOM}" if code == 137 else f"{_OOM} killed {killed} of it"
    place = "its cgroup" if scope == "cgroup" else "this host"
    if code == 137:
        return f"probably killed by {_OOM}, which killed {killed} of {place} in that time"
    return f"{_OOM} killed {killed} of {place} in that time"


def _unit_result(found: Mapping[str, str]) -> str:
    """What systemd says of this very invocation of the unit."""
    words = dict(word.partition("=")[::2] for word in found.get("result", "").split())
    _, _, rest = found.get("unit", "").partition(" ")
    same = words.get("InvocationID", "") == rest.partition(" ")[0]
    return words.get("Result", "") if same else ""
