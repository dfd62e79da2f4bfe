"""A program that stands on each SSH host while it is connected: see agent.py.

Used where it can be: on pyinfra's own SSH connector, where the host has Python 3.7, for one
round trip at a time. Everything else (a second round trip at the same time, another user by
sudo, a host without Python) goes the way of batch.py, a shell for each round trip, and gives
the same answers.
"""

from __future__ import annotations

import base64
import json
import secrets
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paramiko import SSHException
from pyinfra.api.command import StringCommand
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import make_unix_command_for_host

from runbooks.engine.adapter import agent, batch
from runbooks.engine.model.probe import Output

__all__ = ["Standing", "StandingByHost", "introduce", "launcher", "open_standing", "request_of"]

# Seconds for a host's Python to start.
_PATIENCE = 20
_CHUNK = 65536
# Those of the system before the first of the PATH.
PYTHONS = "/usr/bin/python3 /usr/local/bin/python3 python3"
# `eagle3-probe`: looks at processes leave it out, as they leave out questions.
_BOOT = (
    "import sys; n = int(sys.stdin.buffer.readline()); "
    "exec(compile(sys.stdin.buffer.read(n), 'eagle3-probe', 'exec'))"
)
_SOURCE = Path(agent.__file__).read_bytes()


def launcher(size: int, token: str) -> str:
    """The shell text that reads a preamble of `size` bytes and becomes the agent.

    It says `@TOKEN here` when it is about to start Python; the agent's own text is sent only
    then (busybox' `head` reads more than it is asked for, where there is more).
    """
    return (
        f's=$(head -c {size}); eval "$s"; p=; '
        f"for i in {PYTHONS}; do "
        'command -v "$i" >/dev/null 2>&1 && p=$i && break; done; [ -n "$p" ] || exit 0; '
        # A python3 of pyenv or conda is a script that puts folders of its own before the PATH.
        f"export {agent.PATH}=\"$PATH\"; echo; echo '@{token} here'; "
        f'exec "$p" -ISBc {shlex.quote(_BOOT)} 2>/dev/null'
    )


def request_of(tasks: Sequence[batch.Task], fence: str = "") -> bytes:
    """The request for these tasks, the first of them behind `fence` (shell text)."""
    packed = [_packed(task, fence if index == 0 else "") for index, task in enumerate(tasks)]
    body = json.dumps({"tasks": packed}).encode()
    return b"%d\n" % len(body) + body


def _packed(task: batch.Task, fence: str) -> dict[str, Any]:
    packed: dict[str, Any] = {"timeout": task.timeout, "last": task.last}
    if task.stdin is not None:
        packed["stdin"] = base64.b64encode(task.stdin).decode()
    plain = not (fence or task.env or task.cwd or task.piped)
    if plain and task.script is not None:
        packed["argv"] = [*shlex.split(task.shell), "-c", task.script]
    else:
        body = batch.task_body(replace(task, stdin=None, timeout=None))
        packed["feed"] = f"{fence}\n{body}" if fence else body
    return packed


@dataclass
class Standing:
    """One agent; not safe for two users at a time. `end` it after any error."""

    channel: Any
    buffer: bytes = b""

    @property
    def alive(self) -> bool:
        """False once its connection or itself is known to be gone."""
        return not self.channel.closed and not self.channel.eof_received

    def ask(
        self, tasks: Sequence[batch.Task], patience: float | None, fence: str = ""
    ) -> list[Output]:
        """One round trip. Raises TimeoutError after `patience` seconds, EOFError or OSError
        where the answer does not arrive whole."""
        begun = time.monotonic()
        end = None if patience is None else begun + patience
        self.channel.settimeout(patience)
        self.channel.sendall(request_of(tasks, fence))
        size = int(self.line(end))
        while len(self.buffer) < size:
            self._more(end)
        body, self.buffer = self.buffer[:size], self.buffer[size:]
        seconds = time.monotonic() - begun
        return [
            batch.output_of(task, status, base64.b64decode(out), base64.b64decode(error), seconds)
            for task, (status, out, error) in zip(tasks, json.loads(body)["answers"], strict=True)
        ]

    def end(self) -> None:
        """Close it; a task that runs goes on to its end."""
        self.channel.close()

    def line(self, end: float | None) -> str:
        while b"\n" not in self.buffer:
            self._more(end)
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode(errors="replace").rstrip()

    def _more(self, end: float | None) -> None:
        if end is not None:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.channel.settimeout(left)
        data = self.channel.recv(_CHUNK)
        if not data:
            raise EOFError("the connection was cut before the answer was whole")
        self.buffer += data


def open_standing(host: Any, arguments: dict[str, Any], preamble: str) -> Standing | None:
    """An agent on a connected host, run as `arguments` say; None where there can be none.

    Raises what a lost connection raises.
    """
    connector = host.connector
    if type(connector) is not SSHConnector or arguments.get("_get_pty"):
        return None
    left_out = ("_get_pty", "_timeout", "_stdin", "_success_exit_codes", "_env", "_chdir")
    given = {key: value for key, value in arguments.items() if key not in left_out}
    token = secrets.token_hex(6)
    text = f"{preamble}\n".encode()
    command = make_unix_command_for_host(
        connector.state,
        host,
        StringCommand(launcher(len(text), token)),
        **(given | {"_shell_executable": "sh"}),
    )
    client: Any = connector.client
    transport = client.get_transport()
    try:
        channel = transport.open_session(timeout=_PATIENCE)
    except SSHException:
        if transport.is_active():
            return None  # the host allows no further session (MaxSessions)
        raise
    standing = Standing(channel)
    try:
        channel.settimeout(_PATIENCE)
        channel.exec_command(command.get_raw_value())
        introduce(standing, text, token)
    except (EOFError, TimeoutError):
        standing.end()
        return None
    return standing


def introduce(standing: Standing, preamble: bytes, token: str) -> None:
    """Make an agent of the shell that runs `launcher`; raises EOFError where that cannot be."""
    end = time.monotonic() + _PATIENCE
    standing.channel.sendall(preamble)
    while standing.line(end) != f"@{token} here":
        continue
    standing.channel.sendall(b"%d\n" % len(_SOURCE) + _SOURCE)
    # A Python that is too old, or that does not start, ends here.
    if standing.line(end).encode() + b"\n" != agent.READY:
        raise EOFError("the host's Python does not answer")


class StandingByHost:
    """The agents of a fleet: one for each host that can have one, made when it is needed."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}

    def ask(
        self,
        host: Any,
        arguments: dict[str, Any],
        preamble: str,
        tasks: Sequence[batch.Task],
        patience: float | None,
        fence: str,
    ) -> list[Output] | None:
        """One round trip by the host's agent; None where this one goes the other way.

        Raises what `Standing.ask` raises.
        """
        place = self._places.setdefault(host.name, _Place())
        if place.busy:
            return None
        place.busy = True
        try:
            standing = place.standing_for(host, arguments, preamble)
            if standing is None:
                return None
            try:
                return standing.ask(tasks, patience, fence)
            except BaseException:
                # Whatever it still says would be taken for the next answer.
                standing.end()
                raise
        finally:
            place.busy = False


@dataclass
class _Place:
    """The agent of one host: `key` says how it runs; None in its place where there can be none."""

    busy: bool = False
    key: str = ""
    client: Any = None
    standing: Standing | None = None

    def standing_for(self, host: Any, arguments: dict[str, Any], preamble: str) -> Standing | None:
        client = getattr(host.connector, "client", None)
        key = repr(sorted(arguments.items(), key=lambda item: item[0])) + preamble
        same = client is self.client and key == self.key
        if same and (self.standing is None or self.standing.alive):
            return self.standing
        if self.standing is not None:
            self.standing.end()
        self.client, self.key = client, key
        self.standing = open_standing(host, arguments, preamble)
        return self.standing
