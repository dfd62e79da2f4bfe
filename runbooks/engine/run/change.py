"""The one way to a host for a change of a run: behind its lock, with its journal's copy."""

from __future__ import annotations

from dataclasses import dataclass

from runbooks.engine.fleet import Fenced, Fleet
from runbooks.engine.lock.keeper import Keeper
from runbooks.engine.model.operation import Command, Delegate, Put
from runbooks.engine.model.probe import Output
from runbooks.engine.run.mirror import Mirror

__all__ = ["Changer"]


@dataclass
class Changer:
    """Changes hosts in the name of one run; raises Locked once it is not its own any more."""

    fleet: Fleet
    keeper: Keeper
    mirror: Mirror

    def hold(self, host: str) -> None:
        """Have the host's lock, now or already. Raises Locked, Unreachable, RunbookError."""
        self.keeper.take(host)

    def perform(self, host: str, action: Command | Put | Delegate) -> Output:
        """Change the host. Raises Locked where its lock was lost (nothing is done then),
        Unreachable."""
        fence = self.keeper.fence(host)
        try:
            with self.mirror.sending(host) as words:
                return self.fleet.perform(host, action, fence + words)
        except Fenced as error:
            raise self.keeper.refused(host, error.said) from None
