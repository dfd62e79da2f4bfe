"""Starting a job's supervisor as a transient unit of systemd.

Where systemd runs (and we are root, or our own manager lingers) the supervisor is the main
process of a unit: it survives the end of the session (logind's KillUserProcesses), has a cgroup
of its own, and whatever its program left behind ends with it. Where systemd-run fails, the job
gets a session of its own, and the outcome says so.

Every user may read a unit's properties and any argv, so the environment goes to the unit through
a FIFO of mode 0600 below /run, never a disk: the unit's shell reads it as its script, once. It
is one compound command, so that a script that did not arrive whole runs nothing. The FIFO is
removed before the starter ends.

Properties: a job has no time limit; OOMPolicy=continue lets the program decide what the loss of
a child means, as in a session (job_start counts such kills); a unit that failed is kept, so that
its Result can be read, until the next start of the step resets it.
"""

from __future__ import annotations

import re

from deploy.shell import quote

__all__ = ["UNIT", "unit_variables"]

# systemd is the running init where this exists: sd_booted(3).
BOOTED = "/run/systemd/system"
INIT = "/proc/1"
# Folders that no disk is behind: of root, and of a user with a manager of its own.
RUNTIME = "/run"

# Starts the supervisor as a unit: `unit` succeeds, or sets `j_note` to the reason and fails.
# The name is plain where nobody else has it (another state folder, a starter beside us).
UNIT = r"""usable() {
  [ -d "$j_booted_by" ] && command -v systemd-run >/dev/null 2>&1 || return 1
  if [ "$(id -u)" = 0 ]; then
    j_manager=system; j_user=
    # In another namespace of mounts the unit would see other files under the same names.
    j_theirs=$(readlink "$j_init/ns/mnt") && [ "$j_theirs" = "$(readlink /proc/self/ns/mnt)" ]
  else
    j_manager=user; j_user=--user; j_runtime=$j_runtime/user/$(id -u)
    [ -e "/var/lib/systemd/linger/$(id -un)" ] && [ -S "$j_runtime/systemd/private" ] || return 1
    XDG_RUNTIME_DIR=$j_runtime; export XDG_RUNTIME_DIR
  fi
}
quoted() { printf "'%s'" "$(printf '%s\n' "$1" | sed "s/'/'\\\\''/g")"; }
# A unit begins with the limits of its manager; these are those of the session.
limits() {
  while read -r j_line; do
    case $j_line in
      'Max open files '*) j_name=NOFILE; j_line=${j_line#Max open files};;
      'Max locked memory '*) j_name=MEMLOCK; j_line=${j_line#Max locked memory};;
      'Max stack size '*) j_name=STACK; j_line=${j_line#Max stack size};;
      'Max core file size '*) j_name=CORE; j_line=${j_line#Max core file size};;
      'Max processes '*) j_name=NPROC; j_line=${j_line#Max processes};;
      *) continue;;
    esac
    set -- $j_line
    printf ' --property=Limit%s=%s:%s' "$j_name" "$1" "$2" | sed 's/unlimited/infinity/g'
  done < /proc/self/limits
}
script() {
  printf '%s\n' '{' 'j_invocation=${INVOCATION_ID:--}'
  sh -c 'export -p'
  printf '%s\n' 'INVOCATION_ID=$j_invocation; export INVOCATION_ID'
  printf 'cd -- %s || exit 125\numask %s\n' "$(quoted "$(pwd)")" "$(umask)"
  printf 'j_folder=%s; j_run=%s; j_starter=%s\n' "$(quoted "$j_folder")" "$j_run" "$j_starter"
  printf 'j_unit="%s $j_invocation %s"\n' "$j_unit" "$j_manager"
  printf 'exec %s\n}\n' "$j_words"
}
unit() {
  for j_old in "$j_folder"/*/unit; do
    [ ! -e "$j_old" ] || { read -r j_unit j_rest < "$j_old"
      systemctl $j_user reset-failed "$j_unit" >/dev/null 2>&1; }
  done
  j_pipe=$j_runtime/eagle3-job-$j_starter
  rm -f -- "$j_pipe"
  (umask 077; mkfifo "$j_pipe") 2>/dev/null || { j_note="no FIFO can be made in $j_runtime"; return 1; }
  for j_unit in "$j_name_of_unit-$j_run" "$j_name_of_unit-$j_run-$j_starter"; do
    j_unit=$j_unit.service
    # The whole script is made before the unit may read any of it.
    j_script=$(script)
    (printf '%s\n' "$j_script" > "$j_pipe") </dev/null >/dev/null 2>&1 &
    j_writer=$!
    if j_said=$(systemd-run $j_user --quiet --no-ask-password --unit="$j_unit" \
        --description="eagle3 job $j_name_of_unit" --property=Type=exec \
        --property=KillMode=control-group --property=OOMPolicy=continue \
        --property=TasksMax=infinity --property=IgnoreSIGPIPE=no \
        --property=StandardOutput=null --property=StandardError=null $(limits) \
        "$(command -v sh)" "$j_pipe" </dev/null 2>&1); then
      return 0
    fi
    kill "$j_writer" 2>/dev/null; wait "$j_writer" 2>/dev/null
    case $j_said in *'already '*) ;; *) break;; esac
  done
  rm -f -- "$j_pipe"
  j_note="systemd-run: $(printf '%s' "$j_said" | tr '\n\t' '  ')"
  return 1
}
# Whether the unit is over and has claimed nothing; looked at once a second.
gone() {
  [ $((j_waited % 20)) = 0 ] || return 1
  case $(systemctl $j_user show -p ActiveState "$j_unit" 2>/dev/null) in
    ActiveState=failed|ActiveState=inactive) ! [ -L "$j_folder/$j_run.claim" ];;
    *) return 1;;
  esac
}
"""


def unit_variables(runbook: str, step: str) -> str:
    """What `UNIT` needs beside the variables of the start, whose file names these are."""
    return (
        f"j_booted_by={quote(BOOTED)}\nj_init={quote(INIT)}\nj_runtime={quote(RUNTIME)}\n"
        f"j_name_of_unit=eagle3-{_part(runbook)}-{_part(step)}\n"
    )


def _part(name: str) -> str:
    """A part of a unit's name that needs no escapes; the whole has at most 255 bytes."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[-80:]
