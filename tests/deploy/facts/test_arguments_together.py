"""Arguments that are wrong together are told at load, and never end a plan."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.facts.this_machine import BY_NAME


@pytest.mark.parametrize(
    ("fact", "args", "problem"),
    [
        ("disk_free", {}, "neither root nor path"),
        ("disk_free", {"root": "data"}, None),
        ("disk_free", {"path": "/"}, None),
        ("process", {}, "neither name nor pattern"),
        ("process", {"pattern": "("}, "is not a regular expression"),
        ("process", {"name": "sh", "pattern": "x"}, None),
        ("process_env", {"name": "X"}, "neither unit nor pid_of"),
        ("process_env", {"name": "X", "unit": "a", "pid_of": "b"}, "both unit and pid_of"),
        ("process_env", {"name": "X", "unit": "a"}, None),
        ("path", {"path": "/x"}, None),
        ("path", {"path": "/x", "source": "a", "template": "b"}, "source and template"),
        ("path", {"path": "/x", "vars": {"a": "b"}}, "vars without a template"),
        ("path", {"path": "/x", "template": "b", "vars": {"a": "b"}}, None),
    ],
)
def test_arguments_together(fact: str, args: dict[str, Any], problem: str | None) -> None:
    found = BY_NAME[fact].check_arguments(args)
    assert found == problem if problem is None else problem in (found or "")
