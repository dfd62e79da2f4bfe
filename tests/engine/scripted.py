"""A small world in memory: one fact, three operations, and a fleet that answers from a dict.

The world of a host maps names to texts. A script's label is the question: `flag NAME`.
`DENIED` as a value makes the probe fail as a forbidden one does.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from runbooks.engine.fleet import Fenced, ReadOnlyError, Unreachable
from runbooks.engine.model.check import Check, Want
from runbooks.engine.model.diagnostic import Place
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context, Host, Root
from runbooks.engine.model.operation import Command, Operation, OperationFailed, Preview, Wait
from runbooks.engine.model.probe import Output, Shell, Unknown
from runbooks.engine.model.runbook import Act, Irreversible, Runbook, Step
from runbooks.engine.model.values import ABSENT, Text
from runbooks.engine.registry import Registry

DENIED = object()


class Flag(Fact):
    name = "flag"
    about = "A named text of the world."
    arguments = {"name": Argument(Text(), "which", required=True)}
    fields = {"is": Field(Text(), "its text")}

    def read(self, args, context):
        output = yield Shell(f"flag {args['name']}", "")
        if output.exit == 13:
            raise Unknown("permission denied")
        return {"is": output.text if output.exit == 0 else ABSENT}


class SetFlag(Operation):
    name = "set"
    about = "Give a flag a text."
    arguments = {
        "name": Argument(Text(), "which", required=True),
        "to": Argument(Text(), "its text", required=True),
    }

    def preview(self, args, context):
        output = yield Shell(f"flag {args['name']}", "")
        return Preview(summary=f"{args['name']}: {output.text or 'absent'} → {args['to']}")

    def act(self, args, context):
        output = yield Command(argv=("set", args["name"], args["to"]))
        if output.exit:
            raise OperationFailed(f"set exited with {output.exit}")
        return f"{args['name']} is {args['to']}"


class DropFlag(Operation):
    name = "drop"
    about = "Remove a flag."
    arguments = {"name": Argument(Text(), "which", required=True)}
    destructive = True
    symbol = "-"

    def preview(self, args, context):
        output = yield Shell(f"flag {args['name']}", "")
        return Preview(
            summary=f"drop {args['name']}",
            frees={"data": len(output.stdout)},
            identity=f"flag {args['name']}",
        )

    def act(self, args, context):
        yield Command(argv=("drop", args["name"]))
        return "dropped"


class Work(Operation):
    """Long: starts a job that lives until the world says otherwise."""

    name = "work"
    about = "A job."
    arguments = {"name": Argument(Text(), "which", required=True)}
    long = True
    symbol = ">"

    def preview(self, args, context):
        return Preview(summary="work")
        yield

    def alive(self, args, context):
        output = yield Shell(f"flag job-{args['name']}", "")
        return output.exit == 0

    def attach(self, args, context):
        return self._wait(args)

    def act(self, args, context):
        yield Command(argv=("set", f"job-{args['name']}", "1"))
        return (yield from self._wait(args))

    def _wait(self, args):
        yield Wait(0)
        yield Command(argv=("finish", args["name"]))
        return "worked"


@dataclass
class World:
    """A fleet in memory; `log` lists mutating commands as (host, argv)."""

    flags: dict[str, dict[str, Any]]
    down: set[str] = field(default_factory=set)
    log: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    rounds: int = 0
    deaf: set[tuple[str, ...]] = field(default_factory=set)
    reading: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    before: Any = None
    locks: dict[str, str] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)
    locking: list[tuple[str, str]] = field(default_factory=list)

    @property
    def hosts(self) -> Mapping[str, Host]:
        data = {"data": Root("data", PurePosixPath("/data"), "one", "tank")}
        return {name: Host(name, roots=data) for name in self.flags}

    def connect(self, names: Sequence[str]) -> Mapping[str, str]:
        return {name: "no route to host" for name in names if name in self.down}

    def ask(self, questions):
        self.rounds += 1
        answers = []
        for host, shell in questions:
            self.asked.append((host, shell.label))
            if host in self.down:
                answers.append(Unreachable(host, "no route to host"))
                continue
            value = self.flags[host].get(shell.label.partition(" ")[2])
            if value is DENIED:
                answers.append(Output(13, stderr="Permission denied"))
            elif value is None:
                answers.append(Output(1))
            else:
                answers.append(Output(0, str(value).encode()))
        return answers

    def perform(self, host, action, fence=""):
        if self.reading:
            raise ReadOnlyError(str(action))
        if host in self.down:
            raise Unreachable(host, "no route to host")
        if fence and host in self.taken:
            raise Fenced(host, self.taken[host])
        if action.label.startswith("lock "):
            return self.lock_command(host, action)
        with self.lock:
            self.log.append((host, action.argv))
        if self.before is not None:
            self.before(host, action.argv)
        if action.argv in self.deaf:
            return Output(0)
        match action.argv:
            case ("set", name, text):
                self.flags[host][name] = text
            case ("drop", name):
                self.flags[host].pop(name, None)
            case ("finish", name):
                self.flags[host].pop(f"job-{name}", None)
                self.flags[host][name] = "done"
            case ("fail", *_):
                return Output(1)
        return Output(0)

    def lock_command(self, host, action):
        """Locks are free unless `locks` tells what is read of one; `taken` fences changes."""
        self.locking.append((host, action.label))
        return Output(0, self.locks.get(host, "held\t1\n").encode())

    def read_only(self, on: bool) -> None:
        self.reading = on


PLACE = Place(Path("test.yaml"), 1)
FLAG, SET, DROP, WORK = Flag(), SetFlag(), DropFlag(), Work()


def registry() -> Registry:
    made = Registry()
    made.add_fact(FLAG)
    for operation in (SET, DROP, WORK):
        made.add_operation(operation)
    return made


def flag(name: str, text: str, host: str | None = None) -> Check:
    want = Want("is", "eq", text, Text())
    return Check(FLAG, {"name": name}, (want,), host=host, place=PLACE)


def step(name: str, *, needs=(), hosts=("one",), do=None, **more: Any) -> Step:
    """`do` is (operation, arguments); without `ensures` a set step ensures its own flag."""
    act = Act(do[0], do[1]) if do else None
    if act and "ensures" not in more:
        if act.operation is SET:
            more["ensures"] = (flag(act.args["name"], act.args["to"]),)
        elif act.operation is WORK:
            more["ensures"] = (flag(act.args["name"], "done"),)
    if act and act.operation is DROP:
        more.setdefault("irreversible", Irreversible("a flag", "none"))
    return Step(id=name, place=PLACE, needs=tuple(needs), hosts=tuple(hosts), do=act, **more)


def setting(name: str, to: str = "on", **more: Any) -> Step:
    return step(name, do=(SET, {"name": more.pop("flag", name), "to": to}), **more)


def runbook(*steps: Step) -> Runbook:
    """A runbook of steps given in an order that respects `needs`."""
    table = {item.id: item for item in steps}
    return Runbook("test", Path("test.yaml"), "a test", table, tuple(table))


def context(world: World, host: str = "one") -> Context:
    return Context(world.hosts[host], world.hosts, Path("/project"))
