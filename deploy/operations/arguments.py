"""Types of arguments that only operations have: project files, modes, a job's progress."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runbooks.engine.model.values import HostPath, Integer, ValueType, typed_schema

__all__ = ["JobProgress", "Mode", "Plain", "ProjectFile", "Sha256"]

_END = r"$(?!\n)"


@dataclass(frozen=True)
class ProjectFile(ValueType):
    """A file or folder of the project on the controller, by its path below the project."""

    name = "project file"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "pattern": r"^(?!/)"}

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str) or not raw or "\0" in raw or "\n" in raw:
            raise ValueError(
                f"{raw!r} is not a file of the project; write for example deploy/templates/x.j2"
            )
        if raw.startswith("/"):
            raise ValueError(f"{raw!r} is absolute; write a path below the project")
        if ".." in raw.split("/"):
            raise ValueError(f"{raw!r} leaves the project; write a path without '..'")
        return raw


@dataclass(frozen=True)
class Mode(ValueType):
    """File permissions in octal digits, as text: `0644`."""

    name = "mode"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": rf"^[0-7]{{3,4}}{_END}"}

    def parse(self, raw: object) -> str:
        if isinstance(raw, str) and re.fullmatch(r"[0-7]{3,4}", raw):
            return raw.rjust(4, "0")
        raise ValueError(f"{raw!r} is not a mode; write octal digits in quotes, for example '0644'")


@dataclass(frozen=True)
class Sha256(ValueType):
    """A SHA-256 digest as 64 hexadecimal digits."""

    name = "sha256"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": rf"^[0-9a-f]{{64}}{_END}"}

    def parse(self, raw: object) -> str:
        if isinstance(raw, str) and re.fullmatch(r"[0-9a-f]{64}", raw):
            return raw
        raise ValueError(f"{raw!r} is not a SHA-256 digest; write 64 digits of 0-9a-f")


@dataclass(frozen=True)
class Plain(ValueType):
    """A text, a number, a boolean, or a list of these: what a template may be given."""

    name = "plain value"

    def schema(self) -> dict[str, Any]:
        scalar = ["string", "number", "boolean"]
        return {"type": [*scalar, "array"], "items": {"type": scalar}}

    def parse(self, raw: object) -> Any:
        if isinstance(raw, (str, int, float)):
            return raw
        if isinstance(raw, Sequence) and all(isinstance(item, (str, int, float)) for item in raw):
            return tuple(raw)
        raise ValueError(f"{raw!r} is not a text, number, boolean, or list of these")


@dataclass(frozen=True)
class JobProgress(ValueType):
    """Where a job's progress is read: `{file: data:hidden/progress.json}`, or a count of files."""

    name = "job progress"

    def schema(self) -> dict[str, Any]:
        path = typed_schema(HostPath())
        return {
            "type": "object",
            "additionalProperties": False,
            "minProperties": 1,
            "properties": {
                "file": path
                | {
                    "description": "A JSON file {done, total, rate, eta_s, …} that the job rewrites"
                },
                "count": path | {"description": "A pattern; the files that match it are counted"},
                "of": typed_schema(Integer(1))
                | {"description": "How many files the pattern matches at the end"},
            },
        }

    def parse(self, raw: object) -> dict[str, Any]:
        if not isinstance(raw, Mapping):
            raise ValueError(f"{raw!r} is not a mapping; write {{file: data:hidden/progress.json}}")
        if unknown := sorted(set(map(str, raw)) - {"file", "count", "of"}):
            raise ValueError(f"{unknown[0]!r} is none of: file, count, of")
        if ("file" in raw) == ("count" in raw):
            raise ValueError("write either file, or count and of")
        if ("count" in raw) != ("of" in raw):
            raise ValueError(
                "count and of belong together; write {count: 'data:x/*.done', of: 8780}"
            )
        if "file" in raw:
            return {"file": HostPath().parse(raw["file"])}
        return {"count": HostPath().parse(raw["count"]), "of": Integer(1).parse(raw["of"])}

    def show(self, value: Any) -> str:
        return "{" + ", ".join(f"{key}: {item}" for key, item in value.items()) + "}"
