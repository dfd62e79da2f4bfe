"""Arguments for any operation, made from the types it declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deploy.operations.arguments import JobProgress, Mode, Plain, ProjectFile, Sha256
from runbooks.engine.model.operation import Operation
from runbooks.engine.model.values import (
    Boolean,
    Choice,
    Duration,
    HostName,
    HostPath,
    Integer,
    ListOf,
    MapOf,
    Number,
    Percent,
    RootName,
    RootPath,
    Size,
    Text,
    ValueType,
)

__all__ = ["arguments", "samples"]


def samples(kind: ValueType, path: str) -> list[object]:
    """Raw values of a type; a type that is unknown here must be added."""
    match kind:
        case Choice(words=words):
            return list(words)
        case Boolean():
            return [True, False]
        case ListOf(item=item):
            return [samples(item, path)[:1]]
        case MapOf(item=item):
            return [{"NAME": samples(item, path)[0]}]
        case RootPath() | HostPath():
            return [path]
    plain: dict[type, list[object]] = {
        Text: ["ls"],
        Integer: [1],
        Number: [0.5],
        Size: ["1 GiB"],
        Duration: ["1h"],
        Percent: ["2%"],
        RootName: ["data"],
        HostName: ["here"],
        ProjectFile: ["some.patch"],
        Mode: ["0600"],
        Sha256: ["0" * 64],
        Plain: ["text"],
        JobProgress: [{"file": path}, {"count": "data:tree/*.txt", "of": 3}],
    }
    assert type(kind) in plain, f"say in this test what a {kind.name} ({type(kind)}) looks like"
    return plain[type(kind)]


def arguments(operation: Operation) -> Iterator[dict[str, Any]]:
    """The required ones alone, and all of them, for each kind of path and each choice."""
    for path in ("data:tree", "data:tree/file.txt", "data:missing/file", "data:link"):
        for only_required in (True, False):
            names = [
                name
                for name, argument in operation.arguments.items()
                if argument.required or not only_required
            ]
            values = [samples(operation.arguments[name].type, path) for name in names]
            longest = max(map(len, values), default=1)
            for row in range(longest):
                yield {
                    name: operation.arguments[name].type.parse(options[row % len(options)])
                    for name, options in zip(names, values, strict=True)
                }
