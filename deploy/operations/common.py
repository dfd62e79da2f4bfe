"""What several operations need: options with their defaults, outputs judged, quoted words."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.shell import quote
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import Action, Operation, OperationFailed
from runbooks.engine.model.probe import Output, Unknown

__all__ = [
    "Steps",
    "counted",
    "exit_words",
    "expand",
    "holds_secret",
    "last_lines",
    "option",
    "project_file",
    "shown_environment",
    "succeeded",
    "text_of",
]

# A part of `act` that other parts delegate to with `yield from`.
Steps = Generator[Action, Output, Any]

# So few lines of standard error may not tell why a program failed.
_FEW = 3
_SIGNALS = 64
_SECRET = "${{ secrets."


def option(operation: Operation, args: Mapping[str, Any], name: str) -> Any:
    """The argument as given, or its declared default."""
    value = args.get(name)
    return operation.arguments[name].default if value is None else value


def text_of(output: Output, what: str) -> str:
    """The text of a look; Unknown says what was looked at, and never leads to an act."""
    try:
        return output.expect()
    except Unknown as unknown:
        raise Unknown(f"{what}: {unknown.reason}") from None


def succeeded(output: Output, what: str) -> Output:
    """The output of a change that worked, or OperationFailed with its last words."""
    if output.exit == 0:
        return output
    if output.exit == 124:
        raise OperationFailed(f"{what}: the time ran out")
    raise OperationFailed(
        "\n".join([f"{what}: {exit_words(output.exit)}", *_last_words(output, 10)])
    )


def _last_words(output: Output, count: int) -> list[str]:
    """The last lines of standard error; where these are few, before them those of its output."""
    error = last_lines(output.stderr, count).splitlines()
    if len(error) > _FEW:
        return error
    said = last_lines(output.stdout.decode(errors="replace"), count - len(error))
    return [*said.splitlines(), *error]


def exit_words(code: int) -> str:
    """`exit 1`; with what a shell means by it where it has a meaning."""
    if 128 < code <= 128 + _SIGNALS:
        return f"exit {code} (signal {code - 128})"
    meaning = {126: " (it may not be run)", 127: " (it was not found)"}
    return f"exit {code}{meaning.get(code, '')}"


def last_lines(text: str, count: int = 10) -> str:
    """The last lines that say something."""
    return "\n".join([line.rstrip() for line in text.splitlines() if line.strip()][-count:])


def expand(argv: Sequence[str], context: Context) -> tuple[str, ...]:
    """The argv with whole tokens `root:path` of declared roots as paths."""
    return tuple(context.host.expand_token(token) for token in argv)


def counted(number: int, noun: str) -> str:
    """`1 file`, `18,204 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def holds_secret(text: str) -> bool:
    """Whether a reference to a secret is still unresolved in `text` (as in a plan)."""
    return _SECRET in text


def shown_environment(env: Mapping[str, str] | None) -> str:
    """`NAME=value …` for people; what is still a reference to a secret is not a value."""
    pairs = (env or {}).items()
    return " ".join(
        f"{name}={'•••' if holds_secret(text) else quote(text)}" for name, text in pairs
    )


def project_file(context: Context, relative: str, *folders: str) -> Path:
    """The file of the project, looked for in `folders` first; it never lies outside."""
    project = context.project.resolve()
    for folder in (*folders, "."):
        path = (project / folder / relative).resolve()
        if path.exists():
            if not path.is_relative_to(project):
                raise OperationFailed(f"{relative} leads out of the project, to {path}")
            return path
    where = " or ".join(str(project / folder / relative) for folder in (*folders, ""))
    raise OperationFailed(f"{relative} is not in the project; looked for {where}")
