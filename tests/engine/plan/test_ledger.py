"""The disk ledger, by filesystem and in plan order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

from runbooks.engine.model.diagnostic import ExitCode
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Host, Root
from runbooks.engine.model.probe import Shell, Unknown
from runbooks.engine.model.runbook import Estimate
from runbooks.engine.model.values import RootName, Size
from runbooks.engine.plan.planner import make_plan
from runbooks.engine.plan.survey import Survey
from tests.engine.scripted import World, registry, runbook, setting

GIB = 2**30


class DiskFree(Fact):
    name = "disk_free"
    about = "Free space."
    arguments = {"root": Argument(RootName(), "which")}
    fields = {"free": Field(Size(), "free", volatile=True)}
    value = "free"

    def read(self, args, context):
        output = yield Shell(f"disk_free {args['root']}", "")
        if output.exit:
            raise Unknown("df: permission denied")
        return {"free": int(output.text)}


class TwoRoots(World):
    """Two hosts that share one filesystem under two names, with a reserve of 1 GiB."""

    @property
    def hosts(self):
        def root(name):
            return Root(name, PurePosixPath(f"/{name}"), "one", "tank", reserve=GIB)

        return {
            host: Host(host, roots={"data": root("data"), "more": root("more")})
            for host in self.flags
        }


def plan_with(free: int | None, *estimates: Estimate):
    facts = registry()
    facts.add_fact(DiskFree())
    answer = {} if free is None else {"disk_free data": None, "data": str(free), "more": str(free)}
    world = TwoRoots({"one": answer, "two": dict(answer)})
    steps = [
        setting(f"s{number}", estimate=estimate, hosts=["one" if number % 2 == 0 else "two"])
        for number, estimate in enumerate(estimates)
    ]
    return make_plan(Survey(runbook(*steps), facts, world, Path("/p")))


def test_entries_of_one_filesystem_are_added_over_hosts_and_roots() -> None:
    plan = plan_with(
        10 * GIB, Estimate(writes={"data": 4 * GIB}), Estimate(writes={"more": 3 * GIB})
    )
    (balance,) = plan.ledger
    assert (balance.filesystem, balance.roots) == ("tank", ("data", "more"))
    assert (balance.writes, balance.lowest, balance.short) == (7 * GIB, 3 * GIB, False)


def test_what_is_freed_later_does_not_help_earlier() -> None:
    plan = plan_with(5 * GIB, Estimate(writes={"data": 6 * GIB}), Estimate(frees={"data": 9 * GIB}))
    (balance,) = plan.ledger
    assert (balance.lowest, balance.short) == (-GIB, True)
    assert plan.code is ExitCode.PRECONDITION


def test_freed_first_makes_room() -> None:
    plan = plan_with(
        5 * GIB, Estimate(frees={"data": 9 * GIB}), Estimate(writes={"data": 12 * GIB})
    )
    (balance,) = plan.ledger
    assert (balance.lowest, balance.short) == (2 * GIB, False)


def test_the_reserve_counts() -> None:
    (balance,) = plan_with(5 * GIB, Estimate(writes={"data": 4 * GIB + 1})).ledger
    assert balance.short


def test_free_space_that_cannot_be_read_is_said() -> None:
    (balance,) = plan_with(None, Estimate(writes={"data": GIB})).ledger
    assert (balance.free, balance.problem, balance.short) == (None, "df: permission denied", False)


def test_satisfied_steps_write_nothing() -> None:
    facts = registry()
    facts.add_fact(DiskFree())
    world = TwoRoots({"one": {"s": "on", "data": str(GIB)}})
    step = replace(setting("s"), estimate=Estimate(writes={"data": 9 * GIB}))
    assert make_plan(Survey(runbook(step), facts, world, Path("/p"))).ledger == ()
