"""The README's plug-in is one: it registers, reads, and can say unknown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runbooks.engine.inquiry import Inquiry, inquire
from runbooks.engine.model.probe import Output
from runbooks.engine.registry import Registry

README = Path(__file__).resolve().parents[2] / "README.md"


class Answering:
    def __init__(self, text: bytes):
        self.text = text

    def ask(self, questions):
        return [Output(0, self.text) for _ in questions]


@pytest.mark.parametrize(("said", "count"), [(b"2\n", 2), (b"nobody\n", None)])
def test_the_example_works(said: bytes, count: int | None) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    scope: dict = {}
    exec(compile(code, "README.md", "exec"), scope)
    registry = Registry()
    scope["register"](registry)
    fact = registry.facts["users"]
    (answer,) = inquire(Answering(said), [Inquiry("one", fact.read({}, None))])
    if count is None:
        assert answer.unknown == "who said 'nobody\\n'"
    else:
        assert answer.value == {"count": count}
