"""Whether a journal is still what the run wrote."""

from __future__ import annotations

from runbooks.engine.history.runs import RunRecord
from runbooks.engine.run.journal import chain_faults

__all__ = ["journal_faults"]


def journal_faults(record: RunRecord) -> list[tuple[int, str]]:
    """Line (from 1) and what is wrong with it, of every line that cannot be trusted.

    Without a head (a run whose controller was killed, even in its last moment, or a copy from
    hosts) nobody can tell whether lines are missing at the end: that is no fault.
    """
    if record.records and not any("prev" in item for item in record.records):
        return [(1, "has no chain: an older engine wrote the journal, and nothing proves it whole")]
    try:
        faults = list(chain_faults(record.path))
    except (OSError, ValueError, RecursionError) as error:
        return [*record.faults, (1, f"cannot be verified: {error}")]
    told = {line for line, _ in faults}
    faults += [fault for fault in record.faults if fault[0] not in told]
    return sorted(faults)
