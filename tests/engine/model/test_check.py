"""Three-valued checks: unknown outweighs false, and absent satisfies nothing."""

from __future__ import annotations

from itertools import product

import pytest

from runbooks.engine.model.check import Check, Finding, Truth, Want, judge
from runbooks.engine.model.fact import Reading
from runbooks.engine.model.probe import Unknown
from runbooks.engine.model.values import ABSENT, Integer, Size, Text
from runbooks.engine.plan.survey import truth_of
from tests.engine.scripted import FLAG

VALUES = {Truth.TRUE: 5, Truth.FALSE: 6, Truth.UNKNOWN: Unknown("denied")}
ORDER = [Truth.UNKNOWN, Truth.FALSE, Truth.TRUE]


def judged(*truths: Truth) -> Finding:
    wants = tuple(Want(f"f{n}", "eq", 5, Integer()) for n in range(len(truths)))
    fields = {f"f{n}": VALUES[truth] for n, truth in enumerate(truths)}
    return judge(Check(FLAG, {"name": "x"}, wants), Reading(fields, "one", 0.0))


@pytest.mark.parametrize("truths", list(product(Truth, repeat=2)))
def test_the_weightiest_field_decides_a_check(truths: tuple[Truth, Truth]) -> None:
    assert judged(*truths).truth is min(truths, key=ORDER.index)


@pytest.mark.parametrize("truths", list(product(Truth, repeat=2)))
def test_the_weightiest_finding_decides_a_step(truths: tuple[Truth, Truth]) -> None:
    assert truth_of([judged(truth) for truth in truths]) is min(truths, key=ORDER.index)


def test_nothing_found_holds() -> None:
    assert truth_of([]) is Truth.TRUE


@pytest.mark.parametrize("operator", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_absent_satisfies_no_comparison(operator: str) -> None:
    check = Check(FLAG, {"name": "x"}, (Want("f", operator, 5, Integer()),))
    assert judge(check, Reading({"f": ABSENT}, "one", 0.0)).truth is Truth.FALSE


def test_a_field_that_the_fact_did_not_give_is_unknown() -> None:
    check = Check(FLAG, {"name": "x"}, (Want("f", "eq", 5, Integer()),))
    finding = judge(check, Reading({}, "one", 0.0))
    assert finding.truth is Truth.UNKNOWN and "no field 'f'" in finding.reason


@pytest.mark.parametrize(
    ("operator", "wanted", "value", "truth"),
    [
        ("eq", 5, 5, Truth.TRUE),
        ("ne", 5, 5, Truth.FALSE),
        ("lt", 5, 5, Truth.FALSE),
        ("le", 5, 5, Truth.TRUE),
        ("gt", 5, 5, Truth.FALSE),
        ("ge", 5, 5, Truth.TRUE),
        ("in", (4, 5), 5, Truth.TRUE),
        ("in", (4,), 5, Truth.FALSE),
        ("eq", 1, True, Truth.UNKNOWN),
        ("eq", True, 1, Truth.UNKNOWN),
        ("lt", 5, "4", Truth.UNKNOWN),
    ],
)
def test_comparisons(operator: str, wanted, value, truth: Truth) -> None:
    check = Check(FLAG, {"name": "x"}, (Want("f", operator, wanted, Integer()),))
    assert judge(check, Reading({"f": value}, "one", 0.0)).truth is truth


@pytest.mark.parametrize(
    ("size", "truth"), [(98, Truth.TRUE), (97, Truth.FALSE), (102, Truth.TRUE)]
)
def test_a_tolerance(size: int, truth: Truth) -> None:
    check = Check(FLAG, {"name": "x"}, (Want("f", "eq", 100, Size(), within=0.02),))
    assert judge(check, Reading({"f": size}, "one", 0.0)).truth is truth


def test_a_sentence_says_the_limit_that_held() -> None:
    check = Check(FLAG, {"name": "x"}, (Want("f", "ge", 5, Integer()),))
    assert judge(check, Reading({"f": 7}, "one", 0.0)).sentence() == "flag x: f 7 (≥ 5)"


def test_matches_searches() -> None:
    check = Check(FLAG, {"name": "x"}, (Want("f", "matches", "b+", Text()),))
    assert judge(check, Reading({"f": "abbc"}, "one", 0.0)).truth is Truth.TRUE
