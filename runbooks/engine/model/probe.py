"""What a fact asks of a host and what comes back: a script, and its whole output.

A fact is a generator: it yields `Shell` and receives `Output`. So the engine can send the
questions of all facts of a step in one round trip, and a test can answer from data.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Asking", "Output", "Shell", "Unknown"]


class Unknown(Exception):
    """The fact cannot be known: forbidden, timed out, unparsable. Never "absent"."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Shell:
    """A read-only POSIX shell script.

    `label` names it for people, logs and scripted answers of fake hosts
    (`disk_free root=data`); it becomes the script's first, inert line. `host` asks another
    host than the step's. `timeout` is in seconds.
    """

    label: str
    script: str
    host: str | None = None
    timeout: int = 60


@dataclass(frozen=True, slots=True)
class Output:
    """What a script gave. `exit` 124 means that its time ran out."""

    exit: int
    stdout: bytes = b""
    stderr: str = ""

    @property
    def text(self) -> str:
        """Standard output as UTF-8; raises Unknown where it is not."""
        try:
            return self.stdout.decode()
        except UnicodeDecodeError as error:
            raise Unknown(f"output is not UTF-8 at byte {error.start}") from None

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def complaint(self) -> str:
        """The last line of standard error, or the exit status, for a reason."""
        said = [line for line in self.stderr.splitlines() if line.strip()]
        return said[-1].strip() if said else f"exit {self.exit}"

    def expect(self) -> str:
        """The text when the script succeeded; raises Unknown with the reason otherwise."""
        if self.exit == 124:
            raise Unknown("timed out")
        if self.exit != 0:
            raise Unknown(self.complaint)
        return self.text


# What `Fact.read` returns: yields questions, receives outputs, returns fields.
Asking = Generator[Shell, Output, Mapping[str, Any]]
