"""What an operator types, and what passes for an approval."""

from __future__ import annotations

import pytest

from runbooks.engine.commands import opening
from runbooks.engine.model.operation import Preview
from runbooks.engine.plan.approval import approval_of
from tests.engine.scripted import DROP, flag, step

PREVIEW = Preview(summary="drop old", frees={"data": 2_000_000}, identity="flag old")
PURGE = step("purge", do=(DROP, {"name": "old"}), ensures=(flag("old", "gone"),))


@pytest.mark.parametrize(
    ("typed", "passes"),
    [
        ("purge one 2.0 MB\n", True),
        ("  purge one 2.0 MB \n", True),
        ("yes\n", False),
        ("purge one 2 MB\n", False),
        ("purge two 2.0 MB\n", False),
        ("\n", False),
        ("", False),
    ],
)
def test_only_the_phrase_with_amount_and_host_approves(
    monkeypatch, capsys, typed: str, passes: bool
) -> None:
    monkeypatch.setattr(opening, "read_line", lambda: typed)
    given = opening.ask_on_terminal(PURGE, "one", PREVIEW)
    assert given == (approval_of("purge", "one", PREVIEW) if passes else None)
    assert "Type  purge one 2.0 MB  to approve" in capsys.readouterr().err


def test_what_a_host_says_does_not_drive_the_terminal(monkeypatch, capsys) -> None:
    monkeypatch.setattr(opening, "read_line", lambda: "")
    evil = Preview(summary="\x1b[2Jgone", frees={"data": 1}, identity="x")
    opening.ask_on_terminal(PURGE, "one", evil)
    assert "\x1b" not in capsys.readouterr().err
