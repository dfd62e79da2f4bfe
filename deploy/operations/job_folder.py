"""A job's folder on its host: how it is named, started once, probed, and judged.

    ${EAGLE3_STATE}/jobs/RUNBOOK/STEP/
        7.claim    symbolic link, made by the program's own process right before its exec:
                   its text is `pid:start:boot:supervisor:start:digest:starter`
        7/spec     the argv, quoted        7/log    what the program writes
        7/exit     its exit status, renamed into place: the truth
        6/         the previous run; older ones are removed, their claims stay

Exactly one start: creating a symbolic link is atomic and fails when the name is taken, and the
claim carries its owner's identity from its first moment, so there is no claim without a
provable owner. Claim N+1 is tried only when run N has provably ended, and claims are never
removed, so a starter that slept through a whole run cannot take an old number.

Identity is boot id, pid and start time (field 22 of /proc/PID/stat, proc(5)), because pids are
used again (jhuckaby/Cronicle#789); a zombie is dead although /proc/PID exists. The supervisor,
a session of its own, waits for the program and writes `exit`. When the supervisor alone is
killed the program goes on and is still found alive; its exit status is then lost.

Script variables begin with `j_`, so that they never change an exported variable of the program.
Nothing here needs more than a POSIX shell, `readlink`, `stat -c` and /proc (dash and busybox
alike). Environment values never reach the disk or an argv: processes inherit them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from deploy.shell import fields, quote
from runbooks.engine.model.probe import Unknown

__all__ = ["JobState", "folder", "job_state", "probe", "spec_digest", "start_script"]

# `process PID` sets `state` and `start` of a process; `state` is empty when there is none.
_PROCESS = r"""process() {
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

# A run has ended when its program and its supervisor are both gone, or `exit` is there.
_PROBE = r"""[ -r /proc/self/stat ] || { echo '/proc is not readable' >&2; exit 1; }
j_said=$(LC_ALL=C ls -d "$j_folder" 2>&1 >/dev/null)
case $j_said in
  *'No such file or directory'*) ;;
  '')
    if ! [ -r "$j_folder" ] || ! [ -x "$j_folder" ]; then
      echo "$j_folder: Permission denied" >&2; exit 1
    fi;;
  *) printf '%s\n' "$j_said" >&2; exit 1;;
esac
j_boot=$(cat /proc/sys/kernel/random/boot_id) || exit 1
[ -n "$j_wanted" ] && j_run=$j_wanted || newest
printf 'now\t%s\nfolder\t%s\nrun\t%s\nboot\t%s\n' "$(date +%s)" "$j_folder" "$j_run" "$j_boot"
if [ "$j_run" -gt 0 ] && j_claim=$(readlink "$j_folder/$j_run.claim"); then
  printf 'claim\t%s\n' "$j_claim"
  printf 'started\t%s\n' "$(stat -c %Y "$j_folder/$j_run.claim")"
  j_rest=${j_claim#*:*:*:}
  process "${j_rest%%:*}"; printf 'supervisor\t%s %s\n' "$j_state" "$j_start"
  process "${j_claim%%:*}"; printf 'program\t%s %s\n' "$j_state" "$j_start"
  # After the processes: a supervisor seen dead has written the status before, or never will.
  j_run=$j_folder/$j_run
  if [ -e "$j_run/exit" ]; then
    printf 'exit\t%s\nended\t%s\n' "$(cat "$j_run/exit")" "$(stat -c %Y "$j_run/exit")"
  fi
  if [ -e "$j_run/spec" ]; then printf 'spec\t%s\n' "$(head -n 1 "$j_run/spec")"; fi
  if [ -e "$j_run/log" ]; then
    printf 'log\t%s %s\n' "$(stat -c '%Y %s' "$j_run/log")" "$j_run/log"
  fi
fi
"""

# $1 folder, $2 run, $3 the supervisor's pid, $4 digest, $5 starter, $6 the argv quoted; the argv.
_PROGRAM = (
    _PROCESS
    + r"""j_folder=$1; j_run=$2; j_supervisor=$3; j_digest=$4; j_starter=$5; j_spec=$6; shift 6
process "$j_supervisor"; j_born=$j_start
process $$
j_boot=$(cat /proc/sys/kernel/random/boot_id) || exit 125
[ -n "$j_start" ] && [ -n "$j_born" ] || exit 125
j_claim=$$:$j_start:$j_boot:$j_supervisor:$j_born:$j_digest:$j_starter
ln -s "$j_claim" "$j_folder/$j_run.claim" 2>/dev/null || exit 125
(umask 077; : >> "$j_folder/$j_run/log"; printf '%s\n' "$j_spec" > "$j_folder/$j_run/spec")
exec >> "$j_folder/$j_run/log" 2>&1
for j_old in "$j_folder"/*/; do
  j_old=${j_old%/}; j_number=${j_old##*/}
  case $j_number in *[!0-9]*) continue;; esac
  [ "$j_number" -lt $((j_run - 1)) ] && rm -rf -- "$j_old"
done
unset j_old j_number
exec "$@"
"""
)

# A shell makes what it runs with `&` deaf to SIGINT for good, and the program would inherit it:
# so the program runs in the foreground here, and the starter uses `setsid --fork` where it can.
# For the same reason signals are caught, not ignored. (busybox's setsid has no --fork: there a
# program that installs no handler of its own does not hear SIGINT; SIGTERM it hears.)
_SUPERVISOR = r"""trap : HUP INT QUIT TERM
j_program=$1; j_folder=$2; j_run=$3; j_failed=$2/$3/.failed-$5
shift 3
sh -c "$j_program" eagle3-job "$j_folder" "$j_run" "$$" "$@"
j_code=$?
if ! j_claim=$(readlink "$j_folder/$j_run.claim"); then : > "$j_failed"; exit 1; fi
j_rest=${j_claim#*:*:*:}
[ "${j_rest%%:*}" = "$$" ] || exit 0
umask 077
printf '%s\n' "$j_code" > "$j_folder/$j_run/.exit" || exit 1
sync "$j_folder/$j_run/.exit" 2>/dev/null
mv -f "$j_folder/$j_run/.exit" "$j_folder/$j_run/exit"
"""

_START = r"""(umask 077; mkdir -p "$j_folder") || exit 1
[ -r /proc/self/stat ] || { echo '/proc is not readable' >&2; exit 1; }
j_boot=$(cat /proc/sys/kernel/random/boot_id) || exit 1
newest
if [ "$j_run" -gt 0 ]; then
  j_claim=$(readlink "$j_folder/$j_run.claim") || exit 1
  if ! [ -e "$j_folder/$j_run/exit" ]; then
    j_rest=${j_claim#*:}; j_born=${j_rest%%:*}
    j_rest=${j_rest#*:}; j_booted=${j_rest%%:*}
    j_rest=${j_rest#*:}; j_supervisor=${j_rest%%:*}
    j_rest=${j_rest#*:}; j_supervised=${j_rest%%:*}
    if [ "$j_booted" = "$j_boot" ]; then
      if lives "${j_claim%%:*}" "$j_born" || lives "$j_supervisor" "$j_supervised"; then
        printf 'run\t%s\nours\tno\n' "$j_run"; exit 0
      fi
    fi
  fi
fi
j_run=$((j_run + 1))
(umask 077; mkdir -p "$j_folder/$j_run") || exit 1
process $$
j_starter=$$-$j_start
set -- sh -c "$j_supervisor_script" eagle3-supervisor "$j_program_script" \
  "$j_folder" "$j_run" "$j_digest" "$j_starter" "$j_spec" "$@"
if setsid --help 2>&1 | grep -q -- --fork; then
  setsid --fork "$@" </dev/null >/dev/null 2>&1 || exit 1
elif command -v setsid >/dev/null 2>&1; then
  setsid "$@" </dev/null >/dev/null 2>&1 &
else
  nohup "$@" </dev/null >/dev/null 2>&1 &
fi
j_waited=0
until j_claim=$(readlink "$j_folder/$j_run.claim"); do
  j_waited=$((j_waited + 1))
  if [ -e "$j_folder/$j_run/.failed-$j_starter" ] || [ "$j_waited" -gt 1200 ]; then
    rm -f -- "$j_folder/$j_run/.failed-$j_starter"
    echo 'the job did not start' >&2; exit 1
  fi
  sleep 0.05 2>/dev/null || sleep 1
done
j_ours=no; [ "${j_claim##*:}" = "$j_starter" ] && j_ours=yes
printf 'run\t%s\nours\t%s\n' "$j_run" "$j_ours"
"""


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as it is now.

    `state` is none (never started), running, ended (with `exit`) or lost (`reason` says how).
    Times are seconds of the host's clock; `supervised` says that an exit status will come.
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


def folder(runbook: str, step: str) -> str:
    """The job's folder as a shell word; EAGLE3_STATE is exported to every script."""
    return f'"${{EAGLE3_STATE:?}}"/jobs/{quote(_segment(runbook))}/{quote(_segment(step))}'


def _segment(name: str) -> str:
    """A safe file name; two names stay two."""
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    if safe == name and name.strip("."):
        return name
    return f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def spec_digest(argv: Sequence[str], cwd: str | None) -> str:
    """What makes two jobs of a step the same: the program, its arguments, its folder."""
    text = json.dumps([list(argv), cwd], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def probe(runbook: str, step: str, run: int | None = None) -> str:
    """A read-only script for `job_state`: the newest run, or the given one."""
    return f"j_folder={folder(runbook, step)}\nj_wanted={run or ''}\n" + _PROCESS + _PROBE


def start_script(runbook: str, step: str, argv: Sequence[str], cwd: str | None) -> str:
    """Start the job unless one of this step lives; prints `run` and whether it is `ours`."""
    words = " ".join(map(quote, argv))
    return (
        f"j_folder={folder(runbook, step)}\n"
        f"j_digest={spec_digest(argv, cwd)}\n"
        f"j_spec={quote(words.replace(chr(10), ' '))}\n"
        f"j_supervisor_script={quote(_SUPERVISOR)}\n"
        f"j_program_script={quote(_PROGRAM)}\n"
        f"set -- {words}\n" + _PROCESS + _START
    )


def job_state(text: str) -> JobState:
    """Judge the answer of `probe`; Unknown when it cannot be read, never "dead"."""
    found = fields(text)
    try:
        run, now, boot = int(found["run"]), float(found["now"]), found["boot"]
        if run == 0:
            return JobState("none", boot=boot, now=now)
        pid, born, booted, _, supervised, digest, _ = found["claim"].split(":")
        program = _alive(found["program"], born)
        watched = _alive(found["supervisor"], supervised)
        log_time, log_size, log = (found.get("log") or "nan 0 ").split(" ", 2)
        code = int(found["exit"]) if "exit" in found else None
        started = float(found["started"])
        ended = float(found["ended"]) if "ended" in found else None
        size = int(log_size)
    except (KeyError, ValueError):
        raise Unknown(f"the job's state cannot be read: {text[-300:]!r}") from None
    state, reason = "running", ""
    if code is not None:
        state = "ended"
    elif booted != boot:
        state, reason = "lost", "the host rebooted"
    elif not program and not watched:
        state, reason = "lost", f"process {pid} is gone and left no exit status"
    return JobState(
        state,
        run=run,
        exit=code,
        pid=int(pid),
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
    )


def _alive(seen: str, born: str) -> bool:
    """`S 12345` of /proc against the recorded start; zombies and younger namesakes are dead."""
    state, _, start = seen.partition(" ")
    return bool(state) and state not in ("Z", "X") and start == born
