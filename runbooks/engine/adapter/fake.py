"""Fake hosts (`@fake/NAME`): nothing runs, answers are scripted.

pyinfra answers a command by the first key of the host's `fake_responses` that is part of the
command's text. Questions are sent one by one as `# LABEL`, newline, script; changes as
`#! LABEL`, newline, what they are. So `disk_free root=data` as a key answers that fact.

A scripted answer has `stdout` and `stderr` (lines), and `exit`. pyinfra keeps only success or
failure, so `load_responses` writes an exit status as a last line of standard error,
`[exit 127]`, which is taken off again here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from runbooks.engine.model.diagnostic import RunbookError, did_you_mean
from runbooks.engine.model.operation import Command, Delegate, Put
from runbooks.engine.model.probe import Output, Shell

__all__ = [
    "change_text",
    "fake_data",
    "load_responses",
    "lock_answer",
    "output_of",
    "question_text",
]

_EXIT = re.compile(r"\[exit (\d+)\]")
_KEYS = ("stdout", "stderr", "exit")


def question_text(shell: Shell) -> str:
    return f"# {' '.join(shell.label.split())}\n{shell.script}"


def change_text(action: Command | Put | Delegate) -> str:
    """A change as the one line and the details that a scripted answer can match."""
    match action:
        case Put():
            return f"#! put {action.path}\n{len(action.content)} bytes, mode {action.mode}"
        case Command():
            what = action.script if action.script is not None else " ".join(action.argv)
            return f"#! {' '.join(action.label.split()) or 'command'}\n{what}"
        case Delegate():
            operation = action.operation
            name = f"{operation.__module__.rpartition('.')[2]}.{operation.__name__}"
            given = " ".join(f"{key}={value}" for key, value in action.arguments.items())
            return f"#! {action.label or name}\n{name} {given}"


def lock_answer(action: Command | Put | Delegate) -> Output | None:
    """A fake host keeps no state, so its lock is always free; None for any other change."""
    if isinstance(action, Command) and action.label.startswith("lock "):
        return Output(0, b"held\t1\n")
    return None


def output_of(success: bool, output: Any) -> Output:
    """pyinfra's answer as an Output."""
    stdout, stderr = list(output.stdout_lines), list(output.stderr_lines)
    exit_ = 0 if success else 1
    if stderr and (match := _EXIT.fullmatch(stderr[-1])):
        exit_ = int(match[1])
        stderr.pop()
    return Output(
        exit_,
        "".join(f"{line}\n" for line in stdout).encode(),
        "".join(f"{line}\n" for line in stderr),
    )


def load_responses(file: Path, host: str) -> dict[str | re.Pattern[str], Any]:
    """The scripted answers of one host from a YAML file of `HOST: {LABEL: answer}`.

    An answer is text (standard output) or a mapping of `stdout`, `stderr`, `exit`. Answers
    under `all` hold for every host, after its own. A question without an answer fails with
    exit 125 and says so: an empty success would read as "nothing there". Checkpoints alone
    are none where nothing is scripted.
    """
    # All scalars as the text they are: an answer `no` is not False.
    text = file.read_text() if file.exists() else "{}"
    content = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - it makes only text
    if not isinstance(content, Mapping):
        raise RunbookError.usage("want a mapping of host names", where=str(file))
    answers: dict[str | re.Pattern[str], Any] = {}
    for owner in (host, "all"):
        for label, answer in (content.get(owner) or {}).items():
            answers.setdefault(str(label), _response(answer, f"{file}, {owner}, {label}"))
    answers[re.compile(r"\A# checkpoints ")] = _response("", "")
    unanswered = "no scripted answer to this question"
    answers[re.compile(r"\A# ")] = {"success": False, "stderr": [unanswered, "[exit 125]"]}
    return answers


def _response(answer: object, where: str) -> dict[str, Any]:
    if not isinstance(answer, Mapping):
        return {"stdout": _lines(answer), "stderr": [], "success": True}
    for key in answer:
        if key not in _KEYS:
            hint = did_you_mean(str(key), _KEYS)
            raise RunbookError.usage(f"'{key}' is no key of an answer", where=where, hint=hint)
    exit_ = int(answer.get("exit", 0))
    stderr = _lines(answer.get("stderr"))
    return {
        "stdout": _lines(answer.get("stdout")),
        "stderr": [*stderr, f"[exit {exit_}]"] if exit_ else stderr,
        "success": exit_ == 0,
    }


def _lines(text: object) -> list[str]:
    if text is None or text == "":
        return []
    if isinstance(text, list):
        return [str(line) for line in text]
    return str(text).splitlines()


def fake_data(file: Path, host: str) -> dict[str, Any]:
    """Host data of a fake host that answers at once."""
    return {
        "fake_responses": load_responses(file, host),
        "fake_delay": 0.0,
        "fake_delay_jitter": 0.0,
    }
