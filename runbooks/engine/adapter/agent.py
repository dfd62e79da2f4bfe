"""The program that stands on a host for one connection, and runs what it is sent.

A shell has to start a process for every limit, every encoding and every stream, and sshd two
more for each command: 15 to 25 ms of CPU for one question. This program starts nothing but the
task itself. It is sent to the host's own Python (3.7 or newer, standard library alone) over
standard input, is never written there, and ends with its connection.

A request is a line with its length in bytes, then JSON: `{"tasks": [...]}`, each task with
`argv` or `feed` (a script for sh that stands in no argv), and `stdin` (base64), `timeout`
(seconds), `last` (keep the end of a long output). The answer has the same form:
`{"answers": [[EXIT, STDOUT, STDERR], ...]}`, base64. A request that did not arrive whole does
nothing.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

# Of a question the beginning of its output is kept (and one byte, which says that it was cut),
# of a change the end. These are the limits of batch.py; a test compares them.
ASK_LIMIT = 16 * 2**20
TAIL_LIMIT = 2**20
GRACE = 5
# `sh` reads the script of a feed from here; a shell names only one digit.
FEED = 9
CHUNK = 65536
READY = b"@ready\n"
# The variable that brings the PATH as the shell had it.
PATH = "EAGLE3_AGENT_PATH"


class Stream:
    """What a task prints: its beginning (then nobody reads any more), or its end."""

    def __init__(self, pipe: Any, limit: int, last: bool):
        self.pipe = pipe
        self.limit = limit
        self.last = last
        self.kept = bytearray()

    def read(self) -> bool:
        """Take what there is; whether more may come."""
        data = os.read(self.pipe.fileno(), CHUNK)
        self.kept += data
        if self.last:
            if len(self.kept) > 2 * self.limit:
                del self.kept[: -self.limit]
            return bool(data)
        return bool(data) and len(self.kept) < self.limit

    def bytes(self) -> bytes:
        return bytes(self.kept[-self.limit :] if self.last else self.kept[: self.limit])


class Writer:
    """What a task is given."""

    def __init__(self, descriptor: int, content: bytes):
        self.descriptor = descriptor
        self.left = memoryview(content)
        os.set_blocking(descriptor, False)

    def write(self) -> bool:
        """Give what fits; whether more is left."""
        try:
            self.left = self.left[os.write(self.descriptor, self.left[:CHUNK]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return bool(self.left)


class Child:
    """One process with its pipes, followed to the end of its output and of itself."""

    def __init__(
        self, process: Any, task: dict[str, Any], feed: tuple[int, bytes] | None, wakeup: int
    ):
        self.process = process
        self.wakeup = wakeup
        last = bool(task.get("last"))
        limit = TAIL_LIMIT if last else ASK_LIMIT + 1
        self.out = Stream(process.stdout, limit, last)
        self.err = Stream(process.stderr, TAIL_LIMIT, True)
        self.readers = {stream.pipe.fileno(): stream for stream in (self.out, self.err)}
        self.writers: dict[int, Writer] = {}
        self.stdin = -1
        if process.stdin is not None:
            self.stdin = process.stdin.fileno()
            self.writers[self.stdin] = Writer(self.stdin, base64.b64decode(task["stdin"]))
        if feed is not None:
            self.writers[feed[0]] = Writer(*feed)
        self.poller = select.poll()
        for descriptor in self.readers:
            self.poller.register(descriptor, select.POLLIN)
        for descriptor in self.writers:
            self.poller.register(descriptor, select.POLLOUT)
        self.poller.register(wakeup, select.POLLIN)

    def follow(self, timeout: int | None) -> int:
        """The exit status; 124 where the time ran out before all was over."""
        end = None if timeout is None else time.monotonic() + timeout
        signals = [signal.SIGTERM, signal.SIGKILL, None]
        expired = False
        while self.readers or self.process.poll() is None:
            left = None if end is None else max(0.0, end - time.monotonic())
            if left == 0.0:
                expired = True
                number = signals.pop(0)
                if number is None:
                    break  # what it left behind holds its output
                self._signal(number)
                end = time.monotonic() + GRACE
                continue
            self._serve(self.poller.poll(None if left is None else left * 1000 + 1))
            if expired and self.process.poll() is not None:
                end = min(end or 0.0, time.monotonic() + 0.2)
                signals = [None]
        self._close()
        status = int(self.process.returncode) if self.process.returncode is not None else -9
        if expired:
            return 124
        return status if status >= 0 else 128 - status

    def _signal(self, number: int) -> None:
        """To the task's whole process group, as timeout(1) does."""
        try:
            os.killpg(self.process.pid, number)
        except OSError:
            return

    def _serve(self, events: list[tuple[int, int]]) -> None:
        for descriptor, _ in events:
            if descriptor in self.readers:
                if not self.readers[descriptor].read():
                    self.readers.pop(descriptor).pipe.close()
                    self.poller.unregister(descriptor)
            elif descriptor in self.writers:
                if not self.writers[descriptor].write():
                    self._done_writing(descriptor)
            elif descriptor == self.wakeup:
                os.read(descriptor, CHUNK)

    def _done_writing(self, descriptor: int) -> None:
        del self.writers[descriptor]
        self.poller.unregister(descriptor)
        if descriptor == self.stdin:
            self.process.stdin.close()
        else:
            os.close(descriptor)

    def _close(self) -> None:
        for stream in self.readers.values():
            stream.pipe.close()
        for descriptor in list(self.writers):
            self._done_writing(descriptor)


def perform(task: dict[str, Any], wakeup: int) -> tuple[int, bytes, bytes]:
    """Run one task to its end: exit status, standard output, standard error."""
    argv, passed, feed = task.get("argv"), [], None
    if argv is None:
        read, write = os.pipe()
        os.dup2(read, FEED)
        os.close(read)
        argv = ["sh", "-c", f". /dev/fd/{FEED}"]
        passed = [FEED]
        feed = (write, f"exec {FEED}<&-\n{task['feed']}\n".encode("utf-8", "surrogateescape"))
    try:
        process = subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.PIPE if task.get("stdin") is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=passed,
            # `kill 0` in a task ends the task alone.
            start_new_session=True,
        )
    except OSError as error:
        if feed is not None:
            os.close(feed[0])
        absent = error.errno == errno.ENOENT
        return (127 if absent else 126), b"", f"{argv[0]}: {error.strerror}\n".encode()
    finally:
        if passed:
            os.close(FEED)
    child = Child(process, task, feed, wakeup)
    status = child.follow(task.get("timeout"))
    return status, child.out.bytes(), child.err.bytes()


def serve() -> None:
    """Answer requests until there are no more."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    os.environ["PATH"] = os.environ.pop(PATH, os.environ.get("PATH", os.defpath))
    # A child that ends wakes the poll.
    wakeup, waking = os.pipe()
    os.set_blocking(wakeup, False)
    os.set_blocking(waking, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    answers.write(READY)
    answers.flush()
    while True:
        line = requests.readline()
        if not line.strip():
            return
        size = int(line)
        body = requests.read(size)
        if len(body) < size:
            return
        done = [perform(task, wakeup) for task in json.loads(body)["tasks"]]
        packed = [
            [status, base64.b64encode(out).decode(), base64.b64encode(error).decode()]
            for status, out, error in done
        ]
        answer = json.dumps({"answers": packed}).encode()
        answers.write(b"%d\n" % len(answer) + answer)
        answers.flush()


if __name__ == "__main__":
    serve()
