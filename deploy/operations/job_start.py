"""Starting a job exactly once, as a systemd unit or in a session of its own.

Exactly one start: creating a symbolic link is atomic and fails when the name is taken, and the
claim carries its owner's identity from its first moment, so there is no claim without a
provable owner. Claim N+1 is tried only when run N has provably ended, and claims are never
removed, so a starter that slept through a whole run cannot take an old number. This holds
however the supervisor was started, and in whichever way two starters did.

The supervisor is the main process of a unit where that is possible (`job_unit`), otherwise of a
session of its own. Environment values reach no disk, no argv and no property of a unit:
processes inherit them, and a unit reads them from a FIFO.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from deploy.operations.job_folder import PROCESS, folder, spec_digest
from deploy.operations.job_unit import UNIT, unit_variables
from deploy.shell import quote
from runbooks.engine.model.host import Context
from runbooks.engine.model.names import file_name

__all__ = ["meta_of", "start_script"]

# $1 folder, $2 run, $3 the supervisor's pid, $4 digest, $5 starter, $6 the argv quoted,
# $7 `UNIT INVOCATION MANAGER` or nothing; the argv. EAGLE3_JOB marks every process of the job,
# also one that leaves its session, for `cancel`.
_PROGRAM = (
    PROCESS
    + r"""j_folder=$1; j_run=$2; j_supervisor=$3; j_digest=$4; j_starter=$5; j_spec=$6; j_unit=$7
shift 7
process "$j_supervisor"; j_born=$j_start
process $$
j_boot=$(cat /proc/sys/kernel/random/boot_id) || exit 125
[ -n "$j_start" ] && [ -n "$j_born" ] || exit 125
EAGLE3_JOB=$$:$j_start:$j_boot
j_claim=$EAGLE3_JOB:$j_supervisor:$j_born:$j_digest:$j_starter
j_place=$j_folder/$j_run
ln -s "$j_claim" "$j_place.claim" 2>/dev/null || exit 125
(
  umask 077
  : >> "$j_place/log"
  [ -z "$j_unit" ] || printf '%s\n' "$j_unit" > "$j_place/unit"
  if { printf '{"unit": "%s", ' "${j_unit%% *}"
       tail -c +2 "$j_place/.meta-$j_starter"; } > "$j_place/.meta" 2>/dev/null; then
    mv -f "$j_place/.meta" "$j_place/meta.json"
  fi
  rm -f "$j_place/.meta" "$j_place/.meta-$j_starter"
  printf '%s\n' "$j_spec" > "$j_place/spec"
)
exec >> "$j_place/log" 2>&1
for j_old in "$j_folder"/*/; do
  j_old=${j_old%/}; j_number=${j_old##*/}
  case $j_number in *[!0-9]*) continue;; esac
  [ "$j_number" -lt $((j_run - 1)) ] && rm -rf -- "$j_old"
done
unset j_old j_number
export EAGLE3_JOB
exec "$@"
"""
)

# A shell makes what it runs with `&` deaf to SIGINT for good, and the program would inherit it:
# so the program runs in the foreground here, and the starter uses `setsid --fork` where it can.
# For the same reason signals are caught, not ignored. (busybox's setsid has no --fork: there a
# program that installs no handler of its own does not hear SIGINT; SIGTERM it hears.)
#
# `killings FILE` sets `j_kills` to the number of processes that the out-of-memory killer has
# killed by the counter of a cgroup (v2, v1) or of the host, and is silent where there is none.
_SUPERVISOR = r"""trap : HUP INT QUIT TERM
j_program=$1; j_folder=$2; j_run=$3; j_starter=$5; j_unit=$7
shift 3
killings() { j_kills=$(sed -n 's/^oom_kill //p' "$1" 2>/dev/null); [ -n "$j_kills" ]; }
group() {
  [ -z "$j_group" ] && killings "$1" || return 0
  j_group=$1; j_scope=$2; j_before=$j_kills
}
j_group=; j_own=cgroup; [ -z "$j_unit" ] || j_own=unit
while IFS=: read -r j_number j_names j_path; do
  case $j_names in
    '') group "/sys/fs/cgroup$j_path/memory.events" "$j_own"
      group "/sys/fs/cgroup/unified$j_path/memory.events" "$j_own";;
    memory|memory,*|*,memory|*,memory,*)
      # Of version 1: systemd may not have made one of its own for the unit.
      group "/sys/fs/cgroup/memory$j_path/memory.oom_control" cgroup;;
  esac
done < /proc/self/cgroup
killings /proc/vmstat && j_host=$j_kills || j_host=
sh -c "$j_program" eagle3-job "$j_folder" "$j_run" "$$" "$@"
j_code=$?
j_place=$j_folder/$j_run; j_failed=$j_place/.failed-$j_starter
if ! j_claim=$(readlink "$j_place.claim"); then : > "$j_failed"; exit 1; fi
j_rest=${j_claim#*:*:*:}
if [ "${j_rest%%:*}" != "$$" ] || [ "${j_claim##*:}" != "$j_starter" ]; then
  rm -f -- "$j_place/.meta-$j_starter"; exit 0
fi
umask 077
j_rise=0
[ -n "$j_group" ] && killings "$j_group" && j_rise=$((j_kills - j_before))
if [ "$j_rise" -le 0 ] && [ -n "$j_host" ] && killings /proc/vmstat; then
  j_scope=host; j_rise=$((j_kills - j_host))
fi
[ "$j_rise" -le 0 ] || printf '%s %s\n' "$j_scope" "$j_rise" > "$j_place/killed"
printf '%s\n' "$j_code" > "$j_place/.exit" || exit 1
sync "$j_place/.exit" 2>/dev/null
mv -f "$j_place/.exit" "$j_place/exit"
exit "$j_code"
"""

_START = r"""session() {
  j_unit=
  eval "set -- $j_words"
  if setsid --help 2>&1 | grep -q -- --fork; then
    setsid --fork "$@" </dev/null >/dev/null 2>&1 || exit 1
  elif command -v setsid >/dev/null 2>&1; then
    setsid "$@" </dev/null >/dev/null 2>&1 &
  else
    nohup "$@" </dev/null >/dev/null 2>&1 &
  fi
}
(umask 077; mkdir -p "$j_folder") || exit 1
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
j_place=$j_folder/$j_run
process $$
j_starter=$$-$j_start
(umask 077; mkdir -p "$j_place" && printf '%s\n' "$j_meta" > "$j_place/.meta-$j_starter") || exit 1
unset EAGLE3_JOB
j_note=; j_writer=; j_pipe=; j_unit=
if usable && unit; then :; else session; fi
j_waited=0
until j_claim=$(readlink "$j_place.claim"); do
  j_waited=$((j_waited + 1))
  if [ -n "$j_unit" ] && gone; then
    j_note="the unit $j_unit ended before the job began"
    session
  fi
  if [ -e "$j_place/.failed-$j_starter" ] || [ "$j_waited" -gt 1200 ]; then
    rm -f -- "$j_place/.failed-$j_starter" "$j_place/.meta-$j_starter" ${j_pipe:+"$j_pipe"}
    [ -z "$j_writer" ] || kill "$j_writer" 2>/dev/null
    echo "the job did not start${j_note:+ ($j_note)}" >&2; exit 1
  fi
  sleep 0.05 2>/dev/null || sleep 1
done
if [ -n "$j_writer" ]; then kill "$j_writer" 2>/dev/null; rm -f -- "$j_pipe"; fi
j_ours=yes
[ "${j_claim##*:}" = "$j_starter" ] || { j_ours=no; rm -f -- "$j_place/.meta-$j_starter"; }
printf 'run\t%s\nours\t%s\n' "$j_run" "$j_ours"
[ "$j_ours" = no ] || printf 'unit\t%s\nnote\t%s\n' "$j_unit" "$j_note"
"""


def meta_of(
    context: Context,
    argv: Sequence[str],
    cwd: str | None,
    *,
    resumable: bool = False,
    progress: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What another controller must know of a job: who started what, and where to look.

    `progress` is as `job_progress.resolved` gives it. No secret stands in it: an argv has none.
    """
    origin = context.origin
    return {
        "runbook": context.runbook,
        "step": context.step,
        "run": origin.run if origin else None,
        "operator": origin.operator if origin else None,
        "controller": origin.controller if origin else None,
        "argv": list(argv),
        "cwd": cwd,
        "resumable": resumable,
        "progress": dict(progress) if progress else None,
    }


def start_script(
    runbook: str,
    step: str,
    argv: Sequence[str],
    cwd: str | None,
    meta: Mapping[str, Any] | None = None,
) -> str:
    """Start the job unless one of this step lives.

    Prints `run` and whether it is `ours`; of ours also its `unit` (empty in a session of its
    own) and a `note` why it got none where it should have.
    """
    spec = " ".join(map(quote, argv))
    words = (
        f"sh -c {quote(_SUPERVISOR)} eagle3-supervisor"
        f' {quote(_PROGRAM)} "$j_folder" "$j_run" {spec_digest(argv, cwd)} "$j_starter"'
        f' {quote(spec.replace(chr(10), " "))} "$j_unit" {spec}'
    )
    if meta is None:
        meta = {"runbook": runbook, "step": step, "argv": list(argv), "cwd": cwd}
    return (
        f"j_folder={folder(runbook, step)}\n"
        f"j_meta={quote(json.dumps(meta))}\n"
        f"j_words={quote(words)}\n"
        + unit_variables(file_name(runbook), file_name(step))
        + PROCESS
        + UNIT
        + _START
    )
