"""Processes by name, and the environment that a running process was started with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from deploy.proc import PROCESSES, processes
from deploy.shell import answers, begin, known, one_line, unit_name
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Asking, Shell, Unknown
from runbooks.engine.model.values import ABSENT, Boolean, Integer, Text


class ProcessFact(Fact):
    """`process: {pattern: "sglang::scheduler", eq: 0}`."""

    name = "process"
    about = "Processes of the host, by their name or a pattern of their command line."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "name": Argument(Text(), "The program's name, exactly; write it or `pattern`."),
        "pattern": Argument(Text(), "A regular expression found anywhere in the command line."),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "count": Field(Integer(0), "How many run; zombies do not.", volatile=True),
        "zombies": Field(Integer(0), "How many have ended and were not reaped.", volatile=True),
        "orphans": Field(Integer(0), "How many run with process 1 as parent.", volatile=True),
    }
    value = "count"

    def check_arguments(self, args: Mapping[str, Any]) -> str | None:
        """A name or a pattern, and a pattern that is one."""
        pattern = args.get("pattern")
        if args.get("name") is None and pattern is None:
            return "process says neither name nor pattern; write one of them"
        try:
            re.compile(pattern or "")
        except (re.error, RecursionError, OverflowError) as error:
            return f"{pattern!r} is not a regular expression: {error}"
        return None

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Go through /proc. Where both are written, both must fit."""
        if problem := self.check_arguments(args):
            raise Unknown(problem)
        name, pattern = args.get("name"), args.get("pattern")
        expression = re.compile(pattern or "")
        label = one_line(f"process {name or pattern}")
        found = [
            one
            for one in processes((yield Shell(label, begin() + PROCESSES)))
            if (name is None or one.named(name)) and expression.search(one.command)
        ]
        living = [one for one in found if not one.dead]
        return {
            "count": len(living),
            "zombies": len(found) - len(living),
            "orphans": sum(one.parent == 1 for one in living),
        }


_UNIT = r"""if ! command -v systemctl >/dev/null 2>&1 || ! [ -d /run/systemd/system ]; then
  printf 'is\tabsent\n'; exit 0
fi
pid=$(systemctl $user show --property=MainPID -- "$unit" 2>&1) || unknown "$pid"
pid=${pid#MainPID=}
case $pid in ''|*[!0-9]*) unknown "systemctl gave no MainPID: $pid";; esac
if [ "$pid" = 0 ]; then printf 'is\tabsent\n'; exit 0; fi
"""

# Only the wanted variable leaves the host. The last of a name would win in the program's own
# eyes too, but environ(7) forbids two; `-x` and `0` guard against a process that overwrote it.
_ENVIRON = r"""for one in $pid; do
  if ! shown=$(tr '\n\0' '\001\n' < "/proc/$one/environ" 2>&1); then
    [ -d "/proc/$one" ] || continue
    printf 'denied\t%s\n' "$one"; continue
  fi
  case $shown in *=*) ;; *) printf 'denied\t%s\n' "$one"; continue;; esac
  found=$(printf '%s\n' "$shown" | grep "^$name=" | head -n 1)
  if [ -n "$found" ]; then printf 'value\t%s\n' "${found#*=}"; else printf 'unset\t%s\n' "$one"; fi
done
"""


class ProcessEnv(Fact):
    """`process_env: {unit: sglang, name: SGLANG_MODE, eq: extract}`."""

    name = "process_env"
    about = "An environment variable of a running process, as it was started."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "unit": Argument(Text(), "The systemd unit whose main process is read; or write `pid_of`."),
        "pid_of": Argument(Text(), "The program's name, exactly, for processes without a unit."),
        "name": Argument(Text(r"[A-Za-z_][A-Za-z0-9_]*"), "The variable.", required=True),
        "user": Argument(
            Boolean(), "A unit of the user's own systemd, not of the system's.", default=False
        ),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "value": Field(Text(empty=True), "Its text; absent where it is not set or nothing runs."),
    }
    value = "value"

    def check_arguments(self, args: Mapping[str, Any]) -> str | None:
        """A unit or a program's name."""
        given = [word for word in ("unit", "pid_of") if args.get(word) is not None]
        if len(given) == 1:
            return None
        said = "both unit and pid_of" if given else "neither unit nor pid_of"
        return f"process_env says {said}; write one of them"

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Find the processes, then read /proc/PID/environ: proc(5)."""
        if problem := self.check_arguments(args):
            raise Unknown(problem)
        unit, program, name = args.get("unit"), args.get("pid_of"), args["name"]
        label = one_line(f"process_env {unit or program} {name}")
        if program is None:
            user = "--user" if args.get("user") else ""
            script = begin(unit=unit_name(str(unit)), user=user, name=name) + _UNIT + _ENVIRON
        else:
            listed = processes((yield Shell(label, begin() + PROCESSES)))
            pids = [str(one.pid) for one in listed if one.named(program) and not one.dead]
            if not pids:
                return {"value": ABSENT}
            script = begin(pid=" ".join(pids), name=name) + _ENVIRON
        output = yield Shell(f"{label} environ", script)
        found = known(output)
        if found.get("is") == "absent":
            return {"value": ABSENT}
        if "denied" in found:
            raise Unknown(f"the environment of process {found['denied']} cannot be read")
        values = set(answers(output.text, "value"))
        if len(values) > 1 or (values and "unset" in found):
            raise Unknown("its processes differ in this variable")
        return {"value": values.pop().replace("\x01", "\n") if values else ABSENT}
