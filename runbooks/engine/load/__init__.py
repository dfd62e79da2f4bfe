"""From a YAML file to a `Runbook`: read, resolve, validate, build; no host is contacted.

`source` (YAML to tree and places) → `references` (variables in place) → `matrix` (steps to their
instances) → `structure` (the schema's judgement in words) → `building`, `checks`, `semantics`,
`graph` (rules and model). `part` does so for one file, and joins what it includes (`include`).
"""

from __future__ import annotations

from runbooks.engine.load.loader import find_runbook, load_runbook, load_source
from runbooks.engine.load.schema import build_schema
from runbooks.engine.load.source import Source, parse_source, read_source
from runbooks.engine.load.variables import parse_variables

__all__ = [
    "Source",
    "build_schema",
    "find_runbook",
    "load_runbook",
    "load_source",
    "parse_source",
    "parse_variables",
    "read_source",
]
