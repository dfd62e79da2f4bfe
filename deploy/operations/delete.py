"""Delete trees strictly inside declared roots."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from deploy.operations.common import counted, succeeded, text_of
from deploy.operations.removal import Removal
from deploy.shell import fields
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import (
    Acting,
    Command,
    Operation,
    OperationFailed,
    Preview,
    Previewing,
)
from runbooks.engine.model.probe import Output, Shell, Unknown
from runbooks.engine.model.values import ListOf, RootPath, show_size

# Reading the metadata of 924 GB takes its time.
_MEASURE = 1800


@dataclass(frozen=True, slots=True)
class Measure:
    """A target as it is now: its real path, what it is, and how much goes with it."""

    removal: Removal
    real: str
    inode: str
    identity: str
    bytes: int
    files: int


class Delete(Operation):
    """`delete: {paths: [data:hidden-10k]}`.

    pyinfra's `files.directory(present=False)` is `rm -rf PATH`: it follows a swapped parent,
    and knows no root and no mounts (the pain: trapexit/mergerfs#896, a delete through a bind
    mount). `removal` holds the scripts and what they guard against.
    """

    name = "delete"
    about = "Delete files or folders strictly inside declared roots, after measuring them."
    destructive = True
    symbol = "-"
    arguments: ClassVar[Mapping[str, Argument]] = {
        "paths": Argument(
            ListOf(RootPath(inside=True)),
            "What to delete; each strictly inside a declared root.",
            required=True,
        ),
    }

    def preview(self, args: Mapping[str, Any], context: Context) -> Previewing:
        """Measure each target, here; refuse what does not lie strictly inside its root."""
        lines, identities = [], []
        frees: dict[str, int] = {}
        files = 0
        for removal in self._removals(args, context):
            measure = yield from self._measure(removal, context)
            if measure is None:
                lines.append(f"{removal.shown} is absent")
                continue
            elsewhere = f" ({measure.real})" if measure.real != removal.path else ""
            lines.append(
                f"{removal.shown}{elsewhere} {show_size(measure.bytes)}, "
                f"{counted(measure.files, 'file')}"
            )
            identities.append(f"{measure.real}={measure.identity}")
            frees[removal.root.name] = frees.get(removal.root.name, 0) + measure.bytes
            files += measure.files
        return Preview(
            summary="; ".join(lines), frees=frees, files=files, identity=" ".join(identities)
        )

    def act(self, args: Mapping[str, Any], context: Context) -> Acting:
        """Measure again, and remove what was measured; each path is verified where it is removed."""
        freed = files = 0
        for removal in self._removals(args, context):
            measure = yield from self._measure(removal, context)
            if measure is None:
                continue
            script = removal.script(measure.inode)
            output = yield Command(script=script, label=f"delete {removal.shown}")
            if output.exit == 3:
                raise OperationFailed(f"{removal.shown}: refused: {output.complaint}")
            succeeded(output, f"deleting {removal.shown}")
            freed += measure.bytes
            files += measure.files
        return (
            f"freed {show_size(freed)}, {counted(files, 'file')}"
            if files or freed
            else "nothing to do"
        )

    def _removals(self, args: Mapping[str, Any], context: Context) -> list[Removal]:
        removals = [Removal.of(path, context) for path in args["paths"]]
        paths = [removal.path for removal in removals]
        for outer in paths:
            for inner in paths:
                if inner is not outer and (inner == outer or inner.startswith(f"{outer}/")):
                    raise OperationFailed(f"{inner} is named twice: it lies in {outer}")
        return removals

    def _measure(
        self, removal: Removal, context: Context
    ) -> Generator[Shell, Output, Measure | None]:
        """None where nothing is there; OperationFailed where it must not be deleted."""
        label = f"delete {removal.shown}"
        text = text_of((yield Shell(label, removal.measure(), timeout=_MEASURE)), removal.shown)
        found = fields(text)
        state = found.get("state")
        if state == "absent":
            return None
        if state == "refused":
            raise OperationFailed(f"{removal.shown}: refused: {found.get('reason')}")
        if state != "present":
            raise Unknown(f"{removal.shown}: {found.get('reason') or 'unreadable answer'}")
        if (owner := context.owner(removal.root)).name != context.host.name:
            script = removal.on_owner(owner, found["inside"])
            output = yield Shell(f"{label} on {owner.name}", script, host=owner.name)
            seen = fields(text_of(output, f"{removal.shown} on {owner.name}"))
            if seen.get("state") == "refused":
                raise OperationFailed(
                    f"{removal.shown}: refused on its owner {owner.name}: {seen.get('reason')}"
                )
            if seen.get("state") != "clear":
                raise Unknown(f"{removal.shown} on {owner.name}: {seen.get('reason')}")
        try:
            return Measure(
                removal,
                found["real"],
                found["inode"],
                found["identity"],
                int(found["kib"]) * 1024,
                int(found["files"]),
            )
        except (KeyError, ValueError):
            raise Unknown(f"{removal.shown}: unreadable answer {text!r}") from None
