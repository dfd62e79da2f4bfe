"""Checkpoints: the durable facts as they were when a step last ended, kept on its host.

    ${EAGLE3_STATE}/checkpoints/RUNBOOK.jsonl

One JSON line for each good end of a step, appended; the last line of a step counts. One
without facts is written when a step or a release begins to act, so that what is found after a
failure, a crash or a release is not taken for somebody else's doing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

from runbooks.engine.model.check import Check, Finding, Want
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context
from runbooks.engine.model.names import file_name
from runbooks.engine.model.probe import Asking, Shell
from runbooks.engine.model.values import Text
from runbooks.engine.plan.durable import plain
from runbooks.engine.redact import Redactor

__all__ = [
    "Checkpoint",
    "Recorded",
    "append_script",
    "checkpoint_line",
    "checkpoints_check",
    "compact",
    "compact_script",
    "parse_checkpoints",
    "read_script",
]

_VERSION = 1
_TEXT = Text(empty=True)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One fact of a checkpoint: the host it was read on, its durable fields as plain JSON."""

    subject: str
    on: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a step ensured on a host when it last ended, at a time (epoch), in a run."""

    step: str
    host: str
    at: float
    run: str
    facts: tuple[Recorded, ...] = ()


def checkpoint_line(
    step: str, host: str, findings: Sequence[Finding], run: str, at: float, redactor: Redactor
) -> str:
    """One JSON line: the durable fields of every fact that the step ensures, masked."""
    record = {
        "v": _VERSION,
        "step": step,
        "host": host,
        "at": round(at, 3),
        "run": run,
        "facts": [
            {
                "subject": finding.check.subject,
                "on": finding.host,
                "values": plain(finding.durable),
            }
            for finding in findings
        ],
    }
    text = json.dumps(redactor.value(record), ensure_ascii=False, default=str)
    return text.encode(errors="backslashreplace").decode()


def parse_checkpoints(text: str) -> tuple[dict[tuple[str, str], Checkpoint], list[str]]:
    """The newest checkpoint by step and host, and what is wrong with lines that cannot be read.

    Empty lines are none. A line that cannot be read may have been a step's newest one, so it
    has to be told.
    """
    found: dict[tuple[str, str], Checkpoint] = {}
    problems: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line:
            continue
        try:
            checkpoint = _parsed(line)
        except (ValueError, RecursionError) as error:
            problems.append(f"line {number} is no checkpoint: {error}")
        else:
            found[checkpoint.step, checkpoint.host] = checkpoint
    return found, problems


def _parsed(line: str) -> Checkpoint:
    try:
        record = json.loads(line.encode())
    except UnicodeEncodeError:
        raise ValueError("it is not UTF-8") from None
    except ValueError:
        raise ValueError("it is damaged") from None
    if not isinstance(record, dict):
        raise ValueError("it is damaged")
    if record.get("v") != _VERSION:
        raise ValueError(f"its schema version is {record.get('v')!r}, want {_VERSION}")
    at = record.get("at")
    if isinstance(at, bool) or not isinstance(at, (int, float)):
        raise ValueError("at is not a number")
    facts = record.get("facts")
    if not isinstance(facts, list):
        raise ValueError("facts is not a list")
    return Checkpoint(
        step=_text(record, "step"),
        host=_text(record, "host"),
        at=float(at),
        run=_text(record, "run"),
        facts=tuple(_recorded(fact) for fact in facts),
    )


def _recorded(fact: object) -> Recorded:
    if not isinstance(fact, dict) or not isinstance(fact.get("values"), dict):
        raise ValueError("a fact has no values")
    return Recorded(_text(fact, "subject"), _text(fact, "on"), fact["values"])


def _text(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} is not text")
    return value


def compact(text: str) -> str:
    """The newest line of each step and host; lines that cannot be read are left out."""
    newest: dict[tuple[str, str], str] = {}
    for line in text.split("\n"):
        found, _ = parse_checkpoints(line)
        newest.update(dict.fromkeys(found, line))
    return "".join(f"{line}\n" for line in newest.values())


def compact_script(runbook: str, text: str) -> str:
    """Shell text that leaves the newest line of each step in the file, whole or not at all."""
    lines = " ".join(map(quote, compact(text).splitlines())) or "''"
    return f"""c_file={_file(runbook)}
(umask 077; printf '%s\\n' {lines} > "$c_file.new") && mv -f -- "$c_file.new" "$c_file"
"""


def append_script(runbook: str, lines: Sequence[str]) -> str:
    """Shell text that appends lines to the runbook's checkpoints; it never fails its caller.

    It begins with an empty line, so that a line which a crash cut off damages no other.
    """
    words = " ".join(map(quote, lines))
    return f"""[ -d "$EAGLE3_STATE"/checkpoints ] ||
  (umask 077; mkdir -p "${{EAGLE3_STATE:?}}"/checkpoints) 2>/dev/null || :
(umask 077; printf '%s\\n' '' {words} >> {_file(runbook)}) 2>/dev/null || :
"""


def read_script(runbook: str) -> Shell:
    """Print the runbook's checkpoints; nothing where there are none, and fail where denied."""
    script = f"""c_file={_file(runbook)}
{{ c_said=$(LC_ALL=C cat -- "$c_file" 2>&1 1>&3 3>&-) && exit 0; }} 3>&1
case $c_said in *'No such file or directory'*) exit 0;; esac
printf '%s\\n' "$c_said" >&2
exit 1
"""
    return Shell(f"checkpoints {runbook}", script)


def _file(runbook: str) -> str:
    """The file as a shell word; EAGLE3_STATE is exported to every script."""
    return f'"${{EAGLE3_STATE:?}}"/checkpoints/{quote(file_name(runbook))}.jsonl'


class _Checkpoints(Fact):
    """The checkpoints of a runbook on a host, as text: read in one round trip with its facts."""

    name = "checkpoints"
    about = "The checkpoints of a runbook on a host."
    arguments = {"runbook": Argument(Text(), "The runbook's name.", required=True)}
    fields = {"lines": Field(_TEXT, "The lines of its file.")}
    value = "lines"

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        output = yield read_script(args["runbook"])
        if output.exit:
            output.expect()
        # Bytes that are not UTF-8 damage their line, not the others.
        return {"lines": output.stdout.decode(errors="surrogateescape")}


def checkpoints_check(runbook: str) -> Check:
    """Reads the checkpoints of a runbook: `durable["lines"]`, or unknown with the reason."""
    want = Want("lines", "matches", "", _TEXT)
    return Check(_Checkpoints(), {"runbook": runbook}, (want,))
