"""Every registered operation, planned against a recording fake host, changes nothing.

A property of the registry: an operation that somebody registers is covered without a new test.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runbooks.engine.adapter.inventory import make_fleet
from runbooks.engine.model.diagnostic import Place
from runbooks.engine.model.runbook import Act, Irreversible, Runbook, Step
from runbooks.engine.plan.planner import make_plan
from runbooks.engine.plan.survey import Survey
from runbooks.engine.registry import installed
from tests.deploy.operations.sample_arguments import arguments
from tests.deploy.operations.test_preview_is_read_only import MUTATING, QUOTED
from tests.engine.scripted import flag

REGISTRY = installed()


@pytest.fixture
def fleet(tmp_path: Path):
    inventory = tmp_path / "hosts.py"
    root = {"path": str(tmp_path), "owner": "recorder", "filesystem": "t"}
    data = {"roots": {"data": root}, "fake_delay": 0, "fake_delay_jitter": 0}
    inventory.write_text(f"recorders = [('@fake/recorder', {data!r})]\n")
    return make_fleet(str(inventory))


@pytest.mark.parametrize("name", sorted(REGISTRY.operations))
def test_planning_sends_questions_only(name: str, fleet, tmp_path: Path) -> None:
    operation = REGISTRY.operations[name]
    (tmp_path / "some.patch").write_text("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+two\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    steps = {}
    for number, args in enumerate(arguments(operation)):
        steps[f"s{number}"] = Step(
            id=f"s{number}",
            place=Place(Path("t.yaml"), 1),
            needs=(),
            hosts=("recorder",),
            do=Act(operation, args),
            ensures=(flag("never", "on"),),
            irreversible=Irreversible("x", "none") if operation.destructive else None,
        )
    assert steps
    runbook = Runbook("t", Path("t.yaml"), "", steps, tuple(steps))
    plan = make_plan(Survey(runbook, REGISTRY, fleet, tmp_path))
    (host,) = fleet.state.inventory
    sent = host.connector.executed_commands
    assert len(plan.rows) == len(steps)
    assert fleet.recorded == [], "no change was asked for"
    assert sent, "the plan asked the host"
    for text in sent:
        assert text.startswith("# "), f"not a question: {text[:80]}"
        script = QUOTED.sub("''", text.partition("\n")[2])
        if operation.name in text.partition("\n")[0]:
            assert not MUTATING.search(script), MUTATING.search(script)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
