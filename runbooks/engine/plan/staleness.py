"""Whether a saved plan still fits the world, and that it is used once.

It is compared with a plan made anew right after the locks are held, by the same reads: what
it found, what it would do, and what it was made from. Free space and health may move as long
as each check of them says the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runbooks.engine.model.check import Finding
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError
from runbooks.engine.model.host import Host
from runbooks.engine.model.runbook import Runbook
from runbooks.engine.model.values import show_size
from runbooks.engine.plan.approval import Approval, parse_approvals
from runbooks.engine.plan.durable import main_first, plain, same, show_field
from runbooks.engine.plan.plan import Plan
from runbooks.engine.plan.planner import make_plan
from runbooks.engine.plan.saved import SavedFinding, SavedPlan, SavedRow, saved_plan
from runbooks.engine.plan.seal import project_key, put_new
from runbooks.engine.plan.survey import Survey
from runbooks.engine.redact import Redactor

__all__ = [
    "claim",
    "moved",
    "overrides",
    "refuse_edited",
    "refuse_moved",
    "refuse_used",
    "use_plan",
]

_VERSION = 1
_PLANS = "plans"


def moved(
    saved: SavedPlan,
    fresh: Plan,
    hosts: Mapping[str, Host],
    key: bytes,
    redactor: Redactor | None = None,
) -> list[str]:
    """Everything that differs, one line each; empty where the plan still fits."""
    now = saved_plan(fresh, hosts, key, redactor or Redactor())
    origin = list(_origin(saved, now))
    if origin:
        # Of another runbook, or of other steps, nothing below could be set side by side.
        return origin
    lines = [*_inventory(saved.inventory, now.inventory), *_findings(saved, now, fresh)]
    lines += _rows(saved.rows, now.rows)
    # Steps that need the same check have found the same.
    return list(dict.fromkeys(lines))


def _origin(saved: SavedPlan, now: SavedPlan) -> Iterator[str]:
    yield from _edited(saved, now.runbook, now.digest, now.variables)
    if saved.runbook == now.runbook and saved.scope != now.scope:
        yield f"what is to act: {saved.scope} → {now.scope}"


def _edited(
    saved: SavedPlan, name: str, digest: str, variables: Mapping[str, Any]
) -> Iterator[str]:
    if saved.runbook != name:
        yield f"the plan is of the runbook {saved.runbook}, not of {name}"
        return
    for variable in dict.fromkeys([*saved.variables, *variables]):
        was, value = saved.variables.get(variable), variables.get(variable)
        if not same(was, plain(value)):
            yield f"variable {variable}: {_json(was)} → {_json(value)}"
    if saved.digest != digest:
        yield f"runbook {name} was changed: digest {saved.digest[:12]} → {digest[:12]}"


def _json(value: Any) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


def _inventory(was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for host in sorted(was.keys() | now.keys()):
        if host not in now:
            yield f"inventory: the host {host} is gone"
        elif host not in was:
            yield f"inventory: the host {host} is new"
        elif was[host] != now[host]:
            yield f"inventory: {host} is described differently (address, groups, roots or folders)"


def _findings(saved: SavedPlan, now: SavedPlan, fresh: Plan) -> Iterator[str]:
    read: dict[tuple[str, str, str, int], Finding] = {
        (row.step.id, row.host, part, index): finding
        for row in fresh.rows
        for part in ("requires", "ensures")
        for index, finding in enumerate(getattr(row, part))
    }
    before = {item.key: item for item in saved.findings}
    after = {item.key: item for item in now.findings}
    for key in dict.fromkeys([*before, *after]):
        if key in before and key in after:
            yield from _finding(before[key], after[key], read[key])
        else:
            item = before.get(key) or after[key]
            word = "is read no more" if key in before else "was not read"
            yield f"{item.subject} on {item.on} ({item.step}, {item.part}): {word}"


def _finding(was: SavedFinding, now: SavedFinding, finding: Finding) -> Iterator[str]:
    where = f"{now.subject} on {now.on}"
    if was.digest != now.digest:
        changes = [
            f"{field} {_shown(finding, field, was.values)} → {_shown(finding, field, now.values)}"
            for field in _differing(finding, was.values, now.values)
        ]
        yield f"{where}: {', '.join(changes) or 'a value changed that is masked'}"
    elif was.truth != now.truth:
        yield f"{where}: {was.truth} → {now.truth} ({finding.sentence()})"


def _differing(finding: Finding, was: Mapping[str, Any], now: Mapping[str, Any]) -> Sequence[str]:
    """Fields that differ, then those known on one side only."""
    return [*main_first(finding.check, was, now), *sorted(was.keys() ^ now.keys())]


def _shown(finding: Finding, field: str, values: Mapping[str, Any]) -> str:
    return show_field(finding.check, field, values[field]) if field in values else "unknown"


def _rows(was: Sequence[SavedRow], now: Sequence[SavedRow]) -> Iterator[str]:
    before = {(row.step, row.host): row for row in was}
    for row in now:
        old = before.pop((row.step, row.host), None)
        where = f"{row.step} on {row.host}"
        if old is None:
            yield f"{where}: not in the plan → {row.status}"
            continue
        if old.status != row.status:
            yield f"{where}: {old.status} → {row.status}"
        yield from _loss(where, old, row)
    for step, host in before:
        yield f"{step} on {host}: {before[step, host].status} → not in the plan"


def _loss(where: str, was: SavedRow, now: SavedRow) -> Iterator[str]:
    """Whether an irreversible step would lose something else, or another amount."""
    if was.approval is None and now.approval is None:
        return
    old, new = _approval(was), _approval(now)
    if old is None or new is None:
        if was.status != now.status:
            return  # that says it already
        known = "nothing measured" if old is None else f"{_amount(was)} measured"
        yield f"{where}: {known} → {_amount(now) if new else 'nothing measured'}"
    elif old.hash != new.hash:
        yield f"{where}: would lose {was.identity} → {now.identity}"
    elif old.refusal(new) is not None:
        yield f"{where}: would lose {_amount(was)} → {_amount(now)}"


def _approval(row: SavedRow) -> Approval | None:
    if row.approval is None:
        return None
    return parse_approvals([f"{row.step}={row.approval}"])[row.step][0]


def _amount(row: SavedRow) -> str:
    return show_size(row.bytes or 0)


def use_plan(
    saved: SavedPlan, survey: Survey, runs: Path, redactor: Redactor, run: str, now: float
) -> None:
    """Plan anew, refuse where something moved, and claim the saved plan for this run.

    The locks are held, and nothing acts before. RunbookError (exit 7) where the plan does not
    fit or was used; then it is not used up.
    """
    refuse_used(saved, runs)
    key = project_key(runs)
    lines = moved(saved, make_plan(survey), survey.fleet.hosts, key, redactor)
    refuse_moved(saved, lines)
    claim(saved, runs, run, now)


def overrides(declared: Mapping[str, Any], saved: SavedPlan) -> dict[str, str]:
    """The words for `-v` that give a runbook the variables its plan was made with.

    A list comes from the file alone, and a masked value from nowhere: these are compared.
    """
    return {
        name: ("true" if value else "false") if isinstance(value, bool) else str(value)
        for name, value in saved.variables.items()
        if name in declared
        and not same(value, plain(declared[name]))
        and isinstance(value, (str, int, float))
    }


def refuse_edited(saved: SavedPlan, runbook: Runbook) -> None:
    """RunbookError (exit 7) where the runbook's file is not what the plan was made from.

    Told before any host is reached.
    """
    if (saved.runbook, saved.digest) == (runbook.name, runbook.digest):
        return
    refuse_moved(saved, list(_edited(saved, runbook.name, runbook.digest, runbook.variables)))


def refuse_moved(saved: SavedPlan, lines: Sequence[str]) -> None:
    """RunbookError (exit 7) that lists what moved; nothing where nothing did."""
    if not lines:
        return
    diagnostics = [
        Diagnostic(f"stale: {line}", where=f"plan {saved.id}", code=ExitCode.STALE)
        for line in lines
    ]
    hint = f"nothing was done; make a new plan: runbook plan {saved.runbook} -o FILE"
    last = diagnostics[-1]
    diagnostics[-1] = Diagnostic(last.message, where=last.where, hint=hint, code=last.code)
    raise RunbookError(*diagnostics)


def refuse_used(saved: SavedPlan, runs: Path) -> None:
    """RunbookError (exit 7) where a run claimed this plan before."""
    try:
        text = (runs / _PLANS / saved.mark).read_text(errors="replace")
    except OSError:
        return
    raise _used(saved, text)


def claim(saved: SavedPlan, runs: Path, run: str, now: float) -> None:
    """Use the plan up, for this run: a second claim is a RunbookError (exit 7).

    To be called when the plan was found to fit, before anything acts; a plan that was refused
    as stale stays as it is.
    """
    content = json.dumps({"v": _VERSION, "plan": saved.id, "run": run, "at": round(now, 3)})
    mark = runs / _PLANS / saved.mark
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        put_new(mark, content.encode() + b"\n")
    except FileExistsError:
        raise _used(saved, mark.read_text(errors="replace")) from None
    except OSError as error:
        raise RunbookError.usage(
            f"the use of plan {saved.id} cannot be recorded: {error.strerror}",
            where=str(mark),
            hint="set RUNBOOK_RUNS to a folder that you may write",
        ) from None


def _used(saved: SavedPlan, text: str) -> RunbookError:
    try:
        mark = json.loads(text)
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(mark["at"])))
        by = f"by run {mark['run']} at {at}"
    except (ValueError, KeyError, TypeError, OverflowError):
        by = "already (the record of it is damaged)"
    return RunbookError(
        Diagnostic(
            f"plan {saved.id} was used {by}",
            where=f"plan {saved.id}",
            hint=f"a plan is used once; make a new one: runbook plan {saved.runbook} -o FILE",
            code=ExitCode.STALE,
        )
    )
