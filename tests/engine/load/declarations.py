"""Small declarations of facts, operations and hosts: enough for the loader, runnable by none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from deploy.operations.arguments import JobProgress
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context, Host, Root
from runbooks.engine.model.operation import Acting, Operation, Previewing
from runbooks.engine.model.probe import Asking
from runbooks.engine.model.values import (
    Boolean,
    Choice,
    HostName,
    HostPath,
    Integer,
    ListOf,
    MapOf,
    RootName,
    RootPath,
    Size,
    Text,
    ValueType,
)
from runbooks.engine.registry import Estimator, Registry

DATA = Root("data", PurePosixPath("/data/eagle3"), "kpro6", "tank/data", True)
MODEL = Root("model", PurePosixPath("/data/models"), "kpro6", "tank/models")
HOSTS = {
    "kpro6": Host("kpro6", "proxmox", ("metal",), {"data": DATA}),
    "llm-two": Host("llm-two", "container", ("gpu",), {"data": DATA, "model": MODEL}),
    "llm-one": Host("llm-one", "guest", ("gpu",), {}),
}


class StubFact(Fact):
    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        raise NotImplementedError
        yield


class StubOperation(Operation):
    def preview(self, args: Mapping[str, Any], context: Context) -> Previewing:
        raise NotImplementedError
        yield

    def act(self, args: Mapping[str, Any], context: Context) -> Acting:
        raise NotImplementedError
        yield


def need(kind: ValueType) -> Argument:
    return Argument(kind, "An argument", required=True)


def may(kind: ValueType, default: Any = None) -> Argument:
    return Argument(kind, "An argument", default=default)


def lasting(kind: ValueType) -> Field:
    return Field(kind, "A durable field")


def fleeting(kind: ValueType) -> Field:
    return Field(kind, "A volatile field", volatile=True)


def fact(
    word: str, value: str | None = None, defaults: Mapping[str, Any] | None = None, **parts: Any
) -> Fact:
    arguments = {key: item for key, item in parts.items() if isinstance(item, Argument)}
    fields = {key: item for key, item in parts.items() if isinstance(item, Field)}
    body = {
        "name": word,
        "about": f"The fact {word}.",
        "arguments": {key.rstrip("_"): item for key, item in arguments.items()},
        "fields": {key.rstrip("_"): item for key, item in fields.items()},
        "value": value,
        "defaults": defaults or {},
    }
    return type(word.title(), (StubFact,), body)()


def operation(
    word: str, destructive: bool = False, long: bool = False, **arguments: Argument
) -> Operation:
    body = {
        "name": word,
        "about": f"The operation {word}.",
        "arguments": {key.rstrip("_"): item for key, item in arguments.items()},
        "destructive": destructive,
        "long": long,
    }
    return type(word.title(), (StubOperation,), body)()


def registry() -> Registry:
    """A fresh registry of stubs with the names of the real ones."""
    made = Registry()
    for item in (
        fact(
            "path",
            "is",
            path=need(HostPath()),
            is_=lasting(Choice(("file", "directory", "absent"))),
            owner=lasting(Text()),
        ),
        fact("disk_free", "free", root=need(RootName()), free=fleeting(Size(estimate=True))),
        fact(
            "tree",
            "size",
            path=need(RootPath()),
            size=lasting(Size()),
            files=lasting(Integer(0)),
            open_files=fleeting(Integer(0)),
            one_filesystem=lasting(Boolean()),
        ),
        fact("git", repo=need(HostPath()), commit=lasting(Text()), clean=lasting(Boolean())),
        fact("row_count", "rows", path=need(RootPath()), rows=lasting(Integer(0))),
        fact("text_of", "text", path=need(HostPath()), text=lasting(Text(empty=True))),
        fact("dataset_inputs", config=need(Text()), present=lasting(Choice(("all", "none")))),
        fact("gpu_processes", orphans=fleeting(Integer(0)), zombies=fleeting(Integer(0))),
        fact("nvidia_driver", "loaded", as_=may(HostName()), loaded=lasting(Text())),
        fact("package", name_=need(Text()), digest=lasting(Text())),
        fact(
            "dataset",
            defaults={"complete": True},
            path=need(RootPath()),
            config=may(Text()),
            checksums=may(Choice(("recorded", "full")), "recorded"),
            samples=lasting(Integer(0)),
            complete=lasting(Boolean()),
        ),
        fact("sglang_patch", "is", patch=need(Text()), is_=lasting(Choice(("applied", "absent")))),
        fact(
            "sglang_server",
            mode=lasting(Choice(("extract", "serve", "stopped"))),
            healthy=fleeting(Boolean()),
            dump=lasting(Choice(("loaded", "absent"))),
            flags=lasting(Choice(("safe", "unsafe"))),
        ),
        fact("extraction_ready", probes=lasting(Choice(("all", "some")))),
        fact(
            "hidden_states",
            path=need(RootPath()),
            of=may(RootPath()),
            target=may(RootPath()),
            checksums=may(Choice(("recorded", "full")), "recorded"),
            complete=lasting(Boolean()),
        ),
    ):
        made.add_fact(item)
    argv = need(ListOf(Text()))
    for act in (
        operation(
            "command", argv=argv, env=may(MapOf(Text())), cwd=may(HostPath()), stdin=may(Text())
        ),
        operation(
            "job",
            long=True,
            argv=argv,
            env=may(MapOf(Text())),
            cwd=may(HostPath()),
            resumable=may(Boolean(), False),
            progress=may(JobProgress()),
        ),
        operation("delete", destructive=True, paths=need(ListOf(RootPath(inside=True)))),
        operation("package", name_=need(Text()), from_=may(Text())),
        operation("sglang_patch", patch=need(Text()), reverse=may(Boolean(), False)),
        operation("sglang_server", mode=need(Choice(("extract", "serve", "stopped")))),
    ):
        made.add_operation(act)
    made.add_estimator(
        Estimator(
            "extraction",
            "From the dataset and the target's config.",
            {"dataset": need(RootPath()), "target": need(RootPath()), "root": need(RootName())},
            lambda args, step, context: iter(()),
        ),  # type: ignore[arg-type, return-value]
    )
    return made
