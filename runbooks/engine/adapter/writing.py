"""Writing a file on a host so that it is never there in half."""

from __future__ import annotations

import base64
import re
import shlex
from pathlib import PurePosixPath

from runbooks.engine.model.operation import Put

__all__ = ["INLINE_LIMIT", "finish_script", "inline_script", "prepare_script", "temporary"]

# Longer content goes by the connector's own file transfer.
INLINE_LIMIT = 2**20


def temporary(put: Put, token: str) -> str:
    """A name beside the file: a rename must stay within one filesystem."""
    path = PurePosixPath(put.path)
    return str(path.with_name(f".{path.name}.{token}.tmp"))


def inline_script(put: Put, temp: str) -> str:
    """The whole writing as one script that carries the content."""
    content = base64.b64encode(put.content).decode()
    return "\n".join(
        (
            prepare_script(put, temp),
            f"trap 'rm -f -- {_nested(shlex.quote(temp))}' EXIT",
            "trap 'exit 1' HUP INT TERM",
            "command -v base64 >/dev/null 2>&1 || { echo 'the host has no base64' >&2; exit 127; }",
            f"printf %s '{content}' | base64 -d > {shlex.quote(temp)} || exit 1",
            finish_script(put, temp),
        )
    )


def prepare_script(put: Put, temp: str) -> str:
    """Check the place and make the temporary file, readable by its owner alone from the start."""
    path = PurePosixPath(put.path)
    if not path.is_absolute() or not path.name:
        raise ValueError(f"{put.path!r} is no absolute path of a file")
    target, folder, name = (shlex.quote(text) for text in (put.path, str(path.parent), temp))
    return f"""[ -d {folder} ] || {{ printf 'the folder %s does not exist\\n' {folder} >&2; exit 1; }}
[ ! -d {target} ] || {{ printf '%s is a folder\\n' {target} >&2; exit 1; }}
( umask 077; set -C; : > {name} ) || exit 1"""


def finish_script(put: Put, temp: str) -> str:
    """Owner, mode, fsync, rename."""
    if not re.fullmatch(r"[0-7]{3,4}", put.mode):
        raise ValueError(f"mode {put.mode!r} is not octal, as 0644 is")
    target, name = shlex.quote(put.path), shlex.quote(temp)
    folder = shlex.quote(str(PurePosixPath(put.path).parent))
    size = len(put.content)
    lines = [
        f'[ "$(wc -c < {name})" -eq {size} ] || '
        f"{{ echo 'not all {size} bytes arrived' >&2; exit 1; }}"
    ]
    # chown first: it may clear bits of the mode.
    if put.owner is not None or put.group is not None:
        owner = (put.owner or "") + (f":{put.group}" if put.group else "")
        lines.append(f"chown -- {shlex.quote(owner)} {name} || exit 1")
    lines += [
        f"chmod -- {put.mode} {name} || exit 1",
        # `sync FILE` is coreutils 8.24; dd has fsync before that and in busybox.
        f"sync -- {name} 2>/dev/null || "
        f"dd if=/dev/null of={name} conv=notrunc,fsync 2>/dev/null || sync || exit 1",
        f"mv -f -- {name} {target} || exit 1",
        "trap - EXIT",
        f"sync -- {folder} 2>/dev/null || sync",
    ]
    return "\n".join(lines)


def _nested(quoted: str) -> str:
    """A quoted word inside single quotes."""
    return quoted.replace("'", "'\"'\"'")
