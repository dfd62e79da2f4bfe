"""The processes of a job, whatever they did since: for looking at them, and for ending them.

A process belongs to a job when it is its program or its supervisor (by pid and start time), is
in their session, is a descendant of one that belongs to it, carries its mark EAGLE3_JOB in its
first environment (a daemon that has left the session), or is in its unit's cgroup while the
unit is the same invocation. A session counts while its number is provably the job's: a pid is
not used again while a session has it, so where the leader is gone it is vouched for by a
program that still lives in it; other orphans are found by their mark.

A process is signalled only when its start time is read again right before, and is the same.
"""

from __future__ import annotations

from deploy.operations.job_folder import FORBIDDEN, PROCESS, folder
from deploy.shell import quote

__all__ = ["kill_script", "left_script", "term_script"]

# `members` sets `j_found` to ` PID:START:STATE …` of the living processes of run `j_run`, the
# supervisor last (it has to write the exit status). It forks little: hosts have many processes.
_MEMBERS = r"""claimed() {
  j_place=$j_folder/$j_run
  j_claim=$(readlink "$j_place.claim") || { echo 'the job has no claim' >&2; exit 1; }
  IFS=: read -r j_pid j_born j_booted j_supervisor j_supervised j_rest <<END
$j_claim
END
  j_unit=; j_invocation=; j_manager=
  [ ! -e "$j_place/unit" ] || read -r j_unit j_invocation j_manager < "$j_place/unit"
  j_user=
  if [ "$j_manager" = user ]; then
    j_user=--user; XDG_RUNTIME_DIR=/run/user/$(id -u); export XDG_RUNTIME_DIR
  fi
}
# One grep for all; one that sees nothing behind a NUL (of musl) needs each text translated.
# Not -F: with it busybox does not look behind a NUL. Nothing in the mark is special.
marked() {
  if printf 'a\000b\n' | grep -q b; then
    grep -l "$1" /proc/[0-9]*/environ 2>/dev/null
    return 0
  fi
  for j_one in /proc/[0-9]*/environ; do
    { tr '\000' '\n' < "$j_one" | grep -qxF "$1"; } 2>/dev/null && printf '%s\n' "$j_one"
  done
  return 0
}
same_unit() {
  [ -n "$j_unit" ] && [ -n "$j_invocation" ] || return 1
  [ "$(systemctl $j_user show -p InvocationID "$j_unit" 2>/dev/null)" = \
    "InvocationID=$j_invocation" ]
}
members() {
  j_found=; j_last=; j_set=' '; j_list=; j_session=
  [ "$j_booted" = "$j_boot" ] || return 0
  if lives "$j_supervisor" "$j_supervised"; then
    j_session=$j_supervisor; j_last=" $j_supervisor:$j_supervised:$j_state"
  elif lives "$j_pid" "$j_born"; then
    set -- ${j_line##*) }
    [ "$4" != "$j_supervisor" ] || j_session=$j_supervisor
  fi
  j_marked=" $(marked "EAGLE3_JOB=$j_pid:$j_born:$j_booted" | tr '\n' ' ')"
  j_grouped=' '
  ! same_unit || j_grouped=" $(grep -lE ":/(.*/)?$j_unit(/|\$)" /proc/[0-9]*/cgroup 2>/dev/null |
    tr '\n' ' ')"
  for j_one in /proc/[0-9]*; do
    { IFS= read -r j_line < "$j_one/stat"; } 2>/dev/null || continue
    case $j_line in *') '*) ;; *) j_line=$(tr '\n' ' ' 2>/dev/null < "$j_one/stat") || continue;; esac
    set -- ${j_line##*) }
    j_number=${j_one#/proc/}
    case $1 in ''|Z|X) continue;; esac
    [ "$j_number" != "$$" ] || continue
    j_mine=
    case $j_number:${20} in "$j_pid:$j_born"|"$j_supervisor:$j_supervised") j_mine=yes;; esac
    case $4 in "$j_session") j_mine=yes;; esac
    case $j_marked in *" $j_one/environ "*) j_mine=yes;; esac
    case $j_grouped in *" $j_one/cgroup "*) j_mine=yes;; esac
    if [ -n "$j_mine" ]; then
      j_set="$j_set$j_number "; j_found="$j_found $j_number:${20}:$1"
    else
      j_list="$j_list $j_number:$2:${20}:$1"
    fi
  done
  j_grown=yes
  while [ -n "$j_grown" ]; do
    j_grown=; j_others=
    for j_one in $j_list; do
      j_rest=${j_one#*:}; j_number=${j_one%%:*}
      case $j_set in
        *" ${j_rest%%:*} "*)
          j_set="$j_set$j_number "; j_found="$j_found $j_number:${j_rest#*:}"; j_grown=yes;;
        *) j_others="$j_others $j_one";;
      esac
    done
    j_list=$j_others
  done
  j_others=
  for j_one in $j_found; do
    case $j_one in "$j_supervisor:$j_supervised":*) ;; *) j_others="$j_others $j_one";; esac
  done
  j_found=$j_others
}
"""

# `signal NAME` signals every process of `j_found`, and counts those that were.
_SIGNAL = r"""signal() {
  for j_one in $j_found; do
    j_number=${j_one%%:*}; j_rest=${j_one#*:}
    lives "$j_number" "${j_rest%%:*}" || continue
    if j_said=$(kill -s "$1" "$j_number" 2>&1); then j_sent=$((j_sent + 1))
    elif lives "$j_number" "${j_rest%%:*}"; then printf 'refused\t%s\n' "$j_number: $j_said"
    fi
  done
}
"""

_TERM = r"""members
if [ -e "$j_place/exit" ] || [ -z "$j_found$j_last" ]; then
  echo 'no job lives' >&2; exit 3
fi
if ! [ -e "$j_place/cancelled" ]; then
  (umask 077; printf '%s %s\n' "$(date +%s)" "$j_who" > "$j_place/.cancelled-$$") &&
    mv -f "$j_place/.cancelled-$$" "$j_place/cancelled" || exit 1
fi
j_sent=0
signal TERM
printf 'sent\t%s\n' "$j_sent"
"""

# Children that were made meanwhile are found by looking again. The supervisor outlives the rest
# by some seconds, for the exit status; then it goes too, and systemd clears the cgroup.
_KILL = r"""[ "$j_booted" = "$j_boot" ] || { printf 'sent\t0\n'; exit 0; }
j_sent=0; j_tries=0
while members; [ -n "$j_found" ] && [ "$j_tries" -lt 20 ]; do
  signal KILL
  j_tries=$((j_tries + 1)); sleep 0.1 2>/dev/null || sleep 1
done
j_tries=0
until [ -e "$j_place/exit" ] || ! lives "$j_supervisor" "$j_supervised" || [ "$j_tries" -ge 100 ]; do
  j_tries=$((j_tries + 1)); sleep 0.1 2>/dev/null || sleep 1
done
members
j_found=$j_found$j_last
signal KILL
if same_unit; then systemctl $j_user kill --signal=KILL "$j_unit" >/dev/null 2>&1; fi
printf 'sent\t%s\n' "$j_sent"
"""


def _begin(runbook: str, step: str, run: int) -> str:
    return (
        f"j_folder={folder(runbook, step)}\nj_run={run:d}\n"
        + PROCESS
        + FORBIDDEN
        + _MEMBERS
        + "claimed\n"
    )


def left_script(runbook: str, step: str, run: int) -> str:
    """Read-only: prints `left`, the job's living processes as ` PID:START:STATE …`."""
    return _begin(runbook, step, run) + "members\nprintf 'left\\t%s\\n' \"$j_found$j_last\"\n"


def term_script(runbook: str, step: str, run: int, who: str) -> str:
    """Record who cancels, and ask every process but the supervisor to end; prints `sent`.

    Exits with 3 where nothing of the job lives. `refused` lines are processes of others.
    """
    return _begin(runbook, step, run) + f"j_who={quote(who)}\n" + _SIGNAL + _TERM


def kill_script(runbook: str, step: str, run: int) -> str:
    """End what is left, the supervisor last; prints `sent`."""
    return _begin(runbook, step, run) + _SIGNAL + _KILL
