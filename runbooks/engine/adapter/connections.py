"""Connections to hosts: made once, tuned, lost, made again."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from gevent.lock import RLock
from paramiko import SSHException
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.connectors import util as connector_util
from pyinfra.connectors.ssh import SSHConnector

from runbooks.engine.adapter.hosts import name_of
from runbooks.engine.fleet import Unreachable

__all__ = ["LOST", "Connections", "alive", "improve_connectors", "note_down", "tune"]

# What a connection raises when it is gone; pyinfra raises TimeoutError (an OSError) too.
LOST = (SSHException, OSError, EOFError)
# A host that just refused is not asked again at once: a plan asks several times in a row.
_REMEMBER = 3.0
# Seconds after which a silent peer counts as gone.
_SILENCE = 30

_down: WeakKeyDictionary[Any, tuple[str, float]] = WeakKeyDictionary()


class Connections:
    """The connections of one fleet; each host is connected by one greenlet at a time."""

    def __init__(self) -> None:
        self._locks: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        improve_connectors()

    def connect(self, host: Any, *, again: bool = False) -> None:
        """Connect unless connected; raises Unreachable. `again`: try although it just failed."""
        with self._locks.setdefault(host, RLock()):
            if host.connected and alive(host):
                return
            reason, at = _down.get(host, ("", 0.0))
            if reason and not again and time.monotonic() - at < _REMEMBER:
                raise Unreachable(name_of(host.name), reason)
            if host.connected:
                self.lost(host)
            try:
                # A fake host that a test declares to be down.
                if refusal := host.data.get("fake_down"):
                    raise ConnectError(str(refusal))
                host.connect(show_errors=False, raise_exceptions=True)
            except (PyinfraError, *LOST) as error:
                raise Unreachable(name_of(host.name), note_down(host, error)) from error
            _down.pop(host, None)

    def lost(self, host: Any) -> None:
        """Forget a connection that broke; the next use makes a new one."""
        host.connected = False
        # pyinfra would go on using the old file transfer channel.
        host.connector.disconnect()
        client = getattr(host.connector, "client", None)
        if client is not None:
            client.close()


def note_down(host: Any, error: BaseException) -> str:
    """Remember that a host does not answer, and why."""
    said = error.args[0] if isinstance(error, PyinfraError) and error.args else error
    reason = str(said) or type(error).__name__
    _down[host] = (reason, time.monotonic())
    return reason


def alive(host: Any) -> bool:
    """False when the transport is known to be gone; connectors without one always answer."""
    client = getattr(host.connector, "client", None)
    get_transport = getattr(client, "get_transport", None)
    if get_transport is None:
        return True
    transport = get_transport()
    return transport is not None and bool(transport.is_active())


def tune(connector: Any) -> None:
    """Set the TCP options of a fresh SSH connection.

    paramiko leaves Nagle's algorithm on, which costs 40 ms a command (50 ms a fact become 6),
    and notices a peer that is gone only after a quarter of an hour.
    """
    transport = connector.client.get_transport() if connector.client else None
    channel: Any = getattr(transport, "sock", None)
    # Through a ProxyJump the socket is a channel of another transport.
    while hasattr(channel, "get_transport"):
        channel = getattr(channel.get_transport(), "sock", None)
    set_option = getattr(channel, "setsockopt", None)
    if set_option is None:
        return  # ProxyCommand: a pair of pipes
    options = [
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", _SILENCE // 2),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", _SILENCE * 1000),
    ]
    for level, name, value in options:
        option = getattr(socket, name, None)
        if option is None:
            continue
        try:
            set_option(level, option, value)
        except OSError:
            return  # a socket that is not TCP


def improve_connectors() -> None:
    """Patch pyinfra's connectors, once: tuned sockets, bytes that are not UTF-8."""
    if getattr(SSHConnector.connect, "tuned", False):
        return
    connect: Callable[[Any], None] = SSHConnector.connect

    def connect_and_tune(self: Any) -> None:
        connect(self)
        tune(self)

    connect_and_tune.tuned = True  # type: ignore[attr-defined]
    SSHConnector.connect = connect_and_tune  # type: ignore[method-assign]
    read_buffer: Callable[..., None] = connector_util.read_buffer

    def read_any_bytes(name: str, io: Any, *args: Any, **kwargs: Any) -> None:
        # Without this the reading greenlet dies at the first byte that is not UTF-8, and what
        # follows is lost while the command counts as a success.
        read_buffer(name, _Lenient(io), *args, **kwargs)

    connector_util.read_buffer = read_any_bytes


class _Lenient:
    """Lines of a stream as text, with a replacement character for what is not UTF-8."""

    def __init__(self, stream: Any):
        self._stream = stream
        # paramiko's streams decode by themselves unless they are binary.
        if hasattr(stream, "FLAG_BINARY") and hasattr(stream, "_flags"):
            stream._flags |= stream.FLAG_BINARY

    def __iter__(self) -> Any:
        for line in self._stream:
            yield line.decode("utf-8", errors="replace") if isinstance(line, bytes) else line
