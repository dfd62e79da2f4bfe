"""The keys of a runbook with their types and descriptions, beside what the registry adds."""

from __future__ import annotations

from runbooks.engine.model.fact import Argument
from runbooks.engine.model.values import (
    Boolean,
    Choice,
    Duration,
    HostName,
    Integer,
    ListOf,
    MapOf,
    Number,
    Size,
    Text,
)

__all__ = [
    "DEFAULTS",
    "ESTIMATE",
    "FOREIGN",
    "GATE_KEYS",
    "INCLUDE",
    "IRREVERSIBLE",
    "NAME_PATTERN",
    "NOTIFY",
    "OPERATOR_ABOUT",
    "RETRY",
    "RUNBOOK",
    "SECRET",
    "STEP",
    "STEP_PATTERN",
    "WATCH",
]

# Names of variables, secrets and roots; binding reads the same form.
NAME_PATTERN = "[A-Za-z_][A-Za-z0-9_-]*"
# No brackets: those of `extract[shard=2]` are the matrix's.
STEP_PATTERN = "[A-Za-z0-9_][A-Za-z0-9_.-]*"

_SECONDS_MORE = "Durations fall: 72h, 1d12h, 90m."

# Top-level keys that are a plain value; the others get a schema of their own.
RUNBOOK = {
    "runbook": Argument(
        Text("[A-Za-z0-9][A-Za-z0-9_.-]*", "extract"), "The runbook's name.", required=True
    ),
    "about": Argument(Text(), "What it is for, in one sentence."),
    "plugins": Argument(
        ListOf(
            Text(r"[A-Za-z_][A-Za-z0-9_.]*(?::[A-Za-z_][A-Za-z0-9_.]*)?", "package.module:register")
        ),
        "Python callables (module:callable) that register more facts and operations.",
    ),
}

STEP = {
    "needs": Argument(
        ListOf(Text(), minimum=0),
        "Steps that come first, on all their hosts; [] for a step that waits for none.",
        required=True,
    ),
    "hosts": Argument(
        ListOf(HostName()), "Hosts or groups of the inventory to run on.", required=True
    ),
    "about": Argument(Text(), "Why the step is there, in one sentence."),
    "timeout": Argument(
        Duration(), f"When to end the operation; a job has none by default. {_SECONDS_MORE}"
    ),
    "transient": Argument(
        Boolean(), "Wanted only while a dependent still has to run (a server for an extraction)."
    ),
}

RETRY = {
    "times": Argument(Integer(0), "How often to try again.", required=True),
    "wait": Argument(Duration(), "How long to wait before the second attempt; 30s by default."),
    "backoff": Argument(Number(), "Factor by which the wait grows with each attempt; at least 1."),
    "when": Argument(
        ListOf(Choice(("unreachable", "timeout"))),
        "Classes of error to try again on; unreachable by default.",
    ),
}

DEFAULTS = {
    "timeout": Argument(
        Duration(), "For steps without their own timeout; never for long work such as a job."
    ),
}

ESTIMATE = {
    "time": Argument(Duration(), "How long the step will take."),
    "writes": Argument(
        MapOf(Size(), NAME_PATTERN), "Bytes the step will write, by root: {data: 3.1 TiB}."
    ),
    "frees": Argument(
        MapOf(Size(), NAME_PATTERN), "Bytes the step will free, by root: {data: 924 GiB}."
    ),
}

WATCH = {
    "late": Argument(Duration(), "Warn when the work takes longer; nothing is ended."),
    "silent": Argument(Duration(), "Warn when the progress has not moved for so long."),
}

IRREVERSIBLE = {
    "loses": Argument(Text(), "What is gone afterwards.", required=True),
    "restore": Argument(Text(), "How it could be had again, or none.", required=True),
}

NOTIFY = {
    "when": Argument(
        ListOf(Choice(("failed", "finished", "late", "approval"))),
        "Events to tell of: the step failed, finished (after it acted), is late or silent, "
        "waits for an approval.",
        required=True,
    ),
    "command": Argument(
        ListOf(Text()), "A program here that gets the event as JSON on its standard input."
    ),
    "webhook": Argument(
        Text(), "An http(s) address that gets the event as JSON, or ${{ secrets.NAME }} whole."
    ),
}

# `vars` stands beside these.
INCLUDE = {
    "runbook": Argument(Text(), "Another runbook's file, relative to this one.", required=True),
    "as": Argument(
        Text(NAME_PATTERN, "data"),
        "What its steps and variables are called here: data gives data.merge.",
        required=True,
    ),
    "needs": Argument(
        ListOf(Text(), minimum=0),
        "Steps of this file, or of includes above, that come before all of its steps.",
    ),
}

SECRET = {
    "env": Argument(Text("[A-Za-z_][A-Za-z0-9_]*", "HF_TOKEN"), "Environment variable here."),
    "file": Argument(Text(), "A file here whose content is the secret."),
    "command": Argument(ListOf(Text()), "A program here whose output is the secret."),
}

# Keys that a step without `do` may have.
GATE_KEYS = frozenset({"needs", "hosts", "about", "requires", "timeout", "retry", "notify"})

OPERATOR_ABOUT = {
    "eq": "Is equal to.",
    "ne": "Differs from.",
    "lt": "Is less than.",
    "le": "Is at most.",
    "gt": "Is more than.",
    "ge": "Is at least.",
    "in": "Is one of.",
    "matches": "Holds this regular expression somewhere.",
    "within": "How far an equal amount may be off: 2%.",
}

# What people write who know another tool.
FOREIGN = {
    "on": "hosts",
    "host": "hosts",
    "targets": "hosts",
    "depends_on": "needs",
    "depends-on": "needs",
    "after": "needs",
    "when": "requires",
    "if": "requires",
    "preconditions": "requires",
    "postconditions": "ensures",
    "run": "do",
    "uses": "do",
    "retries": "retry",
    "rollback": "undo",
    "variables": "vars",
    "env": "vars",
    "name": "runbook",
    "jobs": "steps",
    "tasks": "steps",
    "description": "about",
    "file": "runbook",
    "prefix": "as",
    "with": "vars",
}
