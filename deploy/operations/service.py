"""Start, stop and configure a systemd unit."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping
from typing import Any, ClassVar

from deploy.operations.common import holds_secret, succeeded, text_of
from deploy.shell import assign, fields, unit_name
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import (
    Acting,
    Command,
    Delegate,
    Operation,
    OperationFailed,
    Preview,
    Previewing,
    Put,
)
from runbooks.engine.model.probe import Output, Shell, Unknown
from runbooks.engine.model.values import Boolean, Choice, MapOf, Text

_ACTIVE = ("active", "activating", "reloading", "refreshing")
_PROPERTIES = "LoadState,ActiveState,SubState,UnitFileState,MainPID,InvocationID"
_LOOK = r"""export LC_ALL=C
if ! command -v systemctl >/dev/null 2>&1 || ! [ -d /run/systemd/system ]; then
  printf 'systemd\tabsent\n'; exit 0
fi
shown=$(systemctl $user show "$unit" --no-pager --property="$properties" 2>&1)
code=$?
if [ "$code" != 0 ]; then printf '%s\n' "$shown" >&2; exit "$code"; fi
printf 'systemd\tpresent\n'
printf '%s\n' "$shown" | sed 's/=/	/'
dropin=$folder/$unit.d/runbook-env.conf
[ -z "$user" ] || dropin=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user/$unit.d/runbook-env.conf
printf 'dropin\t%s\n' "$dropin"
said=$(ls -ld -- "$dropin" 2>&1 >/dev/null)
case $said in
  *'No such file or directory'*) printf 'digest\tabsent\n';;
  *) digest=$(sha256sum < "$dropin") || exit 1; printf 'digest\t%s\n' "${digest%% *}";;
esac
"""


class Service(Operation):
    """`service: {unit: sglang, state: restarted, env: {SGLANG_MODE: extract}}`.

    Starting and stopping are pyinfra's `systemd.service`. The looks are ours: its fact
    SystemdStatus counts `exited` as active in pyinfra 3.10, and a result is
    read back, so that a unit that died at once is not a success. A changed environment
    restarts a running unit: a configuration without its restart is a half-applied change
    (ansible/ansible#10498).
    """

    name = "service"
    about = "Bring a systemd unit into a state, with environment variables of the runbook."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "unit": Argument(
            Text(pattern=r"[A-Za-z0-9:_.@-]+", example="sglang"),
            "The unit; `sglang` means sglang.service.",
            required=True,
        ),
        "state": Argument(
            Choice(("running", "stopped", "restarted", "reloaded")), "The state to bring it into."
        ),
        "enabled": Argument(Boolean(), "Whether it starts with the host; unchanged by default."),
        "env": Argument(
            MapOf(Text(empty=True)), "Environment variables, written to a drop-in file of the unit."
        ),
        "user": Argument(
            Boolean(), "A unit of the user's own systemd, not of the system's.", default=False
        ),
    }

    def preview(self, args: Mapping[str, Any], context: Context) -> Previewing:
        """The state and what would change; values that replace others are shown, old ones never."""
        found = yield from self._look(args)
        if found["systemd"] == "absent":
            raise OperationFailed("no systemd runs on this host")
        self._refuse(args, found)
        changes = []
        state = args.get("state")
        env_differs = self._env_differs(args, found)
        running = found.get("ActiveState") in _ACTIVE
        now = f"{found.get('ActiveState')} ({found.get('SubState')})"
        if state in ("restarted", "reloaded"):
            changes.append(f"{now} → {state}" if running else f"{now} → running")
        elif state and running != (state == "running"):
            changes.append(f"{now} → {state}")
        elif state == "running" and env_differs:
            changes.append(f"{now} → restarted, for its environment")
        enabled = args.get("enabled")
        if enabled is not None and (found.get("UnitFileState") == "enabled") != enabled:
            word = "enabled" if enabled else "disabled"
            changes.append(f"{found.get('UnitFileState') or 'unknown'} → {word}")
        diff = ""
        if env_differs:
            changes.append("environment differs")
            diff = f"--- before: {found['dropin']}\n+++ after:\n" + "".join(
                f"+{name}={'•••' if holds_secret(value) else value}\n"
                for name, value in (args["env"] or {}).items()
            )
        unit = unit_name(args["unit"])
        return Preview(summary=f"{unit}: {', '.join(changes) or 'no change'}", diff=diff)

    def act(self, args: Mapping[str, Any], context: Context) -> Acting:
        """Write the drop-in, reload systemd, change the state, read it back."""
        from pyinfra.operations import systemd  # slow to import, and only acting needs it

        unit, user = unit_name(args["unit"]), bool(args.get("user"))
        before = yield from self._look(args)
        if before["systemd"] == "absent":
            raise OperationFailed("no systemd runs on this host")
        self._refuse(args, before)
        changed = self._env_differs(args, before)
        if changed:
            yield from self._write_env(args, before["dropin"])
            reload = Delegate(systemd.daemon_reload, {"user_mode": user}, f"service {unit} reload")
            succeeded((yield reload), "systemctl daemon-reload")
        state = args.get("state")
        restart = state == "restarted" or (state == "running" and changed)
        wanted: dict[str, Any] = {
            "service": unit,
            "running": None if state is None else state != "stopped",
            "restarted": restart,
            "reloaded": state == "reloaded",
            "enabled": args.get("enabled"),
            "user_mode": user,
        }
        succeeded((yield Delegate(systemd.service, wanted, f"service {unit}")), unit)
        after = yield from self._look(args)
        return self._outcome(unit, state, restart, before, after)

    @staticmethod
    def _outcome(
        unit: str,
        state: str | None,
        restart: bool,
        before: Mapping[str, str],
        after: Mapping[str, str],
    ) -> str:
        active = after.get("ActiveState", "")
        now = f"{unit} is {active} ({after.get('SubState')})"
        if state is not None and (active in _ACTIVE) != (state != "stopped"):
            raise OperationFailed(f"{now}, want {state}; see journalctl -u {unit}")
        same = before.get("InvocationID") == after.get("InvocationID")
        if restart and before.get("ActiveState") in _ACTIVE and same:
            raise OperationFailed(f"{now}, but it was not restarted (the same invocation)")
        return now

    @staticmethod
    def _look(args: Mapping[str, Any]) -> Generator[Shell, Output, dict[str, str]]:
        unit = unit_name(args["unit"])
        script = (
            assign("unit", unit)
            + assign("user", "--user" if args.get("user") else "")
            + assign("properties", _PROPERTIES)
            + assign("folder", "/etc/systemd/system")
            + _LOOK
        )
        text = text_of((yield Shell(f"service {unit}", script)), unit)
        found = fields(text)
        if found.get("systemd") not in ("absent", "present"):
            raise Unknown(f"{unit}: unreadable answer {text!r}")
        return found

    @staticmethod
    def _refuse(args: Mapping[str, Any], found: Mapping[str, str]) -> None:
        load, unit = found.get("LoadState"), unit_name(args["unit"])
        if load == "not-found" and args.get("state") != "stopped":
            raise OperationFailed(f"{unit} is not known to systemd on this host")
        if load in ("masked", "bad-setting", "error"):
            raise OperationFailed(f"{unit} is {load}")

    @staticmethod
    def _env_differs(args: Mapping[str, Any], found: Mapping[str, str]) -> bool:
        env = args.get("env")
        if env is None:
            return False
        digest = hashlib.sha256(drop_in(env).encode()).hexdigest() if env else "absent"
        return bool(found.get("digest") != digest)

    @staticmethod
    def _write_env(args: Mapping[str, Any], path: str) -> Generator[Any, Output, None]:
        folder = path.rpartition("/")[0]
        if not args["env"]:
            output = yield Command(argv=("rm", "-f", "--", path), label="service environment")
            succeeded(output, f"removing {path}")
            return
        output = yield Command(argv=("mkdir", "-p", "--", folder), label="service folder")
        succeeded(output, f"making {folder}")
        # 0600: systemd reads it as the unit's manager, and a value may be a secret.
        output = yield Put(path, drop_in(args["env"]).encode(), "0600", secret=True)
        succeeded(output, f"writing {path}")


def drop_in(env: Mapping[str, str]) -> str:
    """A unit file fragment with the variables; quoting as in systemd.syntax(7)."""
    lines = ["# Written by a runbook.", "[Service]"]
    for name, value in sorted(env.items()):
        text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'Environment="{name}={text.replace("%", "%%")}"')
    return "\n".join(lines) + "\n"
