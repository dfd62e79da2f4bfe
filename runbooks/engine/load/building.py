"""Turns the tree of a sound step into a `Step`; a step with a fault is left out, told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runbooks.engine.load.checks import build_check
from runbooks.engine.load.collector import Collector
from runbooks.engine.load.grammar import ESTIMATE, IRREVERSIBLE, NOTIFY, RETRY, WATCH
from runbooks.engine.load.places import NodePath
from runbooks.engine.load.semantics import ACTS, Rules, expand_hosts
from runbooks.engine.load.typed import parse_arguments, parse_value
from runbooks.engine.model.check import Check
from runbooks.engine.model.diagnostic import did_you_mean
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.runbook import (
    Act,
    Estimate,
    Irreversible,
    Notify,
    Retry,
    Secret,
    Step,
    Watch,
)
from runbooks.engine.model.values import Duration

__all__ = ["Builder", "build_secrets"]


@dataclass
class Builder:
    """Builds steps; what steps do not say comes from `defaults`."""

    rules: Rules
    found: Collector
    defaults: Mapping[str, Any]

    def build(self, name: str, raw: Mapping[str, Any]) -> Step | None:
        """The step, or None where it has a fault."""
        path = ("steps", name)
        if "do" not in raw:
            self.rules.judge_gate(name, raw)
        self.rules.judge_act(name, raw)
        hosts = expand_hosts(raw["hosts"], (*path, "hosts"), self.rules.hosts, self.found)
        step = self._step(name, raw, path, hosts)
        sound = not self.found.holds(path)
        if sound:
            self.rules.judge_built(step, raw, self.defaults.get("timeout"))
            self.rules.judge_names(step, raw)
        self.rules.judge_late(step if sound else None, name, raw)
        return None if self.found.holds(path) else step

    def judge_defaults(self) -> None:
        """What is wrong with defaults, whether or not a step takes them."""
        if "retry" in self.defaults:
            self._retry_from(self.defaults["retry"], ("defaults", "retry"))
        if "notify" in self.defaults:
            self._notify_from(self.defaults["notify"], ("defaults", "notify"))

    def _step(
        self, name: str, raw: Mapping[str, Any], path: NodePath, hosts: tuple[str, ...]
    ) -> Step:
        acts = {key: self._act(raw[key], (*path, key)) for key in ACTS if key in raw}
        transient = raw.get("transient", False)
        return Step(
            id=name,
            place=self.found.places.key(path),
            needs=tuple(raw["needs"]),
            hosts=hosts,
            requires=self._checks(raw, "requires", path),
            do=acts.get("do"),
            ensures=self._checks(raw, "ensures", path, lasting=not transient),
            about=raw.get("about", ""),
            timeout=self._timeout(raw, path, acts.get("do")),
            retry=self._retry(raw, path),
            estimate=self._estimate(raw["estimate"], path) if "estimate" in raw else None,
            watch=Watch(**self._given(WATCH, raw.get("watch", {}), (*path, "watch"))),
            transient=transient,
            release=acts.get("release"),
            undo=acts.get("undo"),
            irreversible=self._irreversible(raw, path),
            notify=self._notify(raw, path),
        )

    def _act(self, raw: Mapping[str, Any], path: NodePath) -> Act:
        name = next(iter(raw))
        operation = self.rules.registry.operations[name]
        args = parse_arguments(operation.arguments, raw[name], (*path, name), self.found)
        return Act(operation, args, self.found.places.key((*path, name)))

    def _checks(
        self, raw: Mapping[str, Any], part: str, path: NodePath, *, lasting: bool = False
    ) -> tuple[Check, ...]:
        registry = self.rules.registry
        checks = [
            build_check(item, (*path, part, index), registry, self.found, lasting=lasting)
            for index, item in enumerate(raw.get(part, ()))
        ]
        return tuple(check for check in checks if check is not None)

    def _timeout(self, raw: Mapping[str, Any], path: NodePath, do: Act | None) -> int | None:
        """Its own, or the default; never a default for long work."""
        if "timeout" in raw:
            return _whole(parse_value(Duration(), raw["timeout"], (*path, "timeout"), self.found))
        if "timeout" not in self.defaults or (do is not None and do.operation.long):
            return None
        return _whole(Duration().parse(self.defaults["timeout"]))

    def _retry(self, raw: Mapping[str, Any], path: NodePath) -> Retry:
        if "irreversible" in raw:
            return Retry()
        if "retry" in raw:
            return self._retry_from(raw["retry"], (*path, "retry"))
        if "retry" in self.defaults:
            return self._retry_from(self.defaults["retry"], ("defaults", "retry"))
        return Retry()

    def _notify(self, raw: Mapping[str, Any], path: NodePath) -> Notify | None:
        if "notify" in raw:
            return self._notify_from(raw["notify"], (*path, "notify"))
        if "notify" in self.defaults:
            return self._notify_from(self.defaults["notify"], ("defaults", "notify"))
        return None

    def _notify_from(self, raw: Mapping[str, Any], path: NodePath) -> Notify:
        given = self._given(NOTIFY, raw, path)
        if not self.found.holds(path):
            self.rules.judge_notify(raw, path)
        return Notify(**given)

    def _retry_from(self, raw: Mapping[str, Any], path: NodePath) -> Retry:
        given = self._given(RETRY, raw, path)
        backoff = given.get("backoff", 1)
        if isinstance(backoff, (int, float)) and backoff < 1 and not self.found.holds(path):
            self.found.value(
                (*path, "backoff"), f"backoff {backoff} is below 1; waits would shrink"
            )
        return Retry(**given)

    def _estimate(self, raw: Mapping[str, Any], path: NodePath) -> Estimate:
        here = (*path, "estimate")
        given = self._given(ESTIMATE, raw, here)
        source = raw.get("from")
        known = {*ESTIMATE, "from"}
        extra = [key for key in raw if key not in known and not key.startswith("x-")]
        if source is None:
            for key in extra:
                self.found.key(
                    (*here, key), f"'{key}' is for an estimator, but there is no from: NAME"
                )
            return Estimate(**given)
        arguments = self.rules.registry.estimators[source].arguments
        for key in extra:
            if key not in arguments:
                hint = did_you_mean(key, arguments)
                self.found.key((*here, key), f"estimator '{source}' takes no '{key}'", hint)
        missing = [name for name, item in arguments.items() if item.required and name not in raw]
        for name in missing:
            about = arguments[name].about
            self.found.key(here, f"estimator '{source}' lacks '{name}'", f"{name}: {about}")
        return Estimate(
            **given, source=source, args=parse_arguments(arguments, raw, here, self.found)
        )

    def _irreversible(self, raw: Mapping[str, Any], path: NodePath) -> Irreversible | None:
        if "irreversible" not in raw:
            return None
        here = (*path, "irreversible")
        return Irreversible(**self._given(IRREVERSIBLE, raw["irreversible"], here))

    def _given(
        self, arguments: Mapping[str, Argument], raw: Mapping[str, Any], path: NodePath
    ) -> dict[str, Any]:
        """Only the arguments that are written, parsed."""
        return {
            name: parse_value(arguments[name].type, value, (*path, name), self.found)
            for name, value in raw.items()
            if name in arguments
        }


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def build_secrets(raw: Mapping[str, Any]) -> dict[str, Secret]:
    """The declared secrets; each from exactly one source, as the schema has seen to."""
    return {
        name: Secret(name, item.get("env"), item.get("file"), tuple(item.get("command", ())))
        for name, item in raw.items()
    }
