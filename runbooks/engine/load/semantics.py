"""Rules that a schema cannot say: a step against its operation, its hosts, its estimate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from runbooks.engine.load.collector import Collector
from runbooks.engine.load.grammar import GATE_KEYS
from runbooks.engine.load.places import NodePath
from runbooks.engine.load.references import LateReference
from runbooks.engine.load.schema import value_operators
from runbooks.engine.load.typed import Named, named_in
from runbooks.engine.model.check import Check
from runbooks.engine.model.diagnostic import did_you_mean
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.host import Host
from runbooks.engine.model.runbook import Act, Estimate, Step
from runbooks.engine.registry import Registry

__all__ = ["Rules", "expand_hosts"]

ACTS = ("do", "release", "undo")
# Arguments of operations that reach a process without standing in its argv.
_SECRET_ARGUMENTS = ("env", "stdin")


def _told(message: str, word: str, known: Iterable[str]) -> tuple[str, str | None]:
    """A near word belongs to the message; a list of known ones is a hint."""
    hint = did_you_mean(word, known)
    if hint and hint.startswith("did"):
        return f"{message}; {hint}", None
    return message, hint


def expand_hosts(
    raw: list[str], path: NodePath, hosts: Mapping[str, Host], found: Collector
) -> tuple[str, ...]:
    """Hosts and groups as hosts, each once, in the order written."""
    groups: dict[str, list[str]] = {}
    for host in hosts.values():
        for group in host.groups:
            groups.setdefault(group, []).append(host.name)
    expanded: dict[str, None] = {}
    for index, name in enumerate(raw):
        if name in hosts:
            expanded[name] = None
        elif name in groups:
            expanded.update(dict.fromkeys(groups[name]))
        else:
            message = f"unknown host or group '{name}'"
            found.value((*path, index), *_told(message, name, [*hosts, *groups]))
    return tuple(expanded)


@dataclass
class Rules:
    """What a single step must obey, beside its shape."""

    registry: Registry
    hosts: Mapping[str, Host]
    found: Collector
    late: Mapping[str, list[LateReference]]

    def judge_gate(self, name: str, raw: Mapping[str, Any]) -> None:
        """A step without `do` reads and judges; it has nothing to time, undo or skip."""
        path = ("steps", name)
        if "requires" not in raw:
            extra = [key for key in raw if key not in GATE_KEYS and not key.startswith("x-")]
            if not extra:
                self.found.key(
                    path,
                    f"step '{name}' does nothing",
                    "write do and ensures, or requires alone for a gate",
                )
                return
        extra = [key for key in raw if key not in GATE_KEYS and not key.startswith("x-")]
        if extra:
            words = ", ".join(f"'{key}'" for key in extra)
            self.found.key(
                (*path, extra[0]),
                f"step '{name}' has no do, so {words} would mean nothing",
                "a gate has requires alone; a step that acts has do and ensures",
            )

    def judge_act(self, name: str, raw: Mapping[str, Any]) -> None:
        """Destructive operations need proof and a place in the step that can give it."""
        for key in ACTS:
            if key not in raw:
                continue
            word = next(iter(raw[key]))
            operation = self.registry.operations[word]
            path = ("steps", name, key, word)
            if not operation.destructive:
                continue
            if key != "do":
                self.found.key(
                    path,
                    f"{word} is destructive and may not stand in {key}",
                    "make it a step of its own, with irreversible and requires",
                )
                continue
            missing = [part for part in ("irreversible", "requires") if part not in raw]
            if missing:
                self.found.key(
                    path,
                    f"{word} is destructive: step '{name}' lacks {' and '.join(missing)}",
                    "irreversible: {loses: …, restore: …} asks for an approval; "
                    "requires proves that nothing needed is lost",
                )

    def judge_built(self, step: Step, raw: Mapping[str, Any], default_timeout: Any) -> None:
        """Rules over parsed values."""
        path = ("steps", step.id)
        if step.irreversible and "retry" in raw:
            self.found.key(
                (*path, "retry"),
                "an irreversible step is never tried again; remove retry",
                "run the runbook again after looking at what happened",
            )
        self._judge_time(step, raw, path, default_timeout)
        if len(set(raw["hosts"])) < len(raw["hosts"]):
            index = next(i for i, host in enumerate(raw["hosts"]) if host in raw["hosts"][:i])
            self.found.value((*path, "hosts", index), f"'{raw['hosts'][index]}' stands twice")

    def _judge_time(
        self, step: Step, raw: Mapping[str, Any], path: NodePath, default_timeout: Any
    ) -> None:
        estimate = step.estimate.time if step.estimate else None
        if estimate is None or step.timeout is None or step.timeout >= estimate:
            return
        written = raw["estimate"]["time"]
        if "timeout" in raw:
            self.found.value(
                (*path, "timeout"),
                f"timeout {raw['timeout']} is below the estimated time {written}",
                "the step would be ended before it can be done",
            )
        else:
            self.found.value(
                (*path, "estimate", "time"),
                f"the default timeout {default_timeout} is below the estimated time {written}",
                "give the step a timeout of its own",
            )

    def judge_notify(self, raw: Mapping[str, Any], path: NodePath) -> None:
        """One way to tell, and an address that can be reached."""
        ways = [key for key in ("command", "webhook") if key in raw]
        if not ways:
            self.found.key(
                path, "notify tells nobody", "write command: [program, …] or webhook: URL"
            )
        elif len(ways) > 1:
            self.found.key(path, "notify holds command and webhook; write one of them")
        elif "webhook" in raw and "${{" not in raw["webhook"]:
            problem = _no_address(raw["webhook"])
            if problem:
                self.found.value(
                    (*path, "webhook"),
                    f"webhook {raw['webhook']!r} {problem}; write https://…",
                )

    # What a step names: roots of its hosts, hosts of the inventory.

    def judge_names(self, step: Step, raw: Mapping[str, Any]) -> None:
        path = ("steps", step.id)
        for key in ACTS:
            act = getattr(step, key)
            if isinstance(act, Act):
                here = (*path, key, act.operation.name)
                body = raw[key][act.operation.name]
                self._judge_arguments(act.operation.arguments, body, here, step.hosts)
        for part in ("requires", "ensures"):
            for index, check in enumerate(getattr(step, part)):
                self._judge_check(check, raw[part][index], (*path, part, index), step.hosts)
        if step.estimate:
            self._judge_estimate(step.estimate, raw["estimate"], (*path, "estimate"), step.hosts)

    def _judge_check(
        self, check: Check, raw: Mapping[str, Any], path: NodePath, hosts: tuple[str, ...]
    ) -> None:
        name = check.fact.name
        if check.host is not None:
            if not self._host(check.host, (*path, "host")):
                return
            hosts = (check.host,)
        body, here = raw[name], (*path, name)
        self._judge_arguments(check.fact.arguments, body, here, hosts)
        for key, item in body.items():
            if key in check.fact.fields:
                kind = check.fact.fields[key].type
            elif key in value_operators(check.fact):
                kind = value_operators(check.fact)[key]
            else:
                continue
            self._judge_each(named_in(kind, item, (*here, key)), hosts)

    def _judge_arguments(
        self,
        arguments: Mapping[str, Argument],
        raw: Mapping[str, Any],
        path: NodePath,
        hosts: tuple[str, ...],
    ) -> None:
        for key, argument in arguments.items():
            if key in raw:
                self._judge_each(named_in(argument.type, raw[key], (*path, key)), hosts)

    def _judge_each(self, names: Iterator[Named], hosts: tuple[str, ...]) -> None:
        for what, name, path in names:
            if what == "host":
                self._host(name, path)
            else:
                self._root(name, path, hosts)

    def _judge_estimate(
        self, estimate: Estimate, raw: Mapping[str, Any], path: NodePath, hosts: tuple[str, ...]
    ) -> None:
        for part in ("writes", "frees"):
            for root in raw.get(part) or ():
                self._root(root, (*path, part, root), hosts, key=True)
        if estimate.source in self.registry.estimators:
            arguments = self.registry.estimators[estimate.source].arguments
            self._judge_arguments(arguments, raw, path, hosts)

    def _host(self, name: str, path: NodePath) -> bool:
        if name in self.hosts:
            return True
        self.found.value(path, *_told(f"unknown host '{name}'", name, self.hosts))
        return False

    def _root(
        self, name: str, path: NodePath, hosts: tuple[str, ...], *, key: bool = False
    ) -> None:
        """Told once, for all hosts of the step that do not have it."""
        lacking = [host for host in hosts if name not in self.hosts[host].roots]
        if not lacking:
            return
        known = set.intersection(*(set(self.hosts[host].roots) for host in hosts))
        tell = self.found.key if key else self.found.value
        message = f"root '{name}' is not declared for host {', '.join(lacking)}"
        tell(path, *_told(message, name, known))

    # References that stay text.

    def judge_late(self, step: Step | None, name: str, raw: Mapping[str, Any]) -> None:
        """Secrets, roots and estimates stand only where something can put them in place."""
        for late in self.late.get(name, ()):
            if self.found.holds(late.path):
                continue
            if late.space == "secrets":
                self._judge_secret(late)
            elif late.space == "root":
                self._judge_root(late, step)
            elif late.space == "estimate":
                self._judge_bytes(late, step, raw)

    def _tell(self, late: LateReference, message: str, hint: str | None = None) -> None:
        place = self.found.places.inside(late.path, f"${{{{ {late.space}.{late.name} }}}}")
        self.found.at(place, late.path, message, hint)

    def judge_elsewhere(self, late: LateReference) -> None:
        """A reference outside of steps: a secret webhook, or a root for an included file."""
        path = late.path
        if self.found.touches(path):
            return
        if path[:2] == ("defaults", "notify") and late.space == "secrets":
            self._judge_told(late, path[2:])
        elif not (path[0] == "include" and path[2:3] == ("vars",) and late.space == "root"):
            self._tell(late, f"${{{{ {late.space}.{late.name} }}}} stands in steps only")

    def _judge_told(self, late: LateReference, rest: NodePath) -> None:
        """A secret in `notify`: the whole address, so that it is sent to nobody else."""
        if rest != ("webhook",):
            self._tell(
                late,
                f"secret in notify.{rest[0]}: '{late.name}' would be seen by others",
                "a program reads its secrets itself; a webhook may be one secret",
            )
        elif not late.whole:
            self._tell(
                late,
                f"secret '{late.name}' is a part of webhook; it stands alone there",
                f'write webhook: "${{{{ secrets.{late.name} }}}}" and keep the whole address secret',
            )

    def _judge_secret(self, late: LateReference) -> None:
        path = late.path
        if path[2] == "notify":
            self._judge_told(late, path[3:])
            return
        if len(path) >= 5 and path[2] in ACTS and path[4] in _SECRET_ARGUMENTS:
            return
        where = str(path[4]) if len(path) >= 5 and path[2] in ACTS else str(path[2])
        self._tell(
            late,
            f"secret in {where}: '{late.name}' would be seen by others",
            "secrets reach a program through env or stdin only",
        )

    def _judge_root(self, late: LateReference, step: Step | None) -> None:
        path = late.path
        acts = len(path) >= 5 and path[2] in ACTS
        argument = len(path) >= 6 and path[2] in ("requires", "ensures") and self._is_argument(path)
        if not (acts or argument or path[2] == "estimate"):
            self._tell(late, "a root stands in arguments of operations and facts only")
        elif step is not None:
            self._root(late.name, path, step.hosts)

    def _is_argument(self, path: NodePath) -> bool:
        fact = self.registry.facts.get(str(path[4]))
        return fact is not None and path[5] in fact.arguments

    def _judge_bytes(self, late: LateReference, step: Step | None, raw: Mapping[str, Any]) -> None:
        path = late.path
        if len(path) < 6 or path[2] not in ("requires", "ensures") or self._is_argument(path):
            self._tell(late, "estimate.bytes stands in comparisons of sizes only")
            return
        estimate = raw.get("estimate")
        if not isinstance(estimate, dict) or not {"from", "writes"} & set(estimate):
            self._tell(
                late,
                f"step '{path[1]}' has no estimate of bytes",
                "write estimate: {writes: {data: 3.1 TiB}}, or estimate: {from: …}",
            )


def _no_address(text: str) -> str | None:
    """Why a text is no address for a webhook, or None."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"is no address ({error})"
    if parts.scheme not in ("http", "https"):
        return "is no http(s) address"
    if not host:
        return "names no host"
    if any(char.isspace() or not char.isprintable() for char in text):
        return "holds a space"
    return None
