"""`make demo`, twice, as a newcomer types it: the second time nothing changes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
STEPS = ("situation", "target", "prompts", "merge", "extract")

pytestmark = pytest.mark.e2e


def demo() -> str:
    done = subprocess.run(
        ["make", "demo"],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def test_the_second_demo_changes_nothing() -> None:
    first = demo()
    recap = first.partition("Recap  demo")[2]
    for step in STEPS:
        assert re.search(rf"^  {step} +local +(ran|held|satisfied) ", recap, flags=re.MULTILINE)
    second = demo()
    assert re.search(r"^0 changed steps, 5 in all", second, flags=re.MULTILINE)
