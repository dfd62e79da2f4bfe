"""Random graphs: every unit ends once, in order, and a failure stops its dependants alone."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbooks.engine.run.outcome import Outcome, Result
from runbooks.engine.run.scheduler import Scheduler
from tests.engine.scripted import runbook, step


@st.composite
def graphs(draw):
    """Steps whose needs point backwards, on one to three hosts, some of which fail."""
    steps = []
    for number in range(draw(st.integers(1, 8))):
        earlier = [item.id for item in steps]
        needs = draw(st.lists(st.sampled_from(earlier), unique=True)) if earlier else []
        hosts = draw(st.lists(st.sampled_from(["one", "two", "six"]), min_size=1, unique=True))
        steps.append(step(f"s{number}", needs=needs, hosts=hosts))
    units = [(item.id, host) for item in steps for host in item.hosts]
    return steps, draw(st.sets(st.sampled_from(units)))


@given(graphs())
def test_every_unit_ends_once_and_failures_stop_exactly_their_dependants(graph) -> None:
    steps, failing = graph
    book = runbook(*steps)
    lock, order, busy = threading.Lock(), [], set()

    def execute(item, host):
        with lock:
            assert host not in busy, "one host runs one step at a time"
            busy.add(host)
            order.append((item.id, host))
        result = Result.FAILED if (item.id, host) in failing else Result.RAN
        with lock:
            busy.discard(host)
        return Outcome(item.id, host, result)

    def skip(item, host, result, reason):
        return Outcome(item.id, host, result, reason)

    outcomes = Scheduler(book, execute, lambda item, host: None, skip, threading.Event()).run()
    units = {(item.id, host) for item in steps for host in item.hosts}
    assert set(outcomes) == units
    assert len(order) == len(set(order))
    broken: set[str] = set()
    for item in steps:
        skipped = any(need in broken for need in item.needs)
        for host in item.hosts:
            if skipped:
                expected = Result.SKIPPED
            else:
                expected = Result.FAILED if (item.id, host) in failing else Result.RAN
            assert outcomes[item.id, host].result is expected
        if skipped or any((item.id, host) in failing for host in item.hosts):
            broken.add(item.id)
        for need in item.needs:
            for host in item.hosts:
                for other in book.steps[need].hosts:
                    if (item.id, host) in order:
                        assert order.index((need, other)) < order.index((item.id, host))


def test_a_fault_of_the_engine_is_not_swallowed() -> None:
    def execute(item, host):
        raise ZeroDivisionError

    scheduler = Scheduler(
        runbook(step("a")), execute, lambda *_: None, lambda *_: None, threading.Event()
    )
    with pytest.raises(ZeroDivisionError):
        scheduler.run()
