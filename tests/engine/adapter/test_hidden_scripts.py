"""A script that holds a secret never stands in an argv: everybody may read those."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from runbooks.engine.adapter import batch

WATCH = r"""for p in /proc/[0-9]*; do
  tr '\0' ' ' < "$p/cmdline" 2>/dev/null; echo
done | grep -c 'MARK[E]R' || true"""


def seen(hidden: bool, folder: Path) -> int:
    """How many processes show the script's text while it runs; the script counts them itself."""
    script = f": MARKER\n{{ {WATCH}; }} > {folder}/seen"
    text = batch.compose([batch.Task(script=script, hidden=hidden)], "", "token")
    done = subprocess.run(["sh"], input=text, capture_output=True, text=True, check=False)
    (output,) = batch.parse(
        done.stdout.splitlines(), [batch.Task(script=script, hidden=hidden)], "token"
    )
    assert output is not None and output.exit == 0, done
    return int((folder / "seen").read_text())


@pytest.mark.parametrize("hidden", [True, False])
def test_a_hidden_script_is_in_no_argv(hidden: bool, tmp_path: Path) -> None:
    assert (seen(hidden, tmp_path) == 0) is hidden
