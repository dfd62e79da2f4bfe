"""Hosts and roots as the inventory describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from runbooks.engine.model.diagnostic import Diagnostic, RunbookError, did_you_mean
from runbooks.engine.model.values import split_root

__all__ = ["DEFAULT_STATE", "Context", "Host", "Origin", "Root"]

# `$HOME` is expanded by the host's shell.
DEFAULT_STATE = "$HOME/.local/state/eagle3-runbooks"


@dataclass(frozen=True, slots=True)
class Root:
    """A named directory that steps may write under or delete from.

    `owner` is the host where every process and mount of it is visible; `filesystem` keys the
    disk ledger; `mounted` says that it is a mount point (or below one) that must be mounted:
    without the mount nothing below it is known. `reserve` (bytes) must stay free.
    """

    name: str
    path: PurePosixPath
    owner: str
    filesystem: str
    mounted: bool = False
    reserve: int = 0


@dataclass(frozen=True, slots=True)
class Host:
    """One host: its name, groups, roots, and the inventory's other data.

    `path` lists folders put before PATH for every command (where `eagle3` is installed);
    `state` is the folder for locks, jobs and checkpoints, in the host's shell's words; every
    operator of the host has to have the same one. `guest_of` names the host that it runs on.
    """

    name: str
    kind: str = "machine"
    groups: tuple[str, ...] = ()
    roots: Mapping[str, Root] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    state: str = DEFAULT_STATE
    guest_of: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def resolve(self, text: str) -> str:
        """The host's absolute path of `root:rest`; an absolute path stays as it is.

        Raises RunbookError (usage) when the root is not declared for this host.
        """
        parts = split_root(text)
        if parts is None:
            return text
        name, rest = parts
        if name not in self.roots:
            raise RunbookError(
                Diagnostic(
                    f"root '{name}' of '{text}' is not declared for host {self.name}",
                    where=self.name,
                    hint=did_you_mean(name, self.roots),
                )
            )
        base = self.roots[name].path
        return str(base / rest) if rest else str(base)

    def root_of(self, text: str) -> Root | None:
        """The root that `root:rest` names, or None for an absolute path."""
        parts = split_root(text)
        return self.roots.get(parts[0]) if parts else None

    def expand_token(self, token: str) -> str:
        """A whole argv token `root:path` of a declared root as a path; another as it is."""
        parts = split_root(token)
        return self.resolve(token) if parts and parts[0] in self.roots else token

    def environment(self) -> dict[str, str]:
        """What every command of this host gets: `EAGLE3_ROOT_<NAME>` for each root."""
        return {
            f"EAGLE3_ROOT_{root.name.upper().replace('-', '_')}": str(root.path)
            for root in self.roots.values()
        }


@dataclass(frozen=True, slots=True)
class Origin:
    """Who acts: the run's id, the operator, the controller (its host name)."""

    run: str
    operator: str
    controller: str


@dataclass(frozen=True, slots=True)
class Context:
    """Where a fact is read or an operation acts: the host, the step, the fleet, the project.

    `origin` is None while planning, and wherever no run acts.
    """

    host: Host
    fleet: Mapping[str, Host]
    project: Path
    runbook: str = ""
    step: str = ""
    origin: Origin | None = None

    def owner(self, root: Root) -> Host:
        """The host that owns a root; proofs for a delete are read there."""
        return self.fleet.get(root.owner, self.host)
