"""The digest of a runbook changes with what it does, and with nothing else."""

from __future__ import annotations

import pytest

from tests.engine.load.support import EXTRACT, load

TEXT = EXTRACT.read_text()
DIGEST = load(TEXT).digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("about: Extract", "about: Now extract"),
        ("steps:", "x-team: us\nsteps:"),
        ("    transient: true", "    about: why\n    x-a: {b: 1}\n    transient: true"),
        ("root: data, ge: 50 GiB", "ge: 50 GiB, root: data"),
        ("root: data, ge: 50 GiB", "root: data, ge: 50 GiB, x-why: measured"),
        ("loses: the 10K", "loses:   the 10K"),
        ("# a gate", "# another comment"),
        ("samples: 37_312", "unused: 1, samples: 37312"),
        ("timeout: 3h", '"timeout": "3h"'),
    ],
)
def test_what_does_not_matter(old: str, new: str) -> None:
    assert old in TEXT
    assert load(TEXT.replace(old, new)).digest == DIGEST


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("samples: 37_312", "samples: 37_313"),
        ("timeout: 3h", "timeout: 4h"),
        ("ge: 50 GiB", "ge: 51 GiB"),
        ("ge: 50 GiB", "gt: 50 GiB"),
        ("needs: [deploy]", "needs: [situation]"),
        ("runbook: extract", "runbook: extract2"),
        ("times: 2", "times: 3"),
        ("--out, \"data:merged\"", "\"data:merged\", --out"),
        ("restore: none", "restore: some"),
    ],
)  # fmt: skip
def test_what_matters(old: str, new: str) -> None:
    assert old in TEXT
    assert load(TEXT.replace(old, new, 1)).digest != DIGEST


def test_overrides_matter_where_they_are_used() -> None:
    assert load(TEXT, samples="5").digest != DIGEST


def test_the_order_of_steps_and_needs_does_not_matter() -> None:
    head, _, steps = TEXT.partition("steps:\n")
    blocks = [f"  {block}" for block in steps.strip("\n").removeprefix("  ").split("\n\n  ")]
    assert len(blocks) == 7
    assert load(f"{head}steps:\n" + "\n\n".join(reversed(blocks)) + "\n").digest == DIGEST
