"""What the engine needs of the world, as a protocol; `adapter` has the one on pyinfra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from runbooks.engine.model.host import Host
from runbooks.engine.model.operation import Command, Delegate, Put
from runbooks.engine.model.probe import Output, Shell

__all__ = ["Fenced", "Fleet", "ReadOnlyError", "Unreachable"]


class Unreachable(Exception):
    """A host does not answer; `reason` says how the connection failed."""

    def __init__(self, host: str, reason: str):
        super().__init__(f"{host}: {reason}")
        self.host = host
        self.reason = reason


class Fenced(Exception):
    """The fence of a change refused it; `said` is what the fence printed. Nothing was done."""

    def __init__(self, host: str, said: str):
        super().__init__(f"{host}: the change was refused: {said}")
        self.host = host
        self.said = said


class ReadOnlyError(Exception):
    """A change was asked of a fleet that is being planned: a bug of an operation."""


class Fleet(Protocol):
    """The hosts of an inventory. Safe to call from several threads."""

    @property
    def hosts(self) -> Mapping[str, Host]:
        """Every host of the inventory, by name."""

    def connect(self, names: Sequence[str]) -> Mapping[str, str]:
        """Connect side by side; returns the reason of each host that is down."""

    def ask(self, questions: Sequence[tuple[str, Shell]]) -> list[Output | Unreachable]:
        """Answer (host, script) pairs in order: one round trip a host, hosts side by side."""

    def perform(self, host: str, action: Command | Put | Delegate, fence: str = "") -> Output:
        """Change the host. Raises Unreachable; ReadOnlyError while planning.

        `fence` is a POSIX script that runs first, in the same shell and round trip, before
        every command that the action consists of. Where it does not exit with 0, nothing is
        done and Fenced is raised with what it printed.
        """

    def read_only(self, on: bool) -> None:
        """While on, `perform` raises; a plan touches nothing."""
