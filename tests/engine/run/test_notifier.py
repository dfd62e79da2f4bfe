"""Notices of a run: which events are told, to whom, and that the run waits for nobody."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from runbooks.engine.model.diagnostic import Place
from runbooks.engine.model.runbook import Notify, Runbook, Step
from runbooks.engine.redact import Redactor
from runbooks.engine.run.event import Bus
from runbooks.engine.run.notifier import Notifier, event_of
from runbooks.engine.run.outcome import Result
from runbooks.engine.run.scheduler import release_of

ALL = ("failed", "finished", "late", "approval")
# Long enough that no test ends by it.
ENOUGH = 60.0


class Records:
    """A sink that keeps what it takes."""

    def __init__(self) -> None:
        self.taken: list[Mapping[str, Any]] = []

    def take(self, record: Mapping[str, Any]) -> None:
        self.taken.append(record)

    @property
    def notes(self) -> list[Mapping[str, Any]]:
        return [one for one in self.taken if one["event"] == "note" and "undelivered" in one]


class Hook(HTTPServer):
    """A server that keeps what it is sent and answers `answers`, one after another."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[int] = []
        self.got: list[dict[str, Any]] = []
        self.types: list[str] = []
        self.paths: list[str] = []
        # While cleared, no request is answered.
        self.free = threading.Event()
        self.free.set()
        self.asked = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook/key-of-mine"


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.set()
        self.server.free.wait(ENOUGH)
        self.server.got.append(json.loads(body))
        self.server.types.append(self.headers["Content-Type"])
        self.server.paths.append(self.path)
        status = self.server.answers.pop(0) if self.server.answers else 204
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        self.server.paths.append(f"GET {self.path}")
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def hook() -> Iterator[Hook]:
    server = Hook()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.free.set()
    server.shutdown()
    server.server_close()
    thread.join()


def book(**notify: Notify | None) -> Runbook:
    steps = {
        name: Step(name, Place(Path("x.yaml"), 1), (), ("h",), notify=item)
        for name, item in notify.items()
    }
    return Runbook("extract", Path("x.yaml"), "", steps, tuple(steps))


def running(
    runbook: Runbook, secrets: Mapping[str, str] | None = None, **options: Any
) -> tuple[Bus, Records, Notifier]:
    records = Records()
    bus = Bus([records], now=lambda: 1000.25)
    bus.redactor = Redactor((secrets or {}).values())
    options = {"waits": (0.0, 0.0)} | options
    notifier = Notifier(runbook, secrets or {}, "run-1", bus, **options)
    bus.add(notifier)
    return bus, records, notifier


def end(bus: Bus, step: str, result: Result, reason: str = "why") -> None:
    bus.emit("outcome", step=step, host="h", result=result.value, reason=reason)


@pytest.mark.parametrize(
    ("result", "word"),
    [
        (Result.SATISFIED, None),
        (Result.HELD, None),
        (Result.RAN, "finished"),
        (Result.NOT_WANTED, None),
        (Result.LEFT, None),
        (Result.RELEASED, None),
        (Result.BLOCKED, "failed"),
        (Result.APPROVAL, "approval"),
        (Result.UNKNOWN, "failed"),
        (Result.BUG, "failed"),
        (Result.FAILED, "failed"),
        (Result.TIMEOUT, "failed"),
        (Result.UNREACHABLE, "failed"),
        (Result.LOCKED, "failed"),
        (Result.SKIPPED, None),
        (Result.INTERRUPTED, None),
    ],
)
def test_which_end_is_told_as_what(result: Result, word: str | None) -> None:
    event = event_of({"event": "outcome", "result": result.value, "reason": "why"})
    assert event == ((word, result.value, "why") if word else None)


def test_every_result_is_decided() -> None:
    parameters = test_which_end_is_told_as_what.pytestmark[0].args[1]
    assert {item[0] for item in parameters} == set(Result)


def test_only_warnings_of_watch_are_late() -> None:
    assert event_of({"event": "note", "warning": "late", "text": "t"}) == ("late", "late", "t")
    assert event_of({"event": "note", "warning": "silent", "text": "t"}) == ("late", "silent", "t")
    assert event_of({"event": "note", "text": "attempt 2"}) is None
    assert event_of({"event": "intent"}) is None


def test_a_webhook_gets_json(hook: Hook) -> None:
    bus, records, notifier = running(book(a=Notify(ALL, webhook=hook.url)))
    end(bus, "a", Result.FAILED, "it exited with 3")
    notifier.close(ENOUGH)
    assert hook.got == [
        {
            "v": 1,
            "runbook": "extract",
            "run": "run-1",
            "step": "a",
            "host": "h",
            "event": "failed",
            "result": "failed",
            "reason": "it exited with 3",
            "at": 1000.25,
        }
    ]
    assert next(iter(hook.got[0])) == "v"
    assert hook.types == ["application/json"] and hook.paths == ["/hook/key-of-mine"]
    assert records.notes == []


def test_a_step_hears_only_what_it_asks_for(hook: Hook) -> None:
    runbook = book(a=Notify(("late", "approval"), webhook=hook.url), b=None)
    bus, _, notifier = running(runbook)
    end(bus, "a", Result.FAILED)
    end(bus, "a", Result.RAN)
    end(bus, "b", Result.FAILED)
    end(bus, "a", Result.APPROVAL, "600 GiB")
    bus.emit("note", step="a", host="h", text="silent: no progress for 15m", warning="silent")
    bus.emit("note", step="a", host="h", text="attempt 2 in 30s")
    notifier.close(ENOUGH)
    told = sorted((one["event"], one["result"], one["reason"]) for one in hook.got)
    assert told == [
        ("approval", "waits for approval", "600 GiB"),
        ("late", "silent", "silent: no progress for 15m"),
    ]


def test_the_release_of_a_step_is_told_as_the_step(hook: Hook) -> None:
    bus, _, notifier = running(book(serve=Notify(("failed",), webhook=hook.url)))
    end(bus, release_of("serve"), Result.FAILED)
    notifier.close(ENOUGH)
    assert [one["step"] for one in hook.got] == ["serve:release"]


def test_a_program_gets_json_on_standard_input(tmp_path: Path) -> None:
    script = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"
    out = tmp_path / "out"
    notify = Notify(("finished",), command=(sys.executable, "-c", script, str(out)))
    bus, records, notifier = running(book(a=notify))
    end(bus, "a", Result.RAN, "ключ")
    notifier.close(ENOUGH)
    told = json.loads(out.read_text())
    assert (told["event"], told["result"], told["reason"]) == ("finished", "ran", "ключ")
    assert records.notes == []


def test_a_secret_webhook_is_bound_late_and_stays_secret(hook: Hook) -> None:
    hook.answers = [500, 500, 500]
    secrets = {"hook": hook.url}
    bus, records, notifier = running(
        book(a=Notify(ALL, webhook="${{ secrets.hook }}")), secrets, waits=(0.0, 0.0)
    )
    end(bus, "a", Result.FAILED, f"curl {hook.url} failed")
    notifier.close(ENOUGH)
    assert len(hook.got) == 3
    # What is sent has passed the redactor, as everything has.
    assert hook.got[0]["reason"] == "curl [secret] failed"
    assert "key-of-mine" not in json.dumps(records.taken)
    assert "its webhook: answered 500" in records.notes[0]["text"]


def test_a_busy_server_is_tried_again(hook: Hook) -> None:
    hook.answers = [503, 429, 204]
    bus, records, notifier = running(book(a=Notify(ALL, webhook=hook.url)))
    end(bus, "a", Result.FAILED)
    notifier.close(ENOUGH)
    assert len(hook.got) == 3 and records.notes == []


@pytest.mark.parametrize(("status", "times"), [(500, 3), (404, 1), (302, 1)])
def test_what_cannot_be_delivered_is_noted_once(hook: Hook, status: int, times: int) -> None:
    hook.answers = [status] * 3
    bus, records, notifier = running(book(a=Notify(ALL, webhook=hook.url)))
    end(bus, "a", Result.FAILED)
    notifier.close(ENOUGH)
    assert len(hook.got) == times
    # A redirection is not followed.
    assert hook.paths == ["/hook/key-of-mine"] * times
    (note,) = records.notes
    assert (note["step"], note["host"]) == ("a", "h") and "warning" not in note
    assert note["text"] == (
        f"nobody was told that it is failed: http://127.0.0.1: answered {status}"
    )


@pytest.mark.parametrize(
    ("argv", "words", "patience"),
    [
        (("/no/such/program",), "cannot be started: No such file", ENOUGH),
        ((sys.executable, "-c", "import sys; sys.exit('no credit left')"), "exited with 1: no credit", ENOUGH),
        ((sys.executable, "-c", "import time; time.sleep(60)"), "took longer than 0.2s", 0.2),
    ],
)  # fmt: skip
def test_a_program_that_fails_is_noted(argv: tuple[str, ...], words: str, patience: float) -> None:
    bus, records, notifier = running(book(a=Notify(ALL, command=argv)), patience=patience)
    end(bus, "a", Result.FAILED)
    notifier.close(ENOUGH)
    (note,) = records.notes
    assert words in note["text"]


def test_children_of_a_program_hold_nothing_up(tmp_path: Path) -> None:
    """A child that outlives its program keeps standard error open."""
    started = tmp_path / "started"
    script = f"sleep 60 & echo $! > {started}; exit 4"
    bus, records, notifier = running(book(a=Notify(ALL, command=("sh", "-c", script))))
    try:
        end(bus, "a", Result.FAILED)
        notifier.close(ENOUGH)
    finally:
        os.kill(int(started.read_text().split()[0]), signal.SIGKILL)
    assert "exited with 4" in records.notes[0]["text"]


def test_nobody_listens() -> None:
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    port = server.server_address[1]
    server.server_close()
    bus, records, notifier = running(book(a=Notify(ALL, webhook=f"http://127.0.0.1:{port}/x")))
    end(bus, "a", Result.FAILED)
    notifier.close(ENOUGH)
    assert "Connection refused" in records.notes[0]["text"]


def test_the_run_waits_for_nobody(hook: Hook) -> None:
    """While the server holds its answer back, the bus carries on."""
    hook.free.clear()
    bus, records, notifier = running(book(a=Notify(ALL, webhook=hook.url)), patience=ENOUGH)
    for _ in range(10):
        end(bus, "a", Result.FAILED)
    assert hook.asked.wait(ENOUGH)
    bus.emit("note", text="the run goes on")
    assert len(records.taken) == 11 and hook.got == []
    # The end of the run waits for a bounded time, and says what was not delivered.
    notifier.close(0.0)
    assert len(records.notes) == 10
    assert "not done 0s after the run" in records.notes[0]["text"]
    # What comes after that is nobody's any more: the journal may be closed.
    before = len(records.taken)
    end(bus, "a", Result.FAILED)
    hook.free.set()
    for worker in notifier._workers:
        worker.join(ENOUGH)
        assert not worker.is_alive()
    assert len(records.taken) == before + 1


def test_nothing_runs_before_the_first_event() -> None:
    bus, _, notifier = running(book(a=Notify(("failed",), webhook="http://127.0.0.1:1/")))
    end(bus, "a", Result.RAN)
    assert notifier._workers == []
    notifier.close(ENOUGH)
