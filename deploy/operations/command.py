"""Run one program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from deploy.operations.common import expand, shown_environment, succeeded
from deploy.shell import quote
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import Acting, Command, Operation, Preview, Previewing
from runbooks.engine.model.probe import Shell
from runbooks.engine.model.values import HostPath, ListOf, MapOf, Text


class RunCommand(Operation):
    """`command: {argv: [touch, data:x]}`.

    pyinfra's `server.shell` keeps no exit status and takes one string for the shell
    (seen with pyinfra 3.10); an argv needs neither quoting nor a shell.
    """

    name = "command"
    about = "Run one program on the host and wait for its end."
    glance = True
    arguments: ClassVar[Mapping[str, Argument]] = {
        "argv": Argument(
            ListOf(Text(empty=True)),
            "The program and its arguments; a whole token root:path becomes the host's path.",
            required=True,
        ),
        "env": Argument(MapOf(Text(empty=True)), "Environment variables; the place for secrets."),
        "cwd": Argument(HostPath(), "The folder to run in; the login folder by default."),
        "stdin": Argument(Text(empty=True), "What the program reads from its standard input."),
    }

    def preview(self, args: Mapping[str, Any], context: Context) -> Previewing:
        """The command line as a shell would take it; says when the program is not there."""
        argv = expand(args["argv"], context)
        found = yield Shell(_label(argv), f"command -v -- {quote(argv[0])} >/dev/null 2>&1")
        words = [shown_environment(args.get("env")), *map(quote, argv)]
        if args.get("cwd"):
            words += ["in", context.host.resolve(args["cwd"])]
        missing = "" if found.exit == 0 else f" ({argv[0]} is not on the host now)"
        return Preview(summary="run " + " ".join(word for word in words if word) + missing)

    def act(self, args: Mapping[str, Any], context: Context) -> Acting:
        """Run it; any exit status but 0 is a failure."""
        argv = expand(args["argv"], context)
        stdin = args.get("stdin")
        output = yield Command(
            argv=argv,
            env=dict(args.get("env") or {}),
            cwd=context.host.resolve(args["cwd"]) if args.get("cwd") else None,
            stdin=stdin.encode() if stdin is not None else None,
            label=_label(argv),
        )
        succeeded(output, argv[0])
        return f"{argv[0]} ended with exit 0"


def _label(argv: tuple[str, ...]) -> str:
    """One line, whatever the program is called: a label becomes a comment of the script."""
    return " ".join(["command", *argv[0].split()])
