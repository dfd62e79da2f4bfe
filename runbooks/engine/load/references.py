"""`${{ … }}`: names only. Variables are put in place; what belongs to a host stays text.

`vars.x` is resolved before validation, so that types are judged on real values; `matrix.x` too,
but a step later (`load.matrix`), since each instance of a step has its own. `root.x`,
`secrets.x` and `estimate.bytes` are checked by name and stay: their values belong to a host,
to the moment of the act, or to a plan (`engine.binding`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runbooks.engine.load.collector import Collector
from runbooks.engine.load.places import NodePath
from runbooks.engine.load.variables import NAME, apply_overrides, cycle_in, show_value
from runbooks.engine.model.diagnostic import did_you_mean

__all__ = ["AXIS", "LateReference", "Resolved", "is_hatch", "resolve", "texts_of"]

SPACES = ("vars", "matrix", "root", "secrets", "estimate")
_REFERENCE = re.compile(rf"\$\{{\{{ *([A-Za-z_]+)\.({NAME}) *\}}\}}")
AXIS = re.compile(rf"\$\{{\{{ *matrix\.({NAME}) *\}}\}}")
_ANY = re.compile(r"\$\{\{(?:(?!\}\}).)*\}\}", re.DOTALL)
# Jinja's spelling, or Ansible's: text that its author believes to be a reference.
# Possessive, so that a megabyte of unclosed text costs one pass.
_BARE = re.compile(rf"(?<!\$)\{{\{{ *+(?:({'|'.join(SPACES)})\.)?({NAME}+)[^{{}}]*+\}}\}}")
# What all variables together may grow to: they may use each other, so text could double.
_MOST_TEXT = 1 << 20


@dataclass(frozen=True, slots=True)
class LateReference:
    """A reference that stays: where it stands, what it names."""

    path: NodePath
    space: str
    name: str
    whole: bool


@dataclass
class Resolved:
    """The tree with variables in place."""

    tree: dict[str, Any]
    variables: dict[str, Any] = field(default_factory=dict)
    late: list[LateReference] = field(default_factory=list)


def resolve(
    tree: Mapping[str, Any],
    overrides: Mapping[str, str],
    found: Collector,
    keys: Mapping[str, str],
    given: Mapping[str, Any] | None = None,
    prefix: str = "",
) -> Resolved:
    """Put variables in place. Faults go to `found`; a wrong override raises RunbookError.

    `keys` maps `vars`, `secrets` and `matrix` to the (perhaps misspelt) keys that hold them.
    `given` are values from an including file, `prefix` what an override's name bears there.
    """
    return _Resolver(tree, overrides, found, keys, given or {}, prefix).run()


class _Resolver:
    def __init__(
        self,
        tree: Mapping[str, Any],
        overrides: Mapping[str, str],
        found: Collector,
        keys: Mapping[str, str],
        given: Mapping[str, Any],
        prefix: str,
    ):
        self.tree = tree
        self.found = found
        self.vars_key = keys.get("vars", "vars")
        declared = tree.get(self.vars_key)
        self.declared = declared if isinstance(declared, dict) else {}
        secrets = tree.get(keys.get("secrets", "secrets"))
        self.secrets = secrets if isinstance(secrets, dict) else {}
        axes = tree.get(keys.get("matrix", "matrix"), {})
        # None: a matrix that is no mapping, which is told as such.
        self.axes = axes if isinstance(axes, dict) else None
        self.values = {
            **self.declared,
            **given,
            **apply_overrides(self.declared, overrides, prefix),
        }
        self.known: dict[str, Any] = {}
        self.late: list[LateReference] = []
        self.budget = _MOST_TEXT

    def run(self) -> Resolved:
        self._variables()
        result: dict[str, Any] = {}
        for key, value in self.tree.items():
            if key == self.vars_key and isinstance(value, dict):
                result[key] = {name: self.known.get(name, raw) for name, raw in value.items()}
            else:
                result[key] = value if is_hatch((), key) else self._walk(value, (key,))
        return Resolved(result, self.known, self.late)

    def _variables(self) -> None:
        """Resolve variables in an order in which each one's own variables come first."""
        graph = {
            name: [used for used in _used(value) if used in self.values]
            for name, value in self.values.items()
        }
        while cycle := cycle_in(graph):
            first = min(cycle, key=list(self.declared).index)
            start = cycle.index(first)
            turn = [*cycle[start:], *cycle[:start], first]
            self.found.value(
                (self.vars_key, first), f"variables use each other in a cycle: {' → '.join(turn)}"
            )
            for name in cycle:
                graph.pop(name)
                self.found.mark((self.vars_key, name))
            graph = {name: [used for used in uses if used in graph] for name, uses in graph.items()}
        pending = dict(graph)
        ready = [name for name, uses in pending.items() if not uses]
        users: dict[str, list[str]] = {name: [] for name in pending}
        waiting = {name: len(set(uses)) for name, uses in pending.items()}
        for name, uses in pending.items():
            for used in set(uses):
                users[used].append(name)
        for name in ready:
            path = (self.vars_key, name)
            value = self._walk(self.values[name], path)
            # A mapping or nothing is no variable; the schema tells it where it is declared.
            if not self.found.holds(path) and value is not None and not isinstance(value, dict):
                self.known[name] = value
            for user in users[name]:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)

    def _walk(self, value: Any, path: NodePath) -> Any:
        if isinstance(value, str):
            return self._text(value, path) if "{{" in value else value
        if isinstance(value, list):
            return [self._walk(item, (*path, index)) for index, item in enumerate(value)]
        if isinstance(value, dict):
            return {
                key: item if is_hatch(path, key) else self._walk(item, (*path, key))
                for key, item in value.items()
            }
        return value

    def _text(self, text: str, path: NodePath) -> Any:
        if match := _REFERENCE.fullmatch(text):
            return self._one(match, text, path, whole=True)
        if match := _BARE.search(text):
            space, name = match[1], match[2]
            if space or name in self.values:
                wanted = f"${{{{ {space or 'vars'}.{name} }}}}"
                self._fault(path, match[0], f"'{match[0]}' is no reference; write {wanted}")
                return text
        if "${{" not in text:
            return text
        parts: list[str] = []
        end = 0
        while (start := text.find("${{", end)) >= 0:
            parts.append(text[end:start])
            match = _REFERENCE.match(text, start)
            if match is None:
                self._malformed(text, start, path)
                return text
            value = self._one(match, match[0], path, whole=False)
            if isinstance(value, (list, dict)) or value is None:
                if not self.found.touches(path):
                    kind = "a list" if isinstance(value, list) else "no single value"
                    self._fault(path, match[0], f"variable '{match[2]}' is {kind}; it stands alone")
                return text
            parts.append(show_value(value))
            end = match.end()
        parts.append(text[end:])
        return "".join(parts)

    def _malformed(self, text: str, start: int, path: NodePath) -> None:
        match = _ANY.match(text, start)
        if match is None:
            self._fault(path, text[start:].split("\n")[0], "'${{' is not closed by '}}'")
            return
        inner = match[0][3:-2].strip()
        name = re.match(rf"(?:{'|'.join(SPACES)})\.{NAME}", inner)
        right = f"${{{{ {name[0]} }}}}" if name else "${{ vars.x }}"
        self._fault(
            path,
            match[0].split("\n")[0],
            f"'{' '.join(match[0].split())}' is no reference; write names only, as in {right}",
            "no filters, no logic: compute in the program, or declare another variable",
        )

    def _one(self, match: re.Match[str], text: str, path: NodePath, *, whole: bool) -> Any:
        """The value of one reference; the text itself where it stays or is at fault."""
        space, name = match[1], match[2]
        if space == "vars":
            return self._variable(name, text, path, whole=whole)
        if space not in SPACES:
            self._unknown(path, text, f"'{space}' holds no names", space, SPACES)
        elif path[0] == self.vars_key and space != "root":
            self._fault(path, text, f"a variable may not use {space}; only vars and root")
        elif space == "matrix":
            self._axis(name, text, path)
            return text
        elif space == "secrets" and name not in self.secrets:
            self._unknown(path, text, f"unknown secret '{name}'", name, self.secrets)
        elif space == "estimate" and name != "bytes":
            self._unknown(path, text, f"an estimate has no '{name}'", name, ("bytes",))
        elif space == "estimate" and not whole:
            self._fault(path, text, f"{text} stands alone, as a whole value")
        elif path[0] != self.vars_key:
            self.late.append(LateReference(path, space, name, whole))
        return text

    def _axis(self, name: str, text: str, path: NodePath) -> None:
        """A value of the matrix is put in place later; here its name and place are judged."""
        if path[0] != "steps":
            if "steps" in self.tree:  # else that key is misspelt, and told
                self._fault(path, text, f"{text} stands in steps only")
        elif self.axes is None:
            self.found.mark(path)
        elif not self.axes:
            hint = f"declare it: matrix: {{{name}: [0, 1]}}"
            self._fault(path, text, f"unknown axis '{name}': this file has no matrix", hint)
        elif name not in self.axes:
            self._unknown(path, text, f"unknown axis '{name}' of the matrix", name, self.axes)

    def _variable(self, name: str, text: str, path: NodePath, *, whole: bool) -> Any:
        if name not in self.values:
            self._unknown(path, text, f"unknown variable '{name}'", name, self.values)
            return text
        if name not in self.known:
            # Its own fault is told where it is declared.
            self.found.mark(path)
            return text
        value = self.known[name]
        self.budget -= len(show_value(value))
        if self.budget < 0:
            self._fault(path, text, "variables grow beyond 1 MiB of text")
            return text
        if isinstance(value, str) and "${{" in value and path[0] != self.vars_key:
            self.late.extend(
                LateReference(path, found[1], found[2], whole and found[0] == value)
                for found in _REFERENCE.finditer(value)
            )
        if isinstance(value, list) and len(path) > 2 and path[0] == self.vars_key:
            self._fault(path, text, f"variable '{name}' is a list; lists hold single values")
            return text
        return value

    def _unknown(self, path: NodePath, words: str, message: str, name: str, known: Any) -> None:
        hint = did_you_mean(name, known)
        if hint and hint.startswith("did"):
            message, hint = f"{message}; {hint}", None
        self._fault(path, words, message, hint)

    def _fault(self, path: NodePath, words: str, message: str, hint: str | None = None) -> None:
        self.found.at(self.found.places.inside(path, words), path, message, hint)


def is_hatch(path: NodePath, key: str) -> bool:
    """Whether a key is an author's own (`x-…`), not a name within a map of names."""
    return key.startswith("x-") and path[-1:] not in (("steps",), ("env",), ("vars",))


def texts_of(value: Any, path: NodePath) -> Iterator[str]:
    """Every text of a tree in which references mean something."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from texts_of(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            if not is_hatch(path, key):
                yield from texts_of(item, (*path, key))


def _used(value: Any) -> list[str]:
    """Names of the variables that a variable's value uses."""
    if isinstance(value, str):
        return [match[2] for match in _REFERENCE.finditer(value) if match[1] == "vars"]
    if isinstance(value, list):
        return [name for item in value for name in _used(item)]
    if isinstance(value, dict):
        return [name for item in value.values() for name in _used(item)]
    return []
