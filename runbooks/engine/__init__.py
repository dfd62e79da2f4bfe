"""A runbook engine on pyinfra: each step is checked right before it acts and right after.

A deploy file beside a runbook is two lines:

    from runbooks.engine import run_runbook
    run_runbook(__file__)

Facts, operations and estimators register through `Registry` (entry-point group
`eagle3_runbooks.plugins`). Dependencies point one way: `model` ← `load`, `plan`, `run` ←
`session` ← `view`, `commands`; only `adapter` imports pyinfra.
"""

from __future__ import annotations

from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.operation import Command, Operation, OperationFailed, Preview
from runbooks.engine.model.probe import Shell, Unknown
from runbooks.engine.model.values import ABSENT
from runbooks.engine.registry import Estimator, Registry

__all__ = [
    "ABSENT",
    "Argument",
    "Command",
    "Estimator",
    "Fact",
    "Field",
    "Operation",
    "OperationFailed",
    "Preview",
    "Registry",
    "Shell",
    "Unknown",
    "run_runbook",
]


def run_runbook(deploy_file: str) -> None:
    """Plan, and where pyinfra executes run, the runbook beside `deploy_file`.

    Called by pyinfra once for each host; the first call plans for all of them.
    """
    # Imported here: facts and operations import this package without pyinfra.
    from runbooks.engine.adapter.door import run_runbook as run

    run(deploy_file)
