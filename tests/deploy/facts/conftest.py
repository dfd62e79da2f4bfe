"""Each test of this machine runs in every shell that is here."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.deploy.facts.this_machine import ThisMachine

SHELLS = {"dash": ("dash",), "busybox": ("busybox", "sh"), "bash": ("bash",)}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user may enter too (pytest's own is closed to others)."""
    with tempfile.TemporaryDirectory(prefix="eagle3-facts-") as name:
        Path(name).chmod(0o755)
        yield Path(name).resolve()


@pytest.fixture(params=sorted(SHELLS))
def machine(request: pytest.FixtureRequest, folder: Path) -> ThisMachine:
    shell = SHELLS[request.param]
    if shutil.which(shell[0]) is None:
        pytest.skip(f"LOUD: {shell[0]} is not on this machine")
    return ThisMachine(folder, shell)
