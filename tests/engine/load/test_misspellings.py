"""Every key of `extract.yaml`, misspelt: one error, at that line, with the right word."""

from __future__ import annotations

from pathlib import Path

import pytest

from runbooks.engine.load import parse_source
from runbooks.engine.load.places import NodePath
from runbooks.engine.registry import Registry
from tests.engine.load.support import EXTRACT, PROJECT, faults, real, said, stubs
from tests.engine.load.test_mutations import JOINED

TEXT = EXTRACT.read_text()
PLACES = parse_source(TEXT.encode(), Path("extract.yaml")).places
# Below these keys stand names of the runbook's author.
AUTHORS = {"steps", "vars", "secrets", "env", "writes", "frees"}
KEYS = [
    path
    for path in PLACES.keys
    if not (len(path) > 1 and path[-2] in AUTHORS and (path[-2] != "steps" or len(path) == 2))
]


def doubled(word: str) -> str:
    middle = len(word) // 2
    return word[:middle] + word[middle] + word[middle:]


def swapped(word: str) -> str:
    if len(word) < 4 or word[-1] == word[-2]:
        return word + "s"
    return word[:-2] + word[-1] + word[-2]


def misspelt(path: NodePath, spelling: str) -> str:
    line, column = PLACES.keys[path]
    lines = TEXT.splitlines(keepends=True)
    old = lines[line - 1]
    assert old.startswith(path[-1], column - 1)
    lines[line - 1] = old[: column - 1] + spelling + old[column - 1 + len(path[-1]) :]
    return "".join(lines)


@pytest.mark.parametrize("change", [lambda word: word + "x", doubled, swapped, str.upper])
@pytest.mark.parametrize("path", KEYS, ids=lambda path: ".".join(map(str, path)))
@pytest.mark.parametrize("registry", [stubs, real])
def test_one_error_at_the_key_with_the_right_word(path: NodePath, change, registry) -> None:
    known: Registry = registry()
    word = change(path[-1])
    found = faults(misspelt(path, word), known)
    assert len(found) == 1, [(item.place, item.message) for item in found]
    assert said(found[0]) == PLACES.keys[path]
    assert f"did you mean '{path[-1]}'?" in found[0].message
    assert f"'{word}'" in found[0].message


JOINED_PLACES = parse_source(JOINED, Path("joined.yaml")).places
JOINED_KEYS = [
    path
    for path in JOINED_PLACES.keys
    if not (len(path) > 1 and path[-2] in {*AUTHORS, "matrix"} and len(path) == 2)
    and path[-2:-1] != ("vars",)
]


@pytest.mark.parametrize("path", JOINED_KEYS, ids=lambda path: ".".join(map(str, path)))
def test_keys_that_join_files_and_steps(path: NodePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    line, column = JOINED_PLACES.keys[path]
    lines = JOINED.decode().splitlines(keepends=True)
    old = lines[line - 1]
    # `ax` would be near nothing.
    word = "As" if path[-1] == "as" else path[-1] + "x"
    lines[line - 1] = old[: column - 1] + word + old[column - 1 + len(path[-1]) :]
    found = faults("".join(lines))
    assert len(found) == 1, [(item.place, item.message) for item in found]
    assert said(found[0]) == (line, column)
    assert f"did you mean '{path[-1]}'?" in found[0].message


def test_enough_keys_are_covered() -> None:
    assert len(KEYS) > 100 and len(JOINED_KEYS) > 40
