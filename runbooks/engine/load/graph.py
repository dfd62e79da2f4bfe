"""`needs` as a graph: unknown steps, cycles, an order."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

from runbooks.engine.load.collector import Collector
from runbooks.engine.load.variables import cycle_in
from runbooks.engine.model.diagnostic import did_you_mean

__all__ = ["judge_needs", "order_of"]


def judge_needs(steps: Mapping[str, Any], found: Collector) -> None:
    """Tell needs that name nobody, twice the same, or each other in a circle."""
    graph: dict[str, list[str]] = {}
    for name, step in steps.items():
        needs = step.get("needs") if isinstance(step, dict) else None
        graph[name] = []
        seen: set[str] = set()
        for index, other in enumerate(needs if isinstance(needs, list) else ()):
            path = ("steps", name, "needs", index)
            if not isinstance(other, str) or found.touches(path):
                continue
            if other in seen:
                found.value(path, f"'{other}' stands twice in needs")
            elif other in steps:
                graph[name].append(other)
            else:
                hint = did_you_mean(other, (step for step in steps if step != name))
                message = f"step '{name}' needs '{other}', which is no step"
                if hint and hint.startswith("did"):
                    message, hint = f"{message}; {hint}", None
                found.value(path, message, hint)
            seen.add(other)
    _judge_cycles(steps, graph, found)


def _judge_cycles(steps: Mapping[str, Any], graph: dict[str, list[str]], found: Collector) -> None:
    while cycle := cycle_in(graph):
        members = set(cycle)
        entries = [
            ("steps", name, "needs", index)
            for name in cycle
            for index, other in enumerate(steps[name]["needs"])
            if other in members and other == cycle[(cycle.index(name) + 1) % len(cycle)]
        ]
        first = min(entries, key=found.places.value)
        start = cycle.index(str(first[1]))
        turn = [*cycle[start:], *cycle[:start], cycle[start]]
        found.value(first, f"steps wait for each other in a cycle: {' → '.join(turn)}")
        # Cutting the cycle where it was told lets another one be found.
        graph[str(first[1])].remove(steps[first[1]]["needs"][first[3]])


def order_of(needs: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """An order that respects needs, as near to the file's as that allows."""
    position = {name: index for index, name in enumerate(needs)}
    waiting = {name: len(others) for name, others in needs.items()}
    users: dict[str, list[str]] = {name: [] for name in needs}
    for name, others in needs.items():
        for other in others:
            users[other].append(name)
    ready = [position[name] for name, count in waiting.items() if not count]
    heapq.heapify(ready)
    names = list(needs)
    order: list[str] = []
    while ready:
        name = names[heapq.heappop(ready)]
        order.append(name)
        for user in users[name]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, position[user])
    return tuple(order)
