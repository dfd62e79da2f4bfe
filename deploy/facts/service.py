"""systemd units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from deploy.operations.arguments import Sha256
from deploy.shell import begin, known, one_line, unit_name, untold
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Asking, Shell, Unknown
from runbooks.engine.model.values import ABSENT, Boolean, Choice, Integer, Text

STATES = (
    "running",
    "exited",
    "active",
    "starting",
    "restarting",
    "stopping",
    "failed",
    "inactive",
    "masked",
    "absent",
)

_PROPERTIES = (
    "LoadState,ActiveState,SubState,UnitFileState,Result,NRestarts,NeedDaemonReload,"
    "FragmentPath,DropInPaths"
)
# Without systemd nothing is a unit; a bus that does not answer is another matter.
_SHOW = r"""if ! command -v systemctl >/dev/null 2>&1 || ! [ -d /run/systemd/system ]; then
  printf 'is\tabsent\n'; exit 0
fi
shown=$(systemctl $user show --no-pager --property="$properties" -- "$unit" 2>&1) ||
  unknown "$(printf '%s\n' "$shown" | tail -n 1)"
printf '%s\n' "$shown" | sed 's/=/	/'
fragment=$(printf '%s\n' "$shown" | sed -n 's/^FragmentPath=//p')
dropins=$(printf '%s\n' "$shown" | sed -n 's/^DropInPaths=//p')
if [ -n "$fragment" ]; then
  if content=$(cat -- "$fragment" $dropins 2>&1); then
    digest=$(cat -- "$fragment" $dropins | sha256sum); printf 'sha256\t%s\n' "${digest%% *}"
  else printf 'sha256_unknown\t%s\n' "$(line "${content##*: }")"; fi
fi
"""


class ServiceFact(Fact):
    """`service: {unit: sglang, state: running, enabled: true}`.

    `state` is durable: a unit that runs stays running unless somebody stops it. One that
    crashed makes its step run again, which is what the step is for.
    """

    name = "service"
    about = "A systemd unit: its state, and whether it starts with the host."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "unit": Argument(Text(), "The unit; `sglang` means sglang.service.", required=True),
        "user": Argument(
            Boolean(), "A unit of the user's own systemd, not of the system's.", default=False
        ),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "state": Field(
            Choice(STATES),
            "What it does: `exited` is a oneshot that ended well, `active` a unit without a "
            "process (socket, mount, timer), `absent` a unit that is not there.",
        ),
        "enabled": Field(Boolean(), "Whether it starts with the host."),
        "loaded": Field(Boolean(), "Whether its file was found and could be read."),
        "stale": Field(Boolean(), "Whether its file changed since systemd read it."),
        "unit_sha256": Field(Sha256(), "The digest of its file, and then its drop-ins, in order."),
        "result": Field(
            Text(), "How its last run ended: success, exit-code, signal, timeout …", volatile=True
        ),
        "restarts": Field(Integer(0), "How often systemd restarted it by itself.", volatile=True),
    }
    value = "state"

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Ask systemctl show: systemd.unit(5), org.freedesktop.systemd1(5)."""
        user = "--user" if args.get("user") else ""
        script = begin(unit=unit_name(args["unit"]), user=user, properties=_PROPERTIES) + _SHOW
        found = known((yield Shell(one_line(f"service {args['unit']}"), script)))
        load = found.get("LoadState")
        if found.get("is") == "absent" or load == "not-found":
            return dict.fromkeys(self.fields, ABSENT) | {"state": "absent"}
        if not load or "ActiveState" not in found:
            raise Unknown("systemctl gave no state")
        return {
            "state": _state(load, found["ActiveState"], found.get("SubState", "")),
            "enabled": _enabled(found.get("UnitFileState", "")),
            "loaded": load == "loaded",
            "stale": found.get("NeedDaemonReload") == "yes",
            "unit_sha256": untold(found, "sha256") or found.get("sha256", ABSENT),
            "result": found.get("Result") or ABSENT,
            "restarts": int(count) if (count := found.get("NRestarts", "")).isdigit() else ABSENT,
        }


def _state(load: str, active: str, sub: str) -> Any:
    """Active, sub and load state as one word; `exited` is active, and runs nothing."""
    match active, sub:
        case (("active" | "reloading" | "refreshing"), ("running" | "exited")):
            return sub
        case (("active" | "reloading" | "refreshing"), _):
            return "active" if active == "active" else "running"
        case "activating", ("auto-restart" | "auto-restart-queued"):
            return "restarting"
        case "activating", _:
            return "starting"
        case "deactivating", _:
            return "stopping"
        case "failed", _:
            return "failed"
        case "inactive", _:
            return "masked" if load == "masked" else "inactive"
    return Unknown(f"systemd says {active} ({sub})")


def _enabled(state: str) -> Any:
    """Whether it starts with the host; `enabled-runtime` does not outlive a reboot."""
    if state in ("enabled", "alias"):
        return True
    if state == "bad":
        return Unknown("systemd says that its unit file is bad")
    return False if state else ABSENT
