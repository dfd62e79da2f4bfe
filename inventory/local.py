"""The embedded default: this machine alone, everything under the project's `var/`."""

import sys
from pathlib import Path

_var = Path(__file__).resolve().parent.parent / "var"

local = [
    (
        "@local",
        {
            "kind": "machine",
            # Where `eagle3` and `runbook` are installed; jobs are started by these names.
            "path": [str(Path(sys.executable).parent)],
            "state_dir": str(_var / "state"),
            "roots": {
                name: {
                    "path": str(_var / folder),
                    "owner": "local",
                    # All three lie on one filesystem; the ledger counts them together.
                    "filesystem": "local",
                }
                for name, folder in (
                    ("data", "data"),
                    ("model", "model"),
                    ("download", "downloads"),
                )
            },
        },
    ),
]
