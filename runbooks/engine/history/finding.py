"""Which run is meant, and what a run left unfinished."""

from __future__ import annotations

from pathlib import Path

from runbooks.engine.history.consult import consult
from runbooks.engine.history.index import Interrupted
from runbooks.engine.model.diagnostic import RunbookError, did_you_mean

__all__ = ["LAST", "choose", "find_run", "unfinished"]

# Stands for the newest run.
LAST = "last"


def find_run(runs: Path, given: str) -> Path:
    """The folder of a run by its id, the beginning of it, or `last`; RunbookError (usage)."""
    return runs / consult(runs, lambda index: choose(index.ids(), given, runs))


def choose(ids: list[str], given: str, runs: Path) -> str:
    """The one of `ids` (newest first) that is meant; RunbookError (usage) otherwise."""
    if not ids:
        raise RunbookError.usage(
            f"no runs in {runs}", where=given, hint="RUNBOOK_RUNS names another folder"
        )
    if given == LAST:
        return ids[0]
    if given in ids:
        return given
    matches = [run for run in ids if run.startswith(given)] if given else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        shown = ", ".join(matches[:6]) + (", …" if len(matches) > 6 else "")
        raise RunbookError.usage(
            f"{len(matches)} runs begin with '{given}'", where=given, hint=f"one of: {shown}"
        )
    raise RunbookError.usage(
        f"no run '{given}' in {runs}", where=given, hint=did_you_mean(given, [LAST, *ids])
    )


def unfinished(runs: Path, runbook: str, *, but: str = "") -> list[Interrupted]:
    """What the newest run of a runbook left interrupted, if it has no end; oldest first.

    `but` is a run to leave out: the one that asks. Reads only journals that changed since the
    index was last used.
    """

    row = consult(runs, lambda index: index.newest(runbook, but))
    return list(row.interrupted) if row is not None and not row.ended else []
