"""`notify`: its shape, its defaults, and where a secret may stand in it."""

from __future__ import annotations

import pytest

from runbooks.engine.model.runbook import Notify
from tests.engine.load.support import HEAD, STEP, fault, load, said, step_with

SECRETS = "secrets: {hook: {env: HOOK}}\n"


def test_a_step_tells_a_program_or_an_address() -> None:
    told = load(step_with("notify: {when: [failed, late], command: [mail, me]}")).steps["a"].notify
    assert told == Notify(("failed", "late"), ("mail", "me"))
    line = "notify: {when: [finished], webhook: 'https://${{ vars.h }}:8443/x', x-why: me}"
    text = step_with(line).replace("steps:", "vars: {h: hooks.example}\nsteps:")
    assert load(text).steps["a"].notify == Notify(
        ("finished",), webhook="https://hooks.example:8443/x"
    )
    assert load(step_with()).steps["a"].notify is None


def test_a_gate_may_have_one() -> None:
    gate = "{needs: [], hosts: [llm-two], requires: [{path: {path: /x, is: file}}], notify: {when: [failed], command: [x]}}"
    assert load(f"{HEAD}steps:\n  g: {gate}\n").steps["g"].notify is not None


def test_defaults_are_for_steps_without_their_own() -> None:
    default = f"{HEAD}defaults: {{notify: {{when: [failed], command: [x]}}}}\nsteps:\n"
    assert load(default + STEP).steps["a"].notify == Notify(("failed",), ("x",))
    own = STEP + "    notify: {when: [late], webhook: 'http://h/x'}\n"
    assert load(default + own).steps["a"].notify == Notify(("late",), webhook="http://h/x")


def test_a_webhook_may_be_a_secret() -> None:
    line = 'notify: {when: [failed], webhook: "${{ secrets.hook }}"}'
    text = step_with(line).replace("steps:", f"{SECRETS}steps:")
    assert load(text).steps["a"].notify == Notify(("failed",), webhook="${{ secrets.hook }}")
    text = f"{HEAD}{SECRETS}defaults: {{{line}}}\nsteps:\n{STEP}"
    assert load(text).steps["a"].notify == Notify(("failed",), webhook="${{ secrets.hook }}")


def test_a_matrix_may_stand_in_it() -> None:
    text = step_with("notify: {when: [failed], command: [tell, '${{ matrix.s }}']}")
    steps = load(text.replace("steps:", "matrix: {s: [x]}\nsteps:")).steps
    assert steps["a[s=x]"].notify == Notify(("failed",), ("tell", "x"))


@pytest.mark.parametrize(
    ("body", "words", "column"),
    [
        ("{command: [x]}", "notify lacks 'when'", 5),
        ("{when: [failed]}", "notify tells nobody", 5),
        ("{when: [failed], command: [x], webhook: 'http://h/'}", "write one of them", 5),
        ("{when: [], command: [x]}", "when is empty", 20),
        ("{when: [done], command: [x]}", "'done' is none of: failed, finished, late, approval", 21),
        ("{when: failed, command: [x]}", "'failed' is not a list", 20),
        ("{when: [failed], command: []}", "command is empty", 39),
        ("{when: [failed], command: mail}", "'mail' is not a list", 39),
        ("{when: [failed], webhook: hooks.example/x}", "is no http(s) address", 39),
        ("{when: [failed], webhook: 'ftp://h/x'}", "is no http(s) address", 39),
        ("{when: [failed], webhook: 'https:///x'}", "names no host", 39),
        ("{when: [failed], webhook: 'https://h:x/'}", "is no address", 39),
        ("{when: [failed], webhook: 'https://h/a b'}", "holds a space", 39),
        ("{when: [failed], webhok: 'https://h/'}", "did you mean 'webhook'?", 30),
        ("[{when: [failed], command: [x]}]", "notify is a list", 13),
        ("me", "notify is the value 'me'", 13),
        ("{when: [failed], webhook: 'https://h/${{ secrets.hook }}'}", "secret 'hook' is a part of webhook", 50),
        ("{when: [failed], command: [x, '${{ secrets.hook }}']}", "secret in notify.command", 44),
        ("{when: [failed], webhook: '${{ secrets.hok }}'}", "did you mean 'hook'?", 40),
        ("{when: [failed], webhook: '${{ root.data }}'}", "a root stands in arguments", 40),
        ("{when: [failed], webhook: '${{ estimate.bytes }}'}", "comparisons of sizes only", 40),
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["step", "defaults"])
def test_mistakes(body: str, words: str, column: int, where: str) -> None:
    """One error, at one place, however many steps take the default."""
    if where == "step":
        item = fault(step_with(f"notify: {body}").replace("about: A small runbook.\n", SECRETS))
        assert said(item) == (7, column)
    else:
        text = f"runbook: case\n{SECRETS}defaults:\n    notify: {body}\nsteps:\n{STEP}"
        item = fault(text + STEP.replace("  a:", "  b:"))
        assert said(item) == (4, column)
        if "${{ root" in body or "${{ estimate" in body:
            words = "stands in steps only"
    assert words in item.message, item.message


def test_a_default_that_no_step_takes_is_judged() -> None:
    own = STEP + "    notify: {when: [late], command: [x]}\n"
    item = fault(f"{HEAD}defaults: {{notify: {{when: [failed]}}}}\nsteps:\n{own}")
    assert "tells nobody" in item.message and said(item) == (3, 12)


def test_what_is_told_matters_to_the_digest() -> None:
    def digest(body: str) -> str:
        return load(step_with(f"notify: {body}")).digest

    one = digest("{when: [failed], command: [x]}")
    assert digest("{command: [x], when: [failed], x-why: me}") == one
    assert digest("{when: [late], command: [x]}") != one
