"""Which hosts a run locks, and what each of its locks protects."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from runbooks.engine.lock.reach import guests_of, locked_hosts
from runbooks.engine.model.host import Host, Root
from runbooks.engine.model.runbook import Estimate
from tests.engine.scripted import SET, flag, runbook, setting, step


def fleet() -> dict[str, Host]:
    data = {"data": Root("data", PurePosixPath("/data"), "kpro6", "tank")}
    return {
        "kpro6": Host("kpro6", roots=data),
        "llm-two": Host("llm-two", roots=data, guest_of="kpro6"),
        "llm-one": Host("llm-one", roots=data, guest_of="kpro6"),
        "inner": Host("inner", guest_of="llm-one"),
        "alone": Host("alone", roots=data),
    }


def writing(name: str, value: str, **more):
    return step(name, do=(SET, {"name": name, "to": value}), ensures=(flag(name, "x"),), **more)


def test_a_step_that_names_no_root_locks_its_host_alone():
    assert locked_hosts(runbook(setting("a", hosts=["alone"])), fleet()) == {"alone": ("alone",)}


def test_gates_lock_nothing():
    gate = step("gate", hosts=["alone"], requires=(flag("a", "on"),))
    assert locked_hosts(runbook(gate), fleet()) == {}


@pytest.mark.parametrize(
    "value", ["data:merged", "${{ root.data }}/merged", "--out=${{root.data}}"]
)
def test_the_owner_of_a_root_is_locked_and_with_it_its_guests(value):
    found = locked_hosts(runbook(writing("a", value, hosts=["llm-two"])), fleet())
    assert found == {
        "inner": ("inner",),
        "kpro6": ("inner", "kpro6", "llm-one", "llm-two"),
        "llm-one": ("inner", "llm-one"),
        "llm-two": ("llm-two",),
    }


def test_a_text_that_only_looks_like_a_root_names_none():
    found = locked_hosts(runbook(writing("a", "http:80", hosts=["llm-two"])), fleet())
    assert list(found) == ["llm-two"]


def test_an_estimate_names_the_roots_that_are_written():
    one = setting("a", hosts=["alone"], estimate=Estimate(writes={"data": 5}))
    assert set(locked_hosts(runbook(one), fleet())) == set(fleet())


def test_what_may_not_act_locks_nothing():
    one = setting("a", hosts=["alone", "llm-one"])
    found = locked_hosts(
        runbook(one), fleet(), lambda step, host: "outside" if host == "alone" else None
    )
    assert found == {"inner": ("inner",), "llm-one": ("inner", "llm-one")}


def test_guests_at_any_depth():
    assert guests_of("kpro6", fleet()) == ("inner", "llm-one", "llm-two")
    assert guests_of("inner", fleet()) == ()
