"""A plan as a file: what it found, digested with the project's key, and signed as a whole.

It holds no fact that a run would use: a run plans anew, and goes on only where nothing of what
this plan found has moved (`staleness`).
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError
from runbooks.engine.model.host import Host
from runbooks.engine.plan.durable import plain
from runbooks.engine.plan.plan import Plan, Row
from runbooks.engine.plan.scope import Scope
from runbooks.engine.plan.seal import host_digests, keyed, known_key, put
from runbooks.engine.redact import Redactor

__all__ = [
    "SavedFinding",
    "SavedPlan",
    "SavedRow",
    "load_saved",
    "refuse_other",
    "save_plan",
    "saved_plan",
]

_VERSION = 1
_KIND = "runbook plan"
_AGAIN = "make a new one: runbook plan RUNBOOK -o FILE"


@dataclass(frozen=True, slots=True)
class SavedRow:
    """A row's status; of an irreversible step the approval that its plan printed."""

    step: str
    host: str
    status: str
    approval: str | None = None
    identity: str = ""
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SavedFinding:
    """A finding: `values` are its durable fields, masked, for people; `digest` is of them as
    they were. `part` is `requires` or `ensures`, `index` counts within it."""

    step: str
    host: str
    part: str
    index: int
    on: str
    subject: str
    truth: str
    values: Mapping[str, Any]
    digest: str

    @property
    def key(self) -> tuple[str, str, str, int]:
        return (self.step, self.host, self.part, self.index)


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan file's content; `inventory` is a digest by host, `created` is epoch seconds."""

    id: str
    runbook: str
    file: str
    digest: str
    variables: Mapping[str, Any]
    inventory: Mapping[str, str]
    scope: Scope
    created: float
    engine: str
    rows: tuple[SavedRow, ...] = ()
    findings: tuple[SavedFinding, ...] = ()
    mac: str = field(default="", compare=False)

    @property
    def mark(self) -> str:
        """The name under which its use is recorded: short ids meet, signatures do not."""
        return f"{self.id}-{self.mac[:16]}"

    def record(self) -> dict[str, Any]:
        """Everything but the signature, as plain JSON; the schema version first."""
        return {
            "v": _VERSION,
            "kind": _KIND,
            "id": self.id,
            "runbook": self.runbook,
            "file": self.file,
            "digest": self.digest,
            "variables": plain(self.variables),
            "inventory": dict(self.inventory),
            "scope": {
                "limit": None if self.scope.limit is None else sorted(self.scope.limit),
                "selected": None if self.scope.selected is None else sorted(self.scope.selected),
                "words": self.scope.words,
            },
            "created": self.created,
            "engine": self.engine,
            "rows": [_fields(row) for row in self.rows],
            "findings": [_fields(finding) for finding in self.findings],
        }


def _fields(item: SavedRow | SavedFinding) -> dict[str, Any]:
    return {name: plain(getattr(item, name)) for name in item.__dataclass_fields__}


def saved_plan(plan: Plan, hosts: Mapping[str, Host], key: bytes, redactor: Redactor) -> SavedPlan:
    """A plan as it is saved, and as a saved one is compared with."""
    return SavedPlan(
        id=plan.id,
        runbook=plan.runbook.name,
        file=str(plan.runbook.file),
        digest=plan.runbook.digest,
        variables=redactor.value(plain(plan.runbook.variables)),
        inventory=host_digests(hosts),
        scope=plan.scope,
        created=round(plan.ended, 3),
        engine=_engine(),
        rows=tuple(_row(row, redactor) for row in plan.rows),
        findings=tuple(
            SavedFinding(
                step=row.step.id,
                host=row.host,
                part=part,
                index=index,
                on=finding.host,
                subject=redactor.text(finding.check.subject),
                truth=finding.truth.value,
                values=redactor.value(plain(finding.durable)),
                digest=keyed(key, finding.durable),
            )
            for row in plan.rows
            for part in ("requires", "ensures")
            for index, finding in enumerate(getattr(row, part))
        ),
    )


def _row(row: Row, redactor: Redactor) -> SavedRow:
    saved = SavedRow(row.step.id, row.host, row.status.value, row.approval)
    if row.step.irreversible is None or row.preview is None:
        return saved
    return SavedRow(
        saved.step,
        saved.host,
        saved.status,
        saved.approval,
        redactor.text(row.preview.identity),
        sum(row.preview.frees.values()),
    )


def _engine() -> str:
    try:
        return version("eagle3-runbooks")
    except PackageNotFoundError:
        return ""


def save_plan(file: Path, saved: SavedPlan, key: bytes) -> None:
    """Write the plan, signed, for its owner alone.

    RunbookError (usage) where the file cannot be written, or is there and is no plan.
    """
    refuse_other(file)
    record = saved.record()
    text = json.dumps(record | {"mac": keyed(key, record)}, indent=1, ensure_ascii=True)
    try:
        put(file, text.encode() + b"\n")
    except OSError as error:
        raise RunbookError.usage(
            f"the plan cannot be written: {error.strerror}", where=str(file)
        ) from None


def refuse_other(file: Path) -> None:
    """RunbookError (usage) for a file that is there and is no plan: a mistyped -o must not
    cost somebody a file."""
    if not file.exists() and not file.is_symlink():
        return
    try:
        kind = _parsed(file).get("kind")
    except RunbookError:
        kind = None
    if kind != _KIND or not file.is_file():
        raise RunbookError.usage(
            "is there already, and is no plan; it stays as it is",
            where=str(file),
            hint="give another name to -o, or remove the file",
        )


def load_saved(file: Path, runs: Path) -> SavedPlan:
    """Read a plan file. RunbookError: usage with the place of what is wrong, or exit 7 where
    it was altered, or signed with another key than `RUNBOOK_RUNS/key`."""
    content = _parsed(file)
    if content.get("kind") != _KIND:
        raise _wrong(file, "is no saved plan", "make one: runbook plan RUNBOOK -o FILE")
    if content.get("v") != _VERSION:
        found = content.get("v")
        raise _wrong(file, f"v: its schema version is {found!r}, want {_VERSION}", _AGAIN)
    saved = _Reader(file).plan(content)
    key = known_key(runs)
    unsigned = {name: value for name, value in content.items() if name != "mac"}
    if key is None or not hmac.compare_digest(keyed(key, unsigned).encode(), saved.mac.encode()):
        known = "" if key else f" ({runs} has no key)"
        raise RunbookError(
            Diagnostic(
                f"the plan file was altered, or it was made with another key{known}",
                where=str(file),
                hint=f"{_AGAIN}; the key is RUNBOOK_RUNS/key, and a plan is run with the same one",
                code=ExitCode.STALE,
            )
        )
    return saved


def _parsed(file: Path) -> dict[str, Any]:
    try:
        text = file.read_bytes().decode()
        content = json.loads(text)
    except OSError as error:
        raise _wrong(file, f"the plan cannot be read: {error.strerror}") from None
    except json.JSONDecodeError as error:
        place = f"{file}:{error.lineno}:{error.colno}"
        begun = text.lstrip().startswith("{") and not text.rstrip().endswith("}")
        if begun or not text[error.pos :].strip():
            raise _wrong(place, "the plan file is cut off", _AGAIN) from None
        raise _wrong(place, f"is not JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise _wrong(file, "is not JSON") from None
    if not isinstance(content, dict):
        raise _wrong(file, "is no saved plan: want a JSON object")
    return content


def _wrong(where: object, message: str, hint: str | None = None) -> RunbookError:
    return RunbookError.usage(message, where=str(where), hint=hint)


T = TypeVar("T")
_NAMES = {str: "text", int: "a whole number", dict: "an object", list: "a list"}


class _Reader:
    """Takes fields out of a plan file; one of another type is named with its place."""

    def __init__(self, file: Path):
        self.file = file

    def plan(self, content: Mapping[str, Any]) -> SavedPlan:
        texts = ("id", "runbook", "file", "digest", "engine", "mac")
        inventory = self.get(content, "", "inventory", dict)
        scope = self.get(content, "", "scope", dict)
        return SavedPlan(
            **{name: self.get(content, "", name, str) for name in texts},
            variables=self.get(content, "", "variables", dict),
            inventory={name: self.get(inventory, "inventory.", name, str) for name in inventory},
            scope=Scope(
                limit=self.names(scope, "limit"),
                selected=self.names(scope, "selected"),
                words=self.get(scope, "scope.", "words", str),
            ),
            created=self.number(content, "created"),
            rows=tuple(self.row(row, place) for row, place in self.each(content, "rows")),
            findings=tuple(
                self.finding(item, place) for item, place in self.each(content, "findings")
            ),
        )

    def row(self, row: Mapping[str, Any], place: str) -> SavedRow:
        approval = row.get("approval")
        count = row.get("bytes")
        return SavedRow(
            step=self.get(row, place, "step", str),
            host=self.get(row, place, "host", str),
            status=self.get(row, place, "status", str),
            approval=None if approval is None else self.get(row, place, "approval", str),
            identity=self.get(row, place, "identity", str),
            bytes=None if count is None else self.get(row, place, "bytes", int),
        )

    def finding(self, item: Mapping[str, Any], place: str) -> SavedFinding:
        texts = ("step", "host", "part", "on", "subject", "truth", "digest")
        return SavedFinding(
            **{name: self.get(item, place, name, str) for name in texts},
            index=self.get(item, place, "index", int),
            values=self.get(item, place, "values", dict),
        )

    def get(self, mapping: Mapping[str, Any], place: str, name: str, kind: type[T]) -> T:
        if name not in mapping:
            raise _wrong(self.file, f"{place}{name} is missing", _AGAIN)
        value = mapping[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            found = json.dumps(value)
            shown = found if len(found) <= 40 else f"{found[:40]}…"
            raise _wrong(self.file, f"{place}{name} is {shown}, want {_NAMES[kind]}", _AGAIN)
        return value

    def number(self, mapping: Mapping[str, Any], name: str) -> float:
        value = mapping.get(name)
        return value if isinstance(value, float) else float(self.get(mapping, "", name, int))

    def names(self, scope: Mapping[str, Any], name: str) -> frozenset[str] | None:
        """A list of text, or null."""
        if name in scope and scope[name] is None:
            return None
        names: Sequence[Any] = self.get(scope, "scope.", name, list)
        numbered = {str(index): value for index, value in enumerate(names)}
        return frozenset(self.get(numbered, f"scope.{name}.", key, str) for key in numbered)

    def each(self, content: Mapping[str, Any], name: str) -> list[tuple[dict[str, Any], str]]:
        numbered = {
            f"{name}[{i}]": item for i, item in enumerate(self.get(content, "", name, list))
        }
        return [(self.get(numbered, "", key, dict), f"{key}.") for key in numbered]
