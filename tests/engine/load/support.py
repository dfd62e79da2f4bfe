"""What the loader's tests share: the registry, writing a runbook, loading it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from runbooks.engine.load import load_runbook, load_source, parse_source
from runbooks.engine.model.diagnostic import Diagnostic, RunbookError
from runbooks.engine.model.runbook import Runbook
from runbooks.engine.registry import Registry, installed
from tests.engine.load import declarations

PROJECT = Path(__file__).parents[3]
CASES = PROJECT / "tests" / "cases" / "runbooks"
EXTRACT = PROJECT / "runbooks" / "extract.yaml"
HOSTS = declarations.HOSTS

HEAD = """\
runbook: case
about: A small runbook.
"""
STEP = """\
  a:
    needs: []
    hosts: [llm-two]
    do: {command: {argv: [touch, "data:x"]}}
    ensures: [{path: {path: "data:x", is: file}}]
"""


@cache
def stubs() -> Registry:
    return declarations.registry()


@cache
def real() -> Registry:
    """What the installed distributions register."""
    return installed()


def load(text: str | bytes, registry: Registry | None = None, **variables: str) -> Runbook:
    raw = text.encode() if isinstance(text, str) else text
    return load_source(parse_source(raw, Path("t.yaml")), registry or stubs(), HOSTS, variables)


def load_file(file: Path, registry: Registry) -> Runbook:
    return load_runbook(file, registry, HOSTS)


def faults(
    text: str | bytes, registry: Registry | None = None, **variables: str
) -> list[Diagnostic]:
    """What is wrong with a runbook, in order; nothing when it loads."""
    try:
        load(text, registry, **variables)
    except RunbookError as error:
        return list(error.diagnostics)
    return []


def fault(text: str | bytes, registry: Registry | None = None, **variables: str) -> Diagnostic:
    """The one fault of a runbook."""
    found = faults(text, registry, **variables)
    assert len(found) == 1, [(item.place, item.message) for item in found]
    return found[0]


def step_with(*lines: str, do: str = '{command: {argv: [touch, "data:x"]}}') -> str:
    """A runbook of one step with more lines; they begin on line 7."""
    return (
        f"{HEAD}steps:\n  a:\n    needs: []\n    hosts: [llm-two]\n"
        + "".join(f"    {line}\n" for line in lines)
        + f"    do: {do}\n"
        + '    ensures: [{path: {path: "data:x", is: file}}]\n'
    )


def said(item: Diagnostic) -> tuple[int, int]:
    assert item.place is not None
    return item.place.line, item.place.column
