"""The fleet of inventory/hosts.py with hosts that pyinfra only simulates.

Scripted answers: `answers.yaml` beside this file, or the file that EAGLE3_FAKE_ANSWERS names;
its form is in runbooks/engine/adapter/fake.py.
"""

import os
from pathlib import Path
from runpy import run_path

from runbooks.engine.adapter.fake import fake_data as _fake_data

_here = Path(__file__).resolve().parent
_fleet = _here.parents[1] / "inventory"
_answers = Path(os.environ.get("EAGLE3_FAKE_ANSWERS") or _here / "answers.yaml")


def _group_data(name: str) -> dict:
    file = _fleet / "group_data" / f"{name}.py"
    values = run_path(str(file)) if file.exists() else {}
    return {key: value for key, value in values.items() if not key.startswith("_")}


_groups = {
    name: value for name, value in run_path(str(_fleet / "hosts.py")).items() if name[0] != "_"
}
_names = list(dict.fromkeys(host for hosts in _groups.values() for host in hosts))

for _name, _hosts in _groups.items():
    globals()[_name] = ([f"@fake/{host}" for host in _hosts], _group_data(_name))

all = ([(f"@fake/{host}", _fake_data(_answers, host)) for host in _names], _group_data("all"))
