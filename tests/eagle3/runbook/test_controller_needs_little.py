"""A controller has neither torch, transformers nor pyarrow: the facts load and judge without."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.targets import REPOSITORY

SCRIPT = """
import sys

BLOCKED = {"accelerate", "gguf", "numpy", "pyarrow", "safetensors", "tokenizers", "torch",
           "transformers"}

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"a controller has no {name}")

sys.meta_path.insert(0, Block())
from pathlib import Path
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:randomly",
                      "tests/eagle3/runbook/test_fact_cases.py", "--noconftest"]))
"""


def test_the_fact_cases_pass_without_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
