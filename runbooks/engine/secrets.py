"""Where secrets come from: the controller's environment, a file, or a command's output."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.runbook import Secret
from runbooks.engine.redact import MINIMUM

__all__ = ["read_secrets"]

_COMMAND_SECONDS = 60
_ENCODE = "encode it, in base64 for one, and let the program decode it"


def read_secrets(secrets: Mapping[str, Secret], project: Path) -> dict[str, str]:
    """The values, without newlines at their end; RunbookError (usage) names what is missing."""
    return {name: _checked(name, _read(secret, project)) for name, secret in secrets.items()}


def _checked(name: str, value: str) -> str:
    value = value.rstrip("\r\n")
    if len(value) < MINIMUM:
        raise _problem(name, f"is shorter than {MINIMUM} characters, too short to be masked")
    if "\0" in value or any("\ud800" <= one <= "\udfff" for one in value):
        raise _problem(name, "is no text in UTF-8 without a NUL", _ENCODE)
    return value


def _problem(name: str, text: str, hint: str | None = None) -> RunbookError:
    return RunbookError.usage(f"secret '{name}' {text}", where="secrets", hint=hint)


def _read(secret: Secret, project: Path) -> str:
    if secret.env is not None:
        if secret.env not in os.environ:
            raise _problem(
                secret.name,
                f"wants the environment variable {secret.env}, which is not set",
                f"export {secret.env}=…",
            )
        return os.environ[secret.env]
    if secret.file is not None:
        path = Path(secret.file).expanduser()
        try:
            return (path if path.is_absolute() else project / path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise _problem(secret.name, f"cannot be read from {secret.file}: {error}") from None
    try:
        done = subprocess.run(
            secret.command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        # The error's text may quote output; its kind is enough.
        raise _problem(secret.name, f"command failed: {type(error).__name__}") from None
    if done.returncode != 0:
        raise _problem(secret.name, f"command exited with {done.returncode}")
    try:
        return done.stdout.decode()
    except UnicodeDecodeError:
        # Decoded here: gevent prints the traceback of a pipe that it cannot decode.
        raise _problem(secret.name, "is no text in UTF-8 without a NUL", _ENCODE) from None
