"""Whether a journal is still what the run wrote."""

from __future__ import annotations

from runbooks.engine.history.runs import RunRecord, process_lives, text
from runbooks.engine.run.journal import HEAD, chain_faults

__all__ = ["journal_faults"]


def journal_faults(record: RunRecord) -> list[tuple[int, str]]:
    """Line (from 1) and what is wrong with it, of every line that cannot be trusted.

    A run without an end has no head, and hosts have no copy of it, so nobody can tell whether
    lines are missing at its end: that is no fault.
    """
    if record.records and not any("prev" in item for item in record.records):
        return [(1, "has no chain: an older engine wrote the journal, and nothing proves it whole")]
    try:
        faults = list(chain_faults(record.path))
    except (OSError, ValueError, RecursionError) as error:
        return [*record.faults, (1, f"cannot be verified: {error}")]
    told = {line for line, _ in faults}
    faults += [fault for fault in record.faults if fault[0] not in told]
    headless = record.end is not None and not record.path.with_name(HEAD).exists()
    if headless and not record.copied and not _open(record):
        last = len(record.records) + len(record.faults)
        faults.append((last, f"ends the run, but the file '{HEAD}' that proves it is gone"))
    return sorted(faults)


def _open(record: RunRecord) -> bool:
    """Between its `end` and its head a run gives up its locks."""
    return process_lives(record.run.get("pid"), text(record.run, "boot"))
