"""The reference of facts, operations and estimators in Markdown, made from the registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from runbooks.engine.load.schema import build_schema
from runbooks.engine.model.fact import Argument, Fact
from runbooks.engine.model.operation import Operation
from runbooks.engine.model.values import Choice, ListOf, MapOf, ValueType
from runbooks.engine.registry import Registry

__all__ = ["reference"]

_HEAD = """\
# Facts, operations and estimators

Made by `runbook reference --write` from the registry; do not edit.

A check is `<fact>: {arguments, comparison}`. The field marked **value** compares by
`eq ne lt le gt ge in matches` (and `within` for a tolerance); the other fields compare by
equality under their own names. `host: NAME` reads another host than the step's. Volatile fields
change without anybody acting, and may stand in `ensures` of a `transient` step only.
"""


def reference(registry: Registry) -> str:
    """The whole document."""
    lines = [_HEAD, *_grammar(registry), "## Facts", ""]
    for name in sorted(registry.facts):
        lines.extend(_fact(registry.facts[name]))
    lines += ["## Operations", ""]
    for name in sorted(registry.operations):
        lines.extend(_operation(registry.operations[name]))
    lines += ["## Estimators", "", "`estimate: {from: NAME, …}`.", ""]
    for name in sorted(registry.estimators):
        estimator = registry.estimators[name]
        lines += [f"### `{name}`", "", _cell(estimator.about), ""]
        lines.extend(_arguments(estimator.arguments))
    return "\n".join(lines).rstrip() + "\n"


def _grammar(registry: Registry) -> Iterator[str]:
    """The keys of a runbook, from the same schema that validates it."""
    schema = build_schema(registry)
    definitions = schema["$defs"]
    for title, body in (
        ("A runbook", schema),
        ("A step", definitions["step"]),
        ("`estimate`", definitions["step"]["properties"]["estimate"]),
        ("`retry`", definitions["step"]["properties"]["retry"]),
        ("`watch`", definitions["step"]["properties"]["watch"]),
        ("`notify`", definitions["notify"]),
        ("An item of `include`", schema["properties"]["include"]["items"]),
    ):
        body = definitions.get(str(body.get("$ref", "")).rpartition("/")[2], body)
        keys = body.get("properties", {})
        if not keys:
            continue
        yield from (f"## {title}", "", "| key | what it is |", "| --- | --- |")
        for name, key in keys.items():
            mark = " Required." if name in body.get("required", ()) else ""
            yield f"| `{name}` | {_cell(str(key.get('description', '')))}{mark} |"
        yield ""
    yield from (_REFERENCES, _JOINED, _TOLD)


_REFERENCES = """\
## References

`${{ vars.x }}` and `${{ matrix.x }}` (a whole value keeps its type), `${{ root.x }}` (the path of a
root on the host), `${{ secrets.x }}` (in `env` and `stdin`, and as a whole `webhook`),
`${{ estimate.bytes }}` (what the step still has to write). In `argv` a whole token `root:path` of a
declared root becomes the host's path. Templates see `vars`, `host` and `roots`. Every command gets
`EAGLE3_ROOT_<NAME>` for each root.
"""


_JOINED = """\
## Matrix and include

With `matrix: {shard: [0, 1, 2]}` a step that uses `${{ matrix.shard }}` is three steps:
`extract[shard=0]`, … (several axes by name: `extract[lang=en,shard=0]`). `needs: [extract]` waits for
the instance of the same value where the step is on the same axis, and for all of them otherwise;
`needs: ["extract[shard=2]"]` waits for one. Values are text (letters, digits and `_ . + -`), whole
numbers or booleans; at most 1,000 instances.

`include: [{runbook: prepare.yaml, as: data, vars: {samples: 10}, needs: [situation]}]` adds the steps
of another file as `data.merge`, …; those that need nothing there wait for `needs`. `needs: [data]`
waits for the whole file, `needs: [data.merge]` for one of its steps. Each file keeps its own `vars`
(`-v data.samples=10` sets one), `defaults`, `plugins` and `matrix`; a secret's name means one secret
in all of them.
"""

_TOLD = """\
## What `notify` sends

One JSON object: `v` (1), `runbook`, `run`, `step`, `host`, `event` (a word of `when`), `result` (the
word of the outcome; `late` or `silent` for `late`), `reason`, `at` (seconds since 1970). `failed` is
any end that needs somebody: failed, timed out, unknown, blocked, unreachable, locked, bug.
`finished` comes after the step acted; a step that held already tells nobody. Three attempts, ten
seconds each; what cannot be delivered is noted in the journal, and the run goes on.
"""


def _fact(fact: Fact) -> Iterator[str]:
    yield from (f"### `{fact.name}`", "", _cell(fact.about), "")
    yield from _arguments(fact.arguments)
    yield from ("| field | type | | what it is |", "| --- | --- | --- | --- |")
    for name, field in fact.fields.items():
        marks = []
        if name == fact.value:
            marks.append("**value**")
        if field.volatile:
            marks.append("volatile")
        if name in fact.defaults:
            marks.append(f"default {fact.defaults[name]}")
        kind = _type(field.type)
        yield f"| `{name}` | {kind} | {', '.join(marks)} | {_cell(field.about)} |"
    yield ""


def _operation(operation: Operation) -> Iterator[str]:
    yield from (f"### `{operation.name}`", "", _cell(operation.about))
    remarks = []
    if operation.destructive:
        remarks.append("Destructive: its step needs `irreversible:` and `requires:`.")
    if operation.long:
        remarks.append("Long: `defaults.timeout` does not apply.")
    if remarks:
        yield from ("", " ".join(remarks))
    yield ""
    yield from _arguments(operation.arguments)


def _arguments(arguments: Mapping[str, Argument]) -> Iterator[str]:
    if not arguments:
        return
    yield from ("| argument | type | | what it is |", "| --- | --- | --- | --- |")
    for name, argument in arguments.items():
        if argument.required:
            mark = "required"
        elif argument.default is not None:
            mark = f"default {argument.type.show(argument.default)}"
        else:
            mark = ""
        yield f"| `{name}` | {_type(argument.type)} | {mark} | {_cell(argument.about)} |"
    yield ""


def _type(kind: ValueType) -> str:
    if isinstance(kind, Choice):
        return _cell(" or ".join(f"`{word}`" for word in kind.words))
    if isinstance(kind, ListOf):
        return f"list of {_type(kind.item)}"
    if isinstance(kind, MapOf):
        return f"mapping to {_type(kind.item)}"
    return kind.name


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
