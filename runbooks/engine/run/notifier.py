"""Tells a program or an address what happened to a step, beside the run.

A sink of the bus: it only queues, so that no run waits for anybody's server, and what cannot be
delivered is noted. Records are redacted before they come here; only the address itself may be a
secret, and it is looked up when it is used.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from runbooks.engine.model.runbook import Notify, Runbook
from runbooks.engine.run.event import SCHEMA_VERSION, Bus
from runbooks.engine.run.outcome import Result
from runbooks.engine.run.scheduler import release_of

__all__ = ["Notifier", "event_of"]

# Seconds: of one attempt, before the second and the third, and that a run's end waits at most.
PATIENCE = 10.0
WAITS = (1.0, 4.0)
PARTING = 30.0
_NOTING = 5.0
# Deliveries side by side, so that one silent server does not hold up the others.
_WORKERS = 4
# Characters of what a program or server said.
_LONGEST = 300

_SECRET = re.compile(r"\$\{\{ *secrets\.([A-Za-z_][A-Za-z0-9_-]*) *\}\}")

# Ends that need somebody. A skipped step tells nothing of its own, and who interrupted a run
# knows it.
_FAILED = frozenset(
    result.value
    for result in (
        Result.BLOCKED,
        Result.UNKNOWN,
        Result.BUG,
        Result.FAILED,
        Result.TIMEOUT,
        Result.UNREACHABLE,
        Result.LOCKED,
    )
)


def event_of(record: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """A record as (word of `when`, result, reason); None for one that nobody is told of.

    `finished` is the end of a step that acted, or whose job another run had begun; a step that
    held already did nothing that anybody waits for.
    """
    if record.get("event") == "outcome":
        result, reason = str(record.get("result", "")), str(record.get("reason", ""))
        if result in _FAILED:
            return "failed", result, reason
        if result == Result.RAN.value:
            return "finished", result, reason
        if result == Result.APPROVAL.value:
            return "approval", result, reason
    elif record.get("event") == "note" and record.get("warning") in ("late", "silent"):
        return "late", str(record["warning"]), str(record.get("text", ""))
    return None


class Undelivered(Exception):
    """Why an attempt failed; `final` where another one would fail too."""

    def __init__(self, reason: str, final: bool = False):
        super().__init__(reason)
        self.final = final


@dataclass(frozen=True, slots=True, eq=False)
class _Message:
    """What to say, to whom; two of them may say the same."""

    notify: Notify
    step: str
    host: str
    body: Mapping[str, Any]


class Notifier:
    """Sends the events that steps name in `notify`; `run` is the run's id.

    Nothing runs before the first event. `close` at the end of the run, before its journal.
    """

    def __init__(
        self,
        runbook: Runbook,
        secrets: Mapping[str, str],
        run: str,
        bus: Bus,
        *,
        patience: float = PATIENCE,
        waits: Sequence[float] = WAITS,
    ):
        self._runbook = runbook.name
        self._run = run
        self._secrets = secrets
        self._bus = bus
        self._patience = patience
        self._waits = tuple(waits)
        self._notify = {
            name: step.notify for name, step in runbook.steps.items() if step.notify is not None
        }
        # The release of a transient step is told as the step.
        self._steps = {name: name for name in self._notify}
        self._steps |= {release_of(name): name for name in self._notify}
        self._queue: queue.Queue[_Message | None] = queue.Queue()
        self._workers: list[threading.Thread] = []
        self._changed = threading.Condition()
        # Not delivered yet, and how many are being noted as never to be.
        self._open: list[_Message] = []
        self._noting = 0
        self._closing = threading.Event()
        self._closed = False

    def take(self, record: Mapping[str, Any]) -> None:
        """Queue what the record's step wants to be told; the bus waits for nothing."""
        event = event_of(record)
        step = self._steps.get(str(record.get("step", "")))
        if event is None or step is None or event[0] not in self._notify[step].when:
            return
        word, result, reason = event
        host = str(record.get("host", ""))
        body = {
            "v": SCHEMA_VERSION,
            "runbook": self._runbook,
            "run": self._run,
            "step": str(record["step"]),
            "host": host,
            "event": word,
            "result": result,
            "reason": reason,
            "at": record.get("at"),
        }
        self._put(_Message(self._notify[step], str(record["step"]), host, body))

    def close(self, seconds: float = PARTING) -> None:
        """Wait at most so long for what is under way; the rest is noted as not delivered.

        Not to be called while the bus hands a record out.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._open and not self._noting, timeout=seconds)
            self._closed = True
            left = list(self._open)
            self._open.clear()
        self._closing.set()
        for _ in self._workers:
            self._queue.put(None)
        for message in left:
            self._note(message, f"not done {seconds:g}s after the run")
        with self._changed:
            # A note is written at once; whoever closes the journal comes after it.
            self._changed.wait_for(lambda: not self._noting, timeout=_NOTING)

    def _put(self, message: _Message) -> None:
        with self._changed:
            if self._closed:
                return
            self._open.append(message)
            if len(self._workers) < min(_WORKERS, len(self._open)):
                worker = threading.Thread(target=self._work, name="notifier", daemon=True)
                # Without a thread the message waits for another's, or is noted by `close`.
                with suppress(RuntimeError):
                    worker.start()
                    self._workers.append(worker)
        self._queue.put(message)

    def _work(self) -> None:
        while (message := self._queue.get()) is not None:
            problem = self._deliver(message)
            with self._changed:
                if message not in self._open:
                    continue  # given up by `close`, and noted there
                self._open.remove(message)
                self._noting += bool(problem)
                self._changed.notify_all()
            if problem:
                try:
                    self._note(message, problem)
                finally:
                    with self._changed:
                        self._noting -= 1
                        self._changed.notify_all()

    def _deliver(self, message: _Message) -> str:
        """Why nobody could be told, or nothing."""
        problem = ""
        for wait in (0.0, *self._waits):
            if self._closing.wait(wait):
                break
            try:
                self._attempt(message)
            except Undelivered as error:
                problem = str(error)
                if error.final:
                    break
            except Exception as error:
                # Whatever it is, a notice must not end the thread that others wait for.
                problem = f"{type(error).__name__}: {error}"
            else:
                return ""
        return problem or "the run ended"

    def _attempt(self, message: _Message) -> None:
        body = json.dumps(message.body, ensure_ascii=False).encode("utf-8", "backslashreplace")
        if message.notify.command:
            _tell_program(message.notify.command, body, self._patience)
        else:
            _post(self._address(message.notify), body, self._patience)

    def _address(self, notify: Notify) -> str:
        match = _SECRET.fullmatch(notify.webhook)
        return self._secrets[match[1]] if match else notify.webhook

    def _note(self, message: _Message, problem: str) -> None:
        """In the journal, by the bus, which masks secrets. A note of no `warning` tells nobody."""
        notify = message.notify
        whom = notify.command[0] if notify.command else _shown(notify.webhook)
        text = f"nobody was told that it is {message.body['result']}: {whom}: {problem}"
        self._bus.emit("note", step=message.step, host=message.host, text=text, undelivered=True)


def _shown(webhook: str) -> str:
    """An address without its path, which often is a key."""
    if "${{" in webhook:
        return "its webhook"
    parts = urlsplit(webhook)
    return f"{parts.scheme}://{parts.hostname}"


def _tell_program(argv: Sequence[str], body: bytes, patience: float) -> None:
    """Run the program with `body` on its standard input; raises Undelivered."""
    # Files, not pipes: a pipe that a child of it keeps open, or that nobody reads, would be
    # waited for.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(body)
        given.seek(0)
        try:
            # Its own session: Ctrl-C ends the run, not the word of it; and all of it can be ended.
            process = subprocess.Popen(
                argv,
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Undelivered(f"cannot be started: {reason}", final=True) from None
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            raise Undelivered(f"took longer than {patience:g}s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode:
            said.seek(0)
            words = " ".join(said.read(4096).decode(errors="replace").split())[:_LONGEST]
            raise Undelivered(f"exited with {process.returncode}" + (f": {words}" if words else ""))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A POST that is sent elsewhere would arrive as a GET, or at somebody else's."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _post(address: str, body: bytes, patience: float) -> None:
    """Send `body` as JSON; raises Undelivered, which does not hold the address."""
    if urlsplit(address).scheme not in ("http", "https"):
        raise Undelivered("is no http(s) address", final=True)
    request = urllib.request.Request(
        address, data=body, headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with _OPENER.open(request, timeout=patience) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        error.close()
        # What the server refuses once it refuses again, except when it is busy.
        final = 300 <= error.code < 500 and error.code not in (408, 425, 429)
        raise Undelivered(f"answered {error.code}", final) from None
    except urllib.error.URLError as error:
        raise Undelivered(_reason(error.reason, patience)) from None
    except (OSError, HTTPException, ValueError) as error:
        raise Undelivered(_reason(error, patience)) from None


def _reason(error: object, patience: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in {patience:g}s"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    # Other errors may quote the address.
    return type(error).__name__ if isinstance(error, Exception) else str(error)
