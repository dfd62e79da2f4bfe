"""Many scripts in one round trip: one POSIX script out, framed outputs back.

pyinfra keeps no exit status, reads lines of UTF-8 and dies at another byte, and costs a round
trip for each command. So scripts travel together as the standard input of one shell, and come
back as base64 between framing lines, each with its own exit status and standard error.

Nothing is written on the host, not even a temporary file. Scripts run one after the other,
each in a shell of its own with an empty standard input, under `timeout` where the host has it:
one that fails, kills its shell, waits or prints without end does not disturb the others. An
answer without its last framing line is no answer (a cut connection must not read as "empty").

Measured on two cores: twelve probes of @local took 200 ms one by one and 80 ms in one batch;
over SSH, to a login shell whose start-up file takes 100 ms, 1,600 ms and 145 ms.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from runbooks.engine.model.host import Host
from runbooks.engine.model.operation import Command
from runbooks.engine.model.probe import Output, Shell

__all__ = [
    "LAUNCH",
    "Task",
    "command_task",
    "compose",
    "environment",
    "output_of",
    "parse",
    "shell_task",
    "task_body",
]

# The argv of the shell on the host: it reads the script to its end before it runs any of it,
# so that a script cut in half does nothing, and what the script says stands in no argv.
LAUNCH = (
    's=$(cat); case $s in *"#eagle3-end") eval "$s";; '
    '*) echo "the script did not arrive whole" >&2; exit 125;; esac'
)
# Bytes of standard output: of a question from its beginning, of a change its end.
ASK_LIMIT = 16 * 2**20
TAIL_LIMIT = 2**20
# One argument of a program may hold 128 KiB on Linux; longer scripts go through a pipe.
_ARGUMENT_LIMIT = 100_000
_GRACE = 5


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to run on a host: an argv, or a script for `shell`.

    `last`: keep the end of a long output instead of the beginning.
    """

    script: str | None = None
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    stdin: bytes | None = None
    timeout: int | None = None
    last: bool = False
    shell: str = "sh"
    # The script itself holds a secret, and goes through a pipe, never an argv.
    hidden: bool = False

    @property
    def piped(self) -> bool:
        """Whether the script stands in no argv: it is secret, or too long."""
        return self.script is not None and (
            self.hidden or len(self.script.encode()) > _ARGUMENT_LIMIT
        )


def shell_task(shell: Shell) -> Task:
    """A question; its label is the first line, where it is inert."""
    return Task(script=f"# {_one_line(shell.label)}\n{shell.script}", timeout=shell.timeout)


def command_task(command: Command) -> Task:
    """A change."""
    script = command.script
    if script is not None and command.label:
        script = f"# {_one_line(command.label)}\n{script}"
    return Task(
        script=script,
        argv=command.argv,
        env=command.env,
        cwd=command.cwd,
        stdin=command.stdin,
        timeout=command.timeout,
        last=True,
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def environment(host: Host) -> str:
    """Assignments that every script of a host begins with."""
    lines = ["LC_ALL=C.UTF-8; export LC_ALL"]
    if host.path:
        folders = ":".join(_expanding(folder) for folder in host.path)
        lines.append(f'PATH={folders}:"$PATH"; export PATH')
    for name, value in sorted(host.environment().items()):
        lines.append(f"{name}={shlex.quote(value)}; export {name}")
    lines.append(f"EAGLE3_STATE={_expanding(host.state)}; export EAGLE3_STATE")
    return "\n".join(lines)


def _expanding(path: str) -> str:
    """The path as a shell word in which `$HOME` or `~` at its beginning is the host's, and
    nothing else is special: the inventory names folders, it runs nothing."""
    match = re.match(r"(?:\$HOME|\$\{HOME\}|~)(?=/|$)", path)
    if match is None:
        return shlex.quote(path)
    rest = path[match.end() :]
    return '"$HOME"' + (shlex.quote(rest) if rest else "")


def compose(tasks: Sequence[Task], preamble: str, token: str) -> str:
    """One script that runs all tasks; `token` (letters and digits) marks its framing lines."""
    parts = [preamble, _BEGIN]
    if any(task.timeout is not None for task in tasks):
        parts.append(_TIMEOUT)
    parts.append(_ENCODER.replace("TOKEN", token))
    for index, task in enumerate(tasks):
        limit = f"tail -c {TAIL_LIMIT}" if task.last else f"head -c {ASK_LIMIT + 1}"
        run = _RUN.replace("TOKEN", token).replace("INDEX", str(index)).replace("LIMIT", limit)
        # Last, since a task's own text may hold any of these words.
        parts.append(run.replace("TASK", task_body(task), 1))
    parts.append("exit 0\n#eagle3-end")
    text = "\n".join(parts)
    if "\0" in text:
        raise ValueError("a script cannot hold a NUL")
    return text


# Descriptors: 5 is the real standard output; 4 collects exit status and standard error, which
# come after the output; 3 is the output of the task on its way through limit and encoding.
# `!` and `@` stand in neither base64 nor hexadecimal digits.
#
# A process costs about a millisecond, so nothing here forks twice: a program in a pipeline is
# called by its name (a function would fork once more), and a subshell ends with `exec`.
_BEGIN = "exec 5>&1 </dev/null"
_TIMEOUT = r"""if timeout -k 1 9 true 2>/dev/null; then _t='timeout -k 5'
elif timeout 9 true 2>/dev/null; then _t=timeout
else _t=
fi"""
_ENCODER = r"""if command -v base64 >/dev/null 2>&1; then _k=b; _b=base64
elif command -v od >/dev/null 2>&1; then _k=x; _b='od -An -v -tx1'
else _k=-
fi
printf '\n@TOKEN %s\n' "$_k"
[ "$_k" != - ] || exit 0"""
_RUN = r"""printf '\n@TOKEN INDEX\n'
_e=$({ { { (
TASK
) 2>&1 1>&3 3>&- 4>&- 5>&-; printf '!%s!' "$?" >&4; } | tail -c 1048576 | $_b >&4; } 3>&1 |
LIMIT | $_b >&5; } 4>&1)
printf '\n@TOKEN e\n%s\n@TOKEN .\n' "$_e"
"""


def task_body(task: Task) -> str:
    """Shell text that becomes the task. `_t` is timeout(1) with its options, or empty."""
    # `exec` and `timeout` find programs only, never the functions and builtins of this shell.
    limit = f"${{_t:+$_t {task.timeout}}} " if task.timeout is not None else ""
    if task.script is None:
        words = shlex.join(task.argv)
    elif task.piped:
        words = f"""{task.shell} -c 's=$(cat <&8); exec 8<&-; eval "$s"'"""
    else:
        words = f"{task.shell} -c {shlex.quote(task.script)}"
    # Before the environment: neither an IFS nor any other name of the task's own is this shell's.
    script = f"{shlex.quote(task.script or '')} " if task.piped else ""
    lines = [f"set -- {script}{limit}{words}"]
    # Assigned and exported by the shell itself: no process shows a value in its argv.
    lines += [f"{name}={shlex.quote(value)}; export {name}" for name, value in task.env.items()]
    if task.cwd is not None:
        folder = shlex.quote(task.cwd)
        lines.append(
            f"cd -- {folder} 2>/dev/null || "
            f"{{ printf 'the folder %s cannot be entered\\n' {folder} >&2; exit 1; }}"
        )
    run = 'exec "$@"'
    if task.piped:
        run = f'{{ printf %s "$1" | ( shift; {run} 8<&0 0<&7 7<&- ); }} 7<&0'
    if task.stdin is not None:
        # Without the decoder the program would run on an empty input.
        lines.append(
            "command -v base64 >/dev/null 2>&1 || { echo 'the host has no base64' >&2; exit 127; }"
        )
        run = f"printf %s '{base64.b64encode(task.stdin).decode()}' | base64 -d | ( {run} )"
    lines.append(run)
    return "\n".join(lines)


def parse(
    lines: Iterable[str], tasks: Sequence[Task], token: str, seconds: float = 0.0
) -> list[Output | None]:
    """The outputs in order; None where the answer did not arrive whole.

    `seconds` that all tasks took: a task that ignored `timeout`'s first signal ends by its
    second one with exit 137, which means 124 when its time can have run out.
    """
    outputs: list[Output | None] = [None] * len(tasks)
    kind = ""
    index = -1
    body: list[str] = []
    stdout: list[str] | None = None
    for line in lines:
        if not line.startswith(f"@{token} "):
            body.append(line)
            continue
        word = line[len(token) + 2 :].strip()
        if word in ("b", "x", "-"):
            kind = word
        elif word == "e":
            stdout = body
        elif word == "." and stdout is not None and 0 <= index < len(tasks):
            outputs[index] = _output(kind, stdout, body, tasks[index], seconds)
            stdout = None
        elif word.isdigit():
            index, stdout = int(word), None
        body = []
    if kind == "-":
        missing = Output(127, stderr="the host has neither base64 nor od")
        return [missing for _ in tasks]
    return outputs


def _output(
    kind: str, stdout: Sequence[str], rest: Sequence[str], task: Task, seconds: float
) -> Output | None:
    """One answer, or None when it is damaged."""
    text = "".join(rest)
    status = re.search(r"!(\d+)!", text)
    out = _decode(kind, "".join(stdout))
    error = _decode(kind, re.sub(r"!\d+!", "", text))
    if status is None or out is None or error is None:
        return None
    return output_of(task, int(status[1]), out, error, seconds)


def output_of(task: Task, exit_: int, out: bytes, error: bytes, seconds: float) -> Output:
    """What a task printed as its answer; `out` has one byte more than the limit where it was cut."""
    stderr = error.decode(errors="replace")
    # 143: busybox has no status of its own for a time that ran out.
    if task.timeout is not None and exit_ in (137, 143) and seconds >= task.timeout:
        exit_ = 124
    if not task.last and len(out) > ASK_LIMIT:
        out = out[:ASK_LIMIT]
        exit_ = exit_ or 141
        stderr += f"\nthe output was cut after {ASK_LIMIT // 2**20} MiB"
    return Output(exit_, out, stderr)


def _decode(kind: str, text: str) -> bytes | None:
    try:
        if kind == "b":
            return base64.b64decode(text, validate=True)
        return bytes.fromhex(text)
    except (binascii.Error, ValueError):
        return None
