"""The JSON Schema (2020-12) of runbooks, generated from the registry.

One shape serves twice: strict for validation, where variables are already in place, and with
`${{ … }}` allowed for editors (`runbooks/runbook.schema.json`). Unions are avoided, since
their errors explain nothing; a step holds its operation as the one key of `do`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from runbooks.engine.load.grammar import (
    DEFAULTS,
    ESTIMATE,
    INCLUDE,
    IRREVERSIBLE,
    NAME_PATTERN,
    NOTIFY,
    OPERATOR_ABOUT,
    RETRY,
    RUNBOOK,
    SECRET,
    STEP,
    STEP_PATTERN,
    WATCH,
)
from runbooks.engine.model.fact import Argument, Fact
from runbooks.engine.model.values import (
    HostName,
    ListOf,
    MapOf,
    Percent,
    Text,
    ValueType,
    typed_schema,
)
from runbooks.engine.registry import Registry

__all__ = ["DIALECT", "SchemaBuilder", "build_schema", "value_operators"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_END = r"$(?!\n)"
_REFERENCE = {"type": "string", "pattern": r"\$\{\{"}
_SCALAR = {"type": ["string", "number", "boolean"]}


def build_schema(registry: Registry, references: bool = False) -> dict[str, Any]:
    """The whole schema; with `references`, `${{ … }}` may stand wherever a value does."""
    return SchemaBuilder(registry, references).build()


def value_operators(fact: Fact) -> dict[str, ValueType]:
    """The comparison operators that fit a fact's value, and the type each one takes."""
    operators: dict[str, ValueType] = {}
    if fact.value is not None:
        kind = fact.fields[fact.value].type
        operators |= {"eq": kind, "ne": kind}
        if kind.ordered:
            operators |= {"lt": kind, "le": kind, "gt": kind, "ge": kind}
        operators["in"] = ListOf(kind)
        if kind.schema().get("type") == "string" and not kind.ordered:
            operators["matches"] = Text()
    if any(field.type.ordered for field in fact.fields.values()):
        operators["within"] = Percent()
    return operators


class SchemaBuilder:
    """Builds the schema; `types` finds the type of a fragment again by the fragment's id.

    The schema must be kept as long as `types` is used.
    """

    def __init__(self, registry: Registry, references: bool = False):
        self.registry = registry
        self.references = references
        self.types: dict[int, ValueType] = {}
        self.definitions: dict[str, Any] = {}

    def build(self) -> dict[str, Any]:
        schema: dict[str, Any] = {
            "$schema": DIALECT,
            "title": "Runbook",
            "description": "Steps that check the world right before and right after they act.",
        }
        # Without steps of its own a runbook includes some; `structure` tells it in words.
        schema |= self._closed(self._runbook_keys(), ["runbook"])
        if self.references:
            schema["anyOf"] = [{"required": ["steps"]}, {"required": ["include"]}]
        schema["$defs"] = self.definitions
        return schema

    def _runbook_keys(self) -> dict[str, Any]:
        for name, fact in sorted(self.registry.facts.items()):
            self.definitions[f"fact.{name}"] = self._fact(fact)
        for name, operation in sorted(self.registry.operations.items()):
            self.definitions[f"operation.{name}"] = self._arguments(operation.arguments)
        self.definitions["check"] = self._check()
        self.definitions["operation"] = self._operation()
        self.definitions["retry"] = self._arguments(RETRY)
        self.definitions["notify"] = self._notify()
        self.definitions["step"] = self._step()
        return {
            "runbook": self._argument(RUNBOOK["runbook"]),
            "about": self._argument(RUNBOOK["about"]),
            "vars": _named(
                NAME_PATTERN,
                {"type": ["string", "number", "boolean", "array"], "items": _SCALAR},
                "Variables: texts, numbers, booleans, or lists of these; ${{ vars.NAME }} uses one.",
            ),
            "secrets": _named(
                NAME_PATTERN,
                self._closed(self._keys(SECRET), [], hatch=False)
                | {"minProperties": 1, "maxProperties": 1},
                "Secrets and where each comes from; used in env values, stdin and webhooks only.",
            ),
            "defaults": self._closed(
                self._keys(DEFAULTS)
                | {
                    "retry": _ref("retry", "For steps without their own; never irreversible ones."),
                    "notify": _ref("notify", "For steps without their own."),
                },
                [],
            )
            | {"description": "What steps have that do not say otherwise."},
            "include": self._include(),
            "matrix": self._matrix(),
            "plugins": self._argument(RUNBOOK["plugins"]),
            "steps": _named(
                STEP_PATTERN,
                {"$ref": "#/$defs/step"},
                "The steps, by name; `needs` orders them. Required, unless files are included.",
            )
            | {"minProperties": 1},
        }

    def _include(self) -> dict[str, Any]:
        values = _named(
            NAME_PATTERN,
            {"type": ["string", "number", "boolean", "array"], "items": _SCALAR},
            "Values for variables that it declares, in their declared types.",
        )
        item = self._arguments(INCLUDE)
        item["properties"]["vars"] = values
        return {
            "type": "array",
            "items": item,
            "minItems": 1,
            "description": "Runbooks whose steps join these.",
        }

    def _matrix(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "type": "array",
            "items": {"type": ["string", "integer", "boolean"]},
            "minItems": 1,
        }
        if self.references:
            values = {"anyOf": [values, dict(_REFERENCE)]}
        return _named(
            NAME_PATTERN,
            values,
            "Axes and their values: a step that uses ${{ matrix.AXIS }} becomes one step "
            "for each value.",
        ) | {"minProperties": 1}

    def _step(self) -> dict[str, Any]:
        checks = {"type": "array", "items": {"$ref": "#/$defs/check"}, "minItems": 1}
        keys = self._keys(STEP) | {
            "requires": checks
            | {"description": "What must be true right before the act; read fresh."},
            "do": _ref("operation", "The one operation that makes `ensures` true."),
            "ensures": checks
            | {"description": "What is true when the step is done: skip, resume, acceptance test."},
            "retry": _ref("retry", "Try again on some errors; not for irreversible steps."),
            "estimate": self._estimate(),
            "watch": self._arguments(WATCH)
            | {"description": "When to warn about long work; nothing is ended."},
            "release": _ref("operation", "For a transient step: how to let go after the last use."),
            "undo": _ref("operation", "How to take it back; shown in plans, run on request only."),
            "irreversible": self._arguments(IRREVERSIBLE)
            | {"description": "What is lost for good; asks for an approval. Needs `requires`."},
            "notify": _ref("notify", "Whom to tell when the step fails, finishes, is late, waits."),
        }
        step = self._closed(keys, [name for name, item in STEP.items() if item.required])
        step["dependentRequired"] = {
            "do": ["ensures"],
            "irreversible": ["requires"],
            "release": ["transient"],
        }
        step["description"] = "requires → do → ensures; without `do` it is a gate."
        if self.references:
            step["anyOf"] = [{"required": ["do"]}, {"required": ["requires"]}]
            if destructive := sorted(
                name for name, item in self.registry.operations.items() if item.destructive
            ):
                step["allOf"] = [
                    {
                        "if": {
                            "required": ["do"],
                            "properties": {"do": {"required": [name]}},
                        },
                        "then": {"required": ["irreversible", "requires"]},
                    }
                    for name in destructive
                ]
        return step

    def _notify(self) -> dict[str, Any]:
        notify = self._arguments(NOTIFY)
        notify["description"] = "Tells one program or one address; never delays or fails a run."
        if self.references:
            notify |= {
                "if": {"required": ["command"]},
                "then": {"not": {"required": ["webhook"]}},
                "else": {"required": ["webhook"]},
            }
        return notify

    def _estimate(self) -> dict[str, Any]:
        """Written down, or `from` an estimator with its arguments side by side."""
        keys = self._keys(ESTIMATE)
        estimators = self.registry.estimators
        keys["from"] = {
            "type": "string",
            "enum": sorted(estimators),
            "description": "The estimator that computes what remains.",
        } | self._enum_about({name: item.about for name, item in estimators.items()})
        kinds: dict[str, list[Argument]] = {}
        for _, estimator in sorted(estimators.items()):
            for name, argument in estimator.arguments.items():
                kinds.setdefault(name, []).append(argument)
        for name, arguments in kinds.items():
            same = all(item.type == arguments[0].type for item in arguments)
            # Arguments that estimators type differently are judged by the estimator alone.
            keys[name] = (
                self._argument(arguments[0]) if same else {"description": arguments[0].about}
            )
        return self._closed(keys, []) | {
            "minProperties": 1,
            "description": "Time and bytes, written down or computed; feeds ledger and ETA.",
        }

    def _enum_about(self, abouts: Mapping[str, str]) -> dict[str, Any]:
        if not self.references:
            return {}
        return {"markdownEnumDescriptions": [abouts[name] for name in sorted(abouts)]}

    def _operation(self) -> dict[str, Any]:
        keys = {
            name: _ref(f"operation.{name}", item.about)
            for name, item in sorted(self.registry.operations.items())
        }
        operation = self._closed(keys, [], hatch=False)
        operation |= {"minProperties": 1, "maxProperties": 1}
        if self.references:
            operation["defaultSnippets"] = [
                _snippet(name, item.about, item.arguments)
                for name, item in sorted(self.registry.operations.items())
            ]
        return operation

    def _check(self) -> dict[str, Any]:
        keys: dict[str, Any] = {
            name: _ref(f"fact.{name}", item.about)
            for name, item in sorted(self.registry.facts.items())
        }
        keys["host"] = self._typed(HostName(), "Read on this host instead of the step's own.")
        check = self._closed(keys, [], hatch=False)
        check |= {
            "minProperties": 1,
            "if": {"required": ["host"]},
            "then": {"minProperties": 2, "maxProperties": 2},
            "else": {"maxProperties": 1},
            "description": "One fact and what it is compared with; `host` may stand beside it.",
        }
        if self.references:
            check["defaultSnippets"] = [
                _snippet(name, item.about, item.arguments)
                for name, item in sorted(self.registry.facts.items())
            ]
        return check

    def _fact(self, fact: Fact) -> dict[str, Any]:
        keys = self._keys(fact.arguments)
        for name, item in fact.fields.items():
            nature = "Volatile: not in `ensures`." if item.volatile else "Durable."
            keys[name] = self._typed(item.type, f"{_sentence(item.about)} {nature}")
        for name, kind in value_operators(fact).items():
            subject = f"Compares `{fact.value}`: " if name != "within" else ""
            keys[name] = self._typed(kind, subject + OPERATOR_ABOUT[name])
        required = [name for name, item in fact.arguments.items() if item.required]
        return self._closed(keys, required) | {"description": fact.about}

    def _arguments(self, arguments: Mapping[str, Argument]) -> dict[str, Any]:
        required = [name for name, item in arguments.items() if item.required]
        return self._closed(self._keys(arguments), required)

    def _keys(self, arguments: Mapping[str, Argument]) -> dict[str, Any]:
        return {name: self._argument(item) for name, item in arguments.items()}

    def _argument(self, argument: Argument) -> dict[str, Any]:
        about = argument.about
        if argument.default is not None:
            about = f"{_sentence(about)} Default: {argument.type.show(argument.default)}."
        return self._typed(argument.type, about)

    def _typed(self, kind: ValueType, about: str) -> dict[str, Any]:
        fragment = typed_schema(kind)
        if self.references:
            fragment = _with_references(copy.deepcopy(fragment))
        else:
            self._remember(fragment, kind)
        fragment["description"] = about
        return fragment

    def _remember(self, fragment: dict[str, Any], kind: ValueType) -> None:
        """Note the types of a fragment and of the items within."""
        self.types[id(fragment)] = kind
        if isinstance(kind, ListOf):
            self._remember(fragment["items"], kind.item)
        elif isinstance(kind, MapOf):
            for inner in fragment["patternProperties"].values():
                self._remember(inner, kind.item)

    @staticmethod
    def _closed(
        keys: Mapping[str, Any], required: list[str], *, hatch: bool = True
    ) -> dict[str, Any]:
        closed: dict[str, Any] = {"type": "object", "properties": dict(keys)}
        if hatch:
            closed["patternProperties"] = {"^x-": {"description": "For your own use; ignored."}}
        closed["additionalProperties"] = False
        if required:
            closed["required"] = required
        return closed


def _with_references(fragment: dict[str, Any]) -> dict[str, Any]:
    """Let a text with `${{` stand wherever the fragment refuses one."""
    for key in ("properties", "patternProperties"):
        if key in fragment:
            fragment[key] = {name: _with_references(inner) for name, inner in fragment[key].items()}
    if isinstance(fragment.get("items"), dict):
        fragment["items"] = _with_references(fragment["items"])
    takes_text = fragment.get("type") == "string" and not {"pattern", "enum"} & set(fragment)
    if takes_text or "type" not in fragment:
        return fragment
    about = {key: fragment.pop(key) for key in ("description", "x-type") if key in fragment}
    return {"anyOf": [fragment, dict(_REFERENCE)]} | about


def _named(pattern: str, inner: dict[str, Any], about: str) -> dict[str, Any]:
    """A mapping whose keys are its author's names."""
    return {
        "type": "object",
        "patternProperties": {rf"^(?:{pattern}){_END}": inner},
        "additionalProperties": False,
        "description": about,
    }


def _ref(name: str, about: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}", "description": about}


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _snippet(name: str, about: str, arguments: Mapping[str, Argument]) -> dict[str, Any]:
    """What an editor inserts: the required arguments as tab stops."""
    required = [key for key, item in arguments.items() if item.required]
    body = {key: f"${index}" for index, key in enumerate(required, 1)} or {"$1": "$2"}
    return {"label": name, "description": about, "body": {name: body}}
