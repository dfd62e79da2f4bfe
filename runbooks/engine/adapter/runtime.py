"""gevent and pyinfra as this process needs them.

pyinfra's connectors wait in gevent's loop, which belongs to the main thread, so the engine's
threads have to be greenlets: a front door calls `patch` before any module makes a thread or a
lock. Without it a fleet works from the main thread alone (tests; pytest-xdist's workers have
threads of their own and die when they are patched).
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent
from gevent import monkey

__all__ = [
    "is_patched",
    "is_terminal",
    "on_endings",
    "on_interrupts",
    "patch",
    "quiet",
    "read_line",
    "using",
    "without_patching",
]


def is_patched() -> bool:
    """Whether threads are greenlets here."""
    return bool(monkey.is_module_patched("socket") and monkey.is_module_patched("threading"))


@contextmanager
def without_patching() -> Iterator[None]:
    """Import pyinfra_cli within: importing it patches the whole process, which reading an
    inventory must not do behind the back of whoever asks for it."""
    patch_all = monkey.patch_all
    monkey.patch_all = lambda **options: None
    try:
        yield
    finally:
        monkey.patch_all = patch_all


def patch() -> None:
    """Make the standard library cooperative; does nothing where pyinfra's CLI already did."""
    if is_patched():
        return
    with warnings.catch_warnings():
        # "ssl was imported before": classes derived from it earlier may recurse; doors patch
        # first.
        warnings.simplefilter("ignore", monkey.MonkeyPatchWarning)
        monkey.patch_all()


def quiet(level: int = logging.CRITICAL) -> None:
    """Keep pyinfra and paramiko from writing beside the `runbook` door's own view.

    What they would say (a host that does not answer, a fact that fails) reaches the operator
    as an outcome. paramiko logs whole tracebacks for a refused connection.
    """
    for name in ("pyinfra", "paramiko"):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.propagate = False


def on_interrupts(*stages: Callable[[], object]) -> None:
    """Call the first stage at the first Ctrl-C, the next at the next; the last one repeats.

    A terminal that is closed (SIGHUP) and a kill (SIGTERM) call the last one. Each in a greenlet: a signal handler runs in gevent's loop, where nothing may wait.
    """
    left = list(stages)

    def interrupted(number: int, frame: object) -> None:
        gevent.spawn(left.pop(0) if len(left) > 1 else left[0])

    def ended(number: int, frame: object) -> None:
        gevent.spawn(left[-1])

    signal.signal(signal.SIGINT, interrupted)
    on_endings(ended)


def on_endings(handler: Callable[[int, Any], None]) -> None:
    """Handle a closed terminal and a kill; not where nohup(1) has them ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def is_terminal(stream: Any) -> bool:
    """Whether somebody sits there; a closed standard stream is None in Python."""
    return stream is not None and not stream.closed and bool(stream.isatty())


_reading = threading.Lock()


def read_line() -> str:
    """A line of standard input; other greenlets go on meanwhile, and one asks at a time."""
    with _reading:
        if sys.stdin is None:
            return ""
        if not is_patched():
            return sys.stdin.readline()
        pool: Any = gevent.get_hub().threadpool
        return str(pool.apply(sys.stdin.readline))


@contextmanager
def using(context: Any, value: Any) -> Iterator[None]:
    """Set a pyinfra context and set it back, also after an exception (its own `use` does not)."""
    before = context.get()
    context.set(value)
    try:
        yield
    finally:
        context.set(before)
