"""Asking hosts: runs the generators of facts, previews and estimates, one round trip a round.

All generators of one call advance together: their pending scripts go to each host in a single
batch, so that the facts of a step, or of a whole plan, cost one round trip a host where no
fact needs to look twice.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from runbooks.engine.fleet import Fleet, Unreachable
from runbooks.engine.model.check import Check, Finding, judge
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.fact import Reading
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Output, Shell, Unknown

__all__ = ["Answer", "Inquiry", "inquire", "read_checks", "read_with"]

T = TypeVar("T")
Asker = Generator[Shell, Output, T]


@dataclass(frozen=True, slots=True)
class Inquiry(Generic[T]):
    """A generator that asks, and the host whose questions these are."""

    host: str
    asker: Asker[T]


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a generator returned, or the reason why it could not."""

    value: T | None = None
    unknown: str | None = None
    unreachable: bool = False

    @property
    def known(self) -> bool:
        """Whether the question was answered at all."""
        return self.unknown is None


def inquire(fleet: Fleet, inquiries: Sequence[Inquiry[T]]) -> list[Answer[T]]:
    """Run all to their end; answers in the order of the inquiries."""
    answers: dict[int, Answer[T]] = {}
    pending: dict[int, Shell] = {}
    for index, inquiry in enumerate(inquiries):
        _advance(index, inquiry.asker, None, pending, answers)
    while pending:
        indices = list(pending)
        questions = [
            (pending[index].host or inquiries[index].host, pending[index]) for index in indices
        ]
        outputs = fleet.ask(questions)
        pending = {}
        for index, output in zip(indices, outputs, strict=True):
            _advance(index, inquiries[index].asker, output, pending, answers)
    return [answers[index] for index in range(len(inquiries))]


def _advance(
    index: int,
    asker: Asker[T],
    output: Output | Unreachable | None,
    pending: dict[int, Shell],
    answers: dict[int, Answer[T]],
) -> None:
    """One step of one generator; files its next question or its answer."""
    try:
        if output is None:
            pending[index] = next(asker)
        elif isinstance(output, Unreachable):
            pending[index] = asker.throw(output)
        else:
            pending[index] = asker.send(output)
        if not isinstance(pending[index], Shell):
            kind = type(pending.pop(index)).__name__
            asker.close()
            answers[index] = Answer(unknown=f"reading failed: a {kind} is no question")
    except StopIteration as stop:
        answers[index] = Answer(value=stop.value)
    except Unknown as error:
        answers[index] = Answer(unknown=error.reason)
    except Unreachable as error:
        answers[index] = Answer(unknown=str(error), unreachable=True)
    except RunbookError:
        raise
    except Exception as error:
        # A fault in a fact's own code must not pass for an answer.
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        kind = type(error).__name__
        answers[index] = Answer(unknown=f"reading failed: {kind}: {error} ({where})")


def read_checks(
    fleet: Fleet,
    checks: Sequence[tuple[Check, Context]],
    *,
    planning: bool = False,
    now: Callable[[], float] = time.time,
) -> list[Finding]:
    """Read and judge all checks; equal questions of one call are asked once."""
    return read_with(fleet, checks, (), planning=planning, now=now)[0]


def read_with(
    fleet: Fleet,
    checks: Sequence[tuple[Check, Context]],
    more: Sequence[Inquiry[Any]],
    *,
    planning: bool = False,
    now: Callable[[], float] = time.time,
) -> tuple[list[Finding], list[Answer[Any]]]:
    """As `read_checks`, and in the same round trips the answers to `more`."""
    unique: dict[tuple[str, str, str], int] = {}
    inquiries: list[Inquiry[Any]] = []
    places: list[tuple[int, str]] = []
    for check, context in checks:
        subject = _on_host(check, context)
        args = check.fact.for_plan(check.args) if planning else check.args
        key = (check.fact.name, subject.host.name, repr(sorted(args.items(), key=_name)))
        if key not in unique:
            unique[key] = len(inquiries)
            inquiries.append(Inquiry(subject.host.name, check.fact.read(args, subject)))
        places.append((unique[key], subject.host.name))
    answers = inquire(fleet, [*inquiries, *more])
    at = now()
    findings = []
    for (check, _), (index, host) in zip(checks, places, strict=True):
        answer = answers[index]
        fields, unknown = answer.value, answer.unknown
        if unknown is None and not isinstance(fields, Mapping):
            unknown = f"the fact gave a {type(fields).__name__} instead of its fields"
        reading = Reading(
            fields=(fields or {}) if unknown is None else {},
            host=host,
            at=at,
            unknown=unknown,
            unreachable=answer.unreachable,
        )
        findings.append(judge(check, reading))
    return findings, answers[len(inquiries) :]


def _name(item: tuple[str, Any]) -> str:
    return item[0]


def _on_host(check: Check, context: Context) -> Context:
    """The context of the host that the check names, or the step's own."""
    if check.host is None or check.host == context.host.name:
        return context
    return replace(context, host=context.fleet[check.host])
