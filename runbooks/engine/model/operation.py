"""Operations: what can change a host, declared once.

`act` is a generator of actions, so that the engine performs each one (guarded, journalled,
timed) and a test compares the actions with a data file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from runbooks.engine.model.fact import Argument
from runbooks.engine.model.host import Context
from runbooks.engine.model.job import JobRecord, Progress
from runbooks.engine.model.probe import Output, Shell

__all__ = [
    "Acting",
    "Action",
    "Command",
    "Delegate",
    "JobRecord",
    "Operation",
    "OperationFailed",
    "Preview",
    "Previewing",
    "Progress",
    "Put",
    "Wait",
]


@dataclass(frozen=True, slots=True)
class Command:
    """A mutating program: an argv, or a POSIX script given by `script`.

    Secrets stand in `env` or `stdin` only. `timeout` is in seconds; at its end the remote
    process is ended too.
    """

    argv: tuple[str, ...] = ()
    script: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    stdin: bytes | None = None
    timeout: int | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Put:
    """Write `content` to `path`: temporary name beside it, fsync, mode, rename."""

    path: str
    content: bytes
    mode: str = "0644"
    owner: str | None = None
    group: str | None = None
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Delegate:
    """A pyinfra operation with its arguments: `Delegate(systemd.service, {"service": "x"})`."""

    operation: Callable[..., Any]
    arguments: Mapping[str, Any]
    label: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Let `seconds` pass (between two looks at a job)."""

    seconds: float


# Shell inside `act` is a look at the world (never a change).
Action = Command | Put | Delegate | Wait | Progress | Shell
Acting = Generator[Action, Output, str]
Previewing = Generator[Shell, Output, "Preview"]


class OperationFailed(Exception):
    """The operation says that it did not succeed; the message says why."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What an operation would change, from facts read now.

    `diff` is unified diff text; `frees` (bytes) and `files` are measured, by root name for
    the ledger; `identity` names the measured thing, so that an approval of one does not pass
    for another.
    """

    summary: str = ""
    diff: str = ""
    frees: Mapping[str, int] = field(default_factory=dict)
    files: int | None = None
    identity: str = ""
    refused: bool = False


class Operation(ABC):
    """One thing that changes a host.

    `symbol` marks it in a plan (`+` makes, `~` changes, `-` removes, `>` long work).
    `destructive` operations need `irreversible:` and `requires:` in their step. `long` work
    has no default timeout. The preview of one with `glance` costs no more than a look, so a run
    makes it along with its checks.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    arguments: ClassVar[Mapping[str, Argument]] = {}
    destructive: ClassVar[bool] = False
    long: ClassVar[bool] = False
    glance: ClassVar[bool] = False
    symbol: ClassVar[str] = "~"

    @abstractmethod
    def preview(self, args: Mapping[str, Any], context: Context) -> Previewing:
        """Look, change nothing, and say what `act` would change."""

    @abstractmethod
    def act(self, args: Mapping[str, Any], context: Context) -> Acting:
        """Yield actions, receive outputs, return a one-line outcome; raise OperationFailed."""

    def attach(self, args: Mapping[str, Any], context: Context) -> Acting | None:
        """For long work: wait for one that already lives, or None where it cannot live."""
        return None

    def alive(self, args: Mapping[str, Any], context: Context) -> Generator[Shell, Output, bool]:
        """Whether work of this step lives on the host now (never unknown read as dead)."""
        return False
        yield  # pragma: no cover - makes this a generator

    def jobs(self, context: Context) -> Generator[Shell, Output, Sequence[JobRecord]]:
        """For long work: the newest job of every step on the host, whatever runbook began it."""
        return ()
        yield  # pragma: no cover - makes this a generator

    def follow(self, context: Context) -> Acting:
        """For long work: watch the newest job of `context.runbook` and `context.step` to its end.

        Needs no arguments: everything it shows is recorded on the host. Changes nothing.
        """
        raise OperationFailed(f"{self.name} has no jobs to follow")
        yield  # pragma: no cover - makes this a generator

    def cancel(self, context: Context) -> Acting:
        """For long work: end that job and all its processes: TERM, a wait, then KILL."""
        raise OperationFailed(f"{self.name} has no jobs to cancel")
        yield  # pragma: no cover - makes this a generator
