"""A world whose hosts have checkpoints, and a fact with several fields."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from runbooks.engine.fleet import Unreachable
from runbooks.engine.model.check import Check, Want
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.probe import Output, Unknown
from runbooks.engine.model.probe import Shell as Question
from runbooks.engine.model.runbook import Step
from runbooks.engine.model.values import ABSENT, Integer, Size, Text
from tests.engine.scripted import SET, World, step


class Thing(Fact):
    """A host's world maps its name to JSON of its fields; `"?"` as a field is not known."""

    name = "thing"
    about = "Something with several fields."
    arguments = {"name": Argument(Text(), "which", required=True)}
    fields = {
        "is": Field(Text(), "what it is"),
        "files": Field(Integer(0), "how many"),
        "size": Field(Size(), "how large"),
        "free": Field(Size(), "how much is left", volatile=True),
    }
    value = "is"

    def read(self, args, context):
        output = yield Question(f"thing {args['name']}", "")
        if output.exit == 13:
            raise Unknown("permission denied")
        found = json.loads(output.text) if output.exit == 0 else {}
        return {
            name: Unknown("cannot be read") if found.get(name) == "?" else found.get(name, ABSENT)
            for name in self.fields
        }


THING = Thing()


def thing(name: str, *, host: str | None = None, **wanted: Any) -> Check:
    """`thing("x", is_="directory", free=("ge", 5))`."""
    wants = []
    for key, value in wanted.items():
        operator, value = value if isinstance(value, tuple) else ("eq", value)
        key = key.rstrip("_")
        wants.append(Want(key, operator, value, Thing.fields[key].type))
    return Check(THING, {"name": name}, tuple(wants), host=host)


def making(name: str, *checks: Check, **more: Any) -> Step:
    """A step that ensures these checks."""
    return step(name, do=(SET, {"name": name, "to": "on"}), ensures=checks, **more)


def described(**fields: Any) -> str:
    return json.dumps(fields)


@dataclass
class Recorded(World):
    """`records` is the checkpoint file of each host; an exit status stands for a failing read."""

    records: dict[str, str | int] = field(default_factory=dict)

    def ask(self, questions):
        answers = super().ask(questions)
        for index, (host, shell) in enumerate(questions):
            if shell.label.startswith("checkpoints ") and not isinstance(
                answers[index], Unreachable
            ):
                text = self.records.get(host, "")
                failing = isinstance(text, int)
                answers[index] = Output(text) if failing else Output(0, text.encode())
        return answers
