"""`needs` as a graph: what each name stands for, unknown steps, cycles, an order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runbooks.engine.load.collector import Collector
from runbooks.engine.load.matrix import Instance, instance_id, parse_id
from runbooks.engine.load.places import NodePath
from runbooks.engine.load.variables import cycle_in, show_value
from runbooks.engine.model.diagnostic import did_you_mean

__all__ = ["Names", "Needs", "finals", "order_of"]


@dataclass
class Names:
    """What `needs` of one file may name: its own steps, and names of what it includes.

    `included` holds the ids that each name stands for. Of a `broken` include nothing is known,
    that names which begin with it are not judged; `blind`: of no include at all. `later` are
    includes that stand further down than the one whose needs are judged.
    """

    own: Mapping[str, Sequence[Instance]]
    included: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    blind: bool = False
    later: frozenset[str] = frozenset()

    def ids(self, name: str, values: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The ids that a step on `values` waits for by `name`; None where it names nobody.

        A step waits for the instances that agree with it on every axis that both are on.
        """
        if name in self.own:
            return tuple(
                one.id
                for one in self.own[name]
                if all(
                    show_value(values.get(axis, value)) == show_value(value)
                    for axis, value in one.values.items()
                )
            )
        if name in self.included:
            return self.included[name]
        if parsed := parse_id(name):
            # Axes may be written in any order.
            meant = instance_id(*parsed)
            if any(one.id == meant for one in self.own.get(parsed[0], ())):
                return (meant,)
            return self.included.get(meant)
        return None

    def unjudged(self, name: str) -> bool:
        return self.blind or name.partition(".")[0] in self.broken

    def unknown(self, name: str, but: str) -> str | None:
        """A hint for a name that names nobody."""
        if (alias := name.partition(".")[0]) in self.later:
            return f"'{alias}' is included further down; put it above"
        parsed = parse_id(name)
        if parsed and len(ones := self.own.get(parsed[0], ())) > 1:
            return f"'{parsed[0]}' is {', '.join(one.id for one in ones[:3])}" + (
                ", …" if len(ones) > 3 else ""
            )
        return did_you_mean(name, (other for other in [*self.own, *self.included] if other != but))


@dataclass
class Needs:
    """Gathers who waits for whom, and judges it. `edges`: id → id → the entry that says so.

    Edges within an included file have no entry here (None); they are no cycle by themselves.
    """

    names: Names
    found: Collector
    edges: dict[str, dict[str, NodePath | None]] = field(default_factory=dict)

    def add(
        self,
        waiting: Sequence[str],
        raw: Any,
        path: NodePath,
        who: str,
        values: Mapping[str, Any],
        *,
        but: str = "",
        names: Names | None = None,
    ) -> None:
        """Let `waiting` wait for what the list at `path` names; tell what names nobody.

        `who` waits, in words, and `but` is a name not to propose for it.
        """
        names = names or self.names
        for name in waiting:
            self.edges.setdefault(name, {})
        seen: set[str] = set()
        for index, other in enumerate(raw if isinstance(raw, list) else ()):
            here = (*path, index)
            if not isinstance(other, str) or self.found.touches(here):
                continue
            ids = names.ids(other, values)
            if other in seen:
                self.found.value(here, f"'{other}' stands twice in needs")
            elif ids is not None:
                for name in waiting:
                    self.edges[name].update((one, here) for one in ids)
            elif not names.unjudged(other):
                message = f"{who} needs '{other}', which is no step"
                hint = names.unknown(other, but)
                if hint and hint.startswith("did"):
                    message, hint = f"{message}; {hint}", None
                self.found.value(here, message, hint)
            seen.add(other)

    def add_built(self, needs: Mapping[str, Iterable[str]]) -> None:
        """Edges within an included file."""
        for name, others in needs.items():
            self.edges.setdefault(name, {}).update((other, None) for other in others)

    def of(self, name: str) -> tuple[str, ...]:
        return tuple(self.edges.get(name, ()))

    def judge_cycles(self) -> None:
        """Tell every cycle once, at the first of its entries in the file."""
        graph = {
            name: [other for other in others if other in self.edges]
            for name, others in self.edges.items()
        }
        while cycle := cycle_in(graph):
            pairs = list(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
            entries = [
                (path, index)
                for index, (name, other) in enumerate(pairs)
                if (path := self.edges[name][other]) is not None
            ]
            first, start = min(entries, key=lambda entry: self.found.places.value(entry[0]))
            turn = [*cycle[start:], *cycle[:start], cycle[start]]
            self.found.value(first, f"steps wait for each other in a cycle: {' → '.join(turn)}")
            # Cutting the cycle where it was told, in all instances, lets another one be found.
            for name in graph:
                graph[name] = [other for other in graph[name] if self.edges[name][other] != first]


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


def finals(needs: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Those that nobody waits for."""
    needed = {other for others in needs.values() for other in others}
    return (name for name in needs if name not in needed)
