"""Controllers that kill themselves at a chosen record of their journal.

As a program (`python -m tests.e2e.crashing`) it reads requests, one JSON object a line, and for
each forks a process that is `runbook ARGV`, waits for its end, and answers with a line
`{"code": N}`: an exit code, or minus a signal. The engine is imported once, before the first
fork, which is all that the processes share.

`Launcher` is the other end: one such program, one controller at a time.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Boundary", "Launcher", "boundaries_of"]

PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Boundary:
    """Right before or right after a record is written: the `nth` of this event, step and host.

    A number in the whole journal would name another record whenever hosts overtake each other.
    """

    when: str
    event: str
    step: str
    host: str
    nth: int

    def __str__(self) -> str:
        unit = f" {self.step}@{self.host}" if self.step or self.host else ""
        return f"{self.when} {self.event}{unit} #{self.nth}"


def _key(record: Mapping[str, Any]) -> tuple[str, str, str]:
    return (record["event"], str(record.get("step", "")), str(record.get("host", "")))


def boundaries_of(records: Iterable[Mapping[str, Any]]) -> Iterator[Boundary]:
    """Two of each record of a journal."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for record in records:
        seen[_key(record)] += 1
        for when in ("before", "after"):
            yield Boundary(when, *_key(record), seen[_key(record)])


class Launcher:
    """Runs controllers one after the other, each a process of its own.

    `enter` turns an argv into one that runs where the hosts are.
    """

    def __init__(self, enter: Callable[[Sequence[str]], list[str]]):
        self._program = subprocess.Popen(
            enter([sys.executable, "-m", "tests.e2e.crashing"]),
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        boundary: Boundary | None = None,
    ) -> tuple[int, str]:
        """Exit code (minus the signal that ended it) and output of `runbook ARGV`."""
        output = cwd / "output"
        request = {
            "argv": list(argv),
            "cwd": str(cwd),
            "env": dict(env),
            "output": str(output),
            "boundary": dataclasses.asdict(boundary) if boundary else None,
        }
        assert self._program.stdin is not None and self._program.stdout is not None
        self._program.stdin.write(json.dumps(request) + "\n")
        self._program.stdin.flush()
        answer = self._program.stdout.readline()
        if not answer:
            raise RuntimeError("the launcher of controllers ended")
        return json.loads(answer)["code"], output.read_text(errors="replace")

    def close(self) -> None:
        assert self._program.stdin is not None and self._program.stdout is not None
        self._program.stdin.close()
        try:
            self._program.wait(30)
        finally:
            self._program.kill()
            self._program.stdout.close()


@contextmanager
def launcher(enter: Callable[[Sequence[str]], list[str]]) -> Iterator[Launcher]:
    started = Launcher(enter)
    try:
        yield started
    finally:
        started.close()


def _die_at(boundary: Boundary) -> None:
    """Make this process end, as by a power cut, at the boundary."""
    from runbooks.engine.run.journal import Journal

    take = Journal.take
    key = (boundary.event, boundary.step, boundary.host)
    seen = 0

    def taking(self: Journal, record: Mapping[str, Any]) -> None:
        nonlocal seen
        met = False
        if _key(record) == key:
            seen += 1
            met = seen == boundary.nth
        if met and boundary.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        take(self, record)
        if met:
            os.kill(os.getpid(), signal.SIGKILL)

    Journal.take = taking  # type: ignore[method-assign]


def _control(request: Mapping[str, Any]) -> int:
    """Be the controller, in the forked process."""
    import gevent

    from runbooks.engine import cli

    gevent.reinit()
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    if request["boundary"] is not None:
        _die_at(Boundary(**request["boundary"]))
    return cli.main(request["argv"])


def _fork(request: Mapping[str, Any], fork: Callable[[], int]) -> int:
    pid = fork()
    if pid:
        return pid
    code = 70
    try:
        code = _control(request)
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Answer requests until standard input ends."""
    from runbooks.engine.adapter.runtime import patch

    patch()
    from gevent.monkey import get_original

    from runbooks.engine import cli
    from runbooks.engine.adapter import fleet  # noqa: F401 - `cli` imports it when it runs
    from runbooks.engine.registry import installed

    # These import the subcommands and the plug-ins.
    cli.build_parser()
    installed()
    # gevent's own would watch the child in a loop that nothing turns here.
    fork, waitpid = get_original("os", "fork"), get_original("os", "waitpid")
    for line in sys.stdin:
        _, status = waitpid(_fork(json.loads(line), fork), 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
