"""The project's own code on this controller as a wheel, and the digest that names it.

The wheel is made here, byte for byte the same for the same files: no build backend, no
network, no clock. Its metadata is that of the distribution this controller runs (binary
distribution format: packaging.python.org/specifications/binary-distribution-format).
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import deploy
from deploy.distribution import NAME, PACKAGES, source_files
from runbooks.engine.model.operation import OperationFailed

__all__ = ["Wheel", "code_digest", "own_files", "own_wheel"]


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel in memory: its file name and its bytes."""

    name: str
    content: bytes


def own_files(project: Path) -> dict[str, bytes]:
    """The code of the project's tree, or of what runs here where there is no tree."""
    top = project
    if not all((project / package).is_dir() for package in PACKAGES):
        top = Path(deploy.__file__).parent.parent
    return {name: (top / name).read_bytes() for name in source_files(top)}


def code_digest(files: Mapping[str, bytes]) -> str:
    """What `deploy.distribution.digest` gives, of files held in memory."""
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def own_wheel(code: Mapping[str, bytes]) -> Wheel:
    """The wheel of the project's own code (`own_files`); OperationFailed when its metadata is not there."""
    try:
        installed = distribution(NAME)
    except PackageNotFoundError:
        raise OperationFailed(
            f"{NAME} is not installed on this controller, so its metadata is not known; "
            "install it first (pip install -e .)"
        ) from None
    version = installed.version
    base = f"{NAME.replace('-', '_')}-{version}"
    info = f"{base}.dist-info"
    files = dict(code)
    files[f"{info}/METADATA"] = (installed.read_text("METADATA") or "").encode()
    files[f"{info}/entry_points.txt"] = (installed.read_text("entry_points.txt") or "").encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: eagle3-runbooks\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n"
    )
    return Wheel(f"{base}-py3-none-any.whl", _packed(files, f"{info}/RECORD"))


def _packed(files: Mapping[str, bytes], record: str) -> bytes:
    rows = [f"{name},{_record_digest(content)},{len(content)}" for name, content in files.items()]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (
            *sorted(files.items()),
            (record, ("\n".join([*sorted(rows), f"{record},,"]) + "\n").encode()),
        ):
            entry = zipfile.ZipInfo(name)  # dated 1980, the format's first day
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return stream.getvalue()


def _record_digest(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"
