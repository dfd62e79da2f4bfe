"""Generators that ask: advanced together, answered from other hosts, never believed when broken."""

from __future__ import annotations

from runbooks.engine.inquiry import Answer, Inquiry, inquire, read_checks
from runbooks.engine.model.check import Check, Truth, Want
from runbooks.engine.model.probe import Shell, Unknown
from runbooks.engine.model.values import Text
from tests.engine.scripted import FLAG, World, context, flag


def asking(*names: str, host: str | None = None):
    texts = []
    for name in names:
        output = yield Shell(f"flag {name}", "", host=host)
        texts.append(output.text)
    return texts


def test_generators_of_one_call_share_their_rounds() -> None:
    world = World({"one": {"a": "1", "b": "2"}, "two": {"a": "3"}})
    answers = inquire(
        world,
        [Inquiry("one", asking("a", "b")), Inquiry("two", asking("a")), Inquiry("one", asking())],
    )
    assert [answer.value for answer in answers] == [["1", "2"], ["3"], []]
    assert world.rounds == 2


def test_a_script_may_be_asked_of_another_host() -> None:
    world = World({"one": {"a": "1"}, "two": {"a": "2"}})
    assert inquire(world, [Inquiry("one", asking("a", host="two"))])[0].value == ["2"]


def test_unknown_unreachable_and_a_broken_fact_are_three_answers() -> None:
    def unknown():
        yield Shell("flag a", "")
        raise Unknown("denied")

    def broken():
        yield Shell("flag a", "")
        return {}["nothing"]

    world = World({"one": {"a": "1"}, "two": {}}, down={"two"})
    first, second, third = inquire(
        world,
        [Inquiry("one", unknown()), Inquiry("two", asking("a")), Inquiry("one", broken())],
    )
    assert first == Answer(unknown="denied")
    assert (second.unreachable, second.unknown) == (True, "two: no route to host")
    assert third.unknown is not None and third.unknown.startswith("reading failed: KeyError")


def test_a_fact_may_survive_a_host_that_is_down() -> None:
    from runbooks.engine.fleet import Unreachable

    def careful():
        try:
            yield Shell("flag a", "", host="two")
        except Unreachable:
            return "two is down"

    world = World({"one": {}, "two": {}}, down={"two"})
    assert inquire(world, [Inquiry("one", careful())])[0].value == "two is down"


def test_a_field_that_compares_with_nothing_is_unknown_not_false() -> None:
    """ansible#34591: `x: "false"` was both true and false."""
    want = Want("is", "lt", 5, Text())
    check = Check(FLAG, {"name": "a"}, (want,))
    world = World({"one": {"a": "text"}})
    (finding,) = read_checks(world, [(check, context(world))])
    assert finding.truth is Truth.UNKNOWN


def test_times_are_of_the_reading() -> None:
    world = World({"one": {"a": "on"}})
    (finding,) = read_checks(world, [(flag("a", "on"), context(world))], now=lambda: 42.0)
    assert finding.at == 42.0
