"""Jobs: long processes that belong to the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from deploy.operations.job_folder import job_state, probe
from deploy.shell import one_line
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Asking, Shell
from runbooks.engine.model.values import ABSENT, Choice, Duration, Integer, Text


class JobFact(Fact):
    """`job: {step: extract, state: finished}`."""

    name = "job"
    about = "The newest job of a step on this host."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "step": Argument(Text(), "The step that started it; this step by default."),
        "runbook": Argument(Text(), "The step's runbook; this runbook by default."),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "state": Field(
            Choice(("absent", "running", "finished", "failed", "lost")),
            "`finished` is exit 0, `lost` is gone without an exit status.",
            volatile=True,
        ),
        "exit": Field(Integer(0), "Its exit status; absent while it runs.", volatile=True),
        "pid": Field(Integer(1), "Its process.", volatile=True),
        "age": Field(Duration(), "The time since its start.", volatile=True),
        "reason": Field(Text(), "Why it is lost, or what ended it.", volatile=True),
    }
    value = "state"

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Read the job's folder; `job_folder` of the operations judges it."""
        step = args.get("step") or context.step
        runbook = args.get("runbook") or context.runbook
        label = f"job {step}" if args.get("runbook") is None else f"job {runbook}/{step}"
        found = job_state((yield Shell(one_line(label), probe(runbook, step))).expect())
        if found.state == "none":
            return dict.fromkeys(self.fields, ABSENT) | {"state": "absent"}
        state = found.state
        if state == "ended":
            state = "finished" if found.exit == 0 else "failed"
        age = ABSENT if found.started is None else max(0, round(found.now - found.started))
        return {
            "state": state,
            "exit": ABSENT if found.exit is None else found.exit,
            "pid": found.pid if found.pid is not None and state == "running" else ABSENT,
            "age": age,
            "reason": found.reason or ABSENT,
        }
