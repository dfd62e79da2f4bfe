from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3.errors import EagleError, InputError, UsageError
from eagle3.merge_config import (
    MergeConfig,
    config_from_arguments,
    find_config,
    load_config,
    parse_config,
    resolve_path,
)
from tests.targets import REPOSITORY

PATH = Path("m.yaml")
TEXT = """\
target: model:tiny
max_tokens: 16_384
seed: 42
sources:
  b: {path: b.jsonl}
  a: {path: "data:raw/a.jsonl", exclude: true}
"""


def arguments(*sources: str, **changes: object) -> MergeConfig:
    settings: dict = {"target": "t", "max_tokens": 8, "seed": 1, "exclude": []} | changes
    return config_from_arguments(sources=sources, **settings)


def test_a_config() -> None:
    config = parse_config(TEXT, PATH)
    assert (config.target, config.max_tokens, config.seed) == ("model:tiny", 16_384, 42)
    assert config.input_paths() == {"b": "b.jsonl"}
    assert config.excluded == ("a",)


def test_the_base_stands_before_relative_paths_only() -> None:
    paths = {"rel": "x.jsonl", "abs": "/r/x.jsonl", "root": "raw:x.jsonl"}
    sources = "".join(f"  {name}: {{path: '{path}'}}\n" for name, path in paths.items())
    for base, wanted in (
        ("data:raw", "data:raw/x.jsonl"),
        ("'data:'", "data:x.jsonl"),
        ("/srv/", "/srv/x.jsonl"),
    ):
        text = f"target: t\nmax_tokens: 1\nseed: 0\nbase: {base}\nsources:\n{sources}"
        assert parse_config(text, PATH).input_paths() == paths | {"rel": wanted}


def test_the_digest_is_of_the_meaning_not_of_the_spelling() -> None:
    first = parse_config(TEXT, PATH).digest
    other = """\
# Another order, another spelling, the exclusion in another place.
seed: 42
exclude: [a]
x-note: kept out
sources:
  a:
    path: data:raw/a.jsonl
  b:
    path: 'b.jsonl'
max_tokens: 16384
target: "model:tiny"
"""
    assert parse_config(other, Path("elsewhere.yaml")).digest == first
    for old, new in (
        ("42", "43"),
        ("16_384", "16_385"),
        ("tiny", "tinier"),
        ("b.jsonl", "c.jsonl"),
        ("  b:", "  c:"),
        (", exclude: true", ""),
    ):
        assert parse_config(TEXT.replace(old, new), PATH).digest != first


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("seed: 42", "sed: 42", 3, "did you mean 'seed'?"),
        ("seed: 42", "seed: forty", 3, "seed is no whole number"),
        ("seed: 42", "seed: 1:30", 3, "seed is no whole number"),
        ("seed: 42", "seed: 0644", 3, "seed is no whole number"),
        ("seed: 42", "seed: -1", 3, "seed is no whole number"),
        ("seed: 42", "seed: 42\nseed: 42", 4, "'seed' is there twice"),
        ("seed: 42", "seed: 42\nexclude: [c]", 4, "no source is called 'c'"),
        ("seed: 42", "seed: 42\nexclude: c", 4, "no list"),
        ("16_384", "0", 2, "write at least 1"),
        ("model:tiny", "[x]", 1, "target is no text"),
        ("model:tiny", "12", 1, "target is no text"),
        ("{path: b.jsonl}", "{pth: b.jsonl}", 5, "did you mean 'path'?"),
        ("{path: b.jsonl}", "{exclude: false}", 5, "sources.b has no path"),
        ("{path: b.jsonl}", "b.jsonl", 5, "sources.b is no mapping"),
        ("{path: b.jsonl}", "{path: b.jsonl, exclude: true}", 5, "every source is excluded"),
        ("{path: b.jsonl}", "&x {path: b.jsonl}\n  c: *x", 6, "an alias"),
        ("exclude: true", "exclude: yes", 6, "write true or false"),
        ("  b:", "  'b c':", 5, "is no name of a source"),
        ("  b:", "  ? [b]\n  :", 5, "no plain word"),
        ("seed: 42", "seed: {", 5, "is no YAML"),
    ],
)
def test_a_fault_names_its_line(old: str, new: str, line: int, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)) as caught:
        parse_config(TEXT.replace(old, new), PATH)
    assert caught.value.place is not None
    assert caught.value.place.line == line


@pytest.mark.parametrize("key", ["target", "max_tokens", "seed", "sources"])
def test_nothing_has_a_silent_default(key: str) -> None:
    lines = TEXT.splitlines(keepends=True)
    kept = lines[:3] if key == "sources" else [line for line in lines if not line.startswith(key)]
    with pytest.raises(InputError, match=f"has no {key}"):
        parse_config("".join(kept), PATH)


@pytest.mark.parametrize("text", ["", "[]", "3", "a: b\n---\nc: d", "sources: {}", "\t", "a: \x00"])
def test_what_is_no_config(text: str) -> None:
    with pytest.raises(InputError):
        parse_config(text, PATH)


@given(position=st.integers(0, len(TEXT)), insert=st.text(max_size=4), cut=st.integers(0, 9))
def test_mutated_configs_raise_nothing_but_eagle_errors(
    position: int, insert: str, cut: int
) -> None:
    try:
        parse_config(TEXT[:position] + insert + TEXT[position + cut :], PATH)
    except EagleError as error:
        assert str(PATH) in str(error)


def test_the_bundled_config() -> None:
    config = load_config(find_config("merge/100k.yaml"))
    assert config.target == "model:kimi-k2.5"
    assert config.seed == 42
    assert "A1_deepswekimi" in config.excluded
    assert all(path.startswith("data:raw/") for path in config.input_paths().values())


def test_a_config_of_the_working_directory_goes_before_the_bundled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "merge").mkdir()
    (tmp_path / "merge/100k.yaml").write_text(TEXT)
    assert load_config(find_config("merge/100k.yaml")).target == "model:tiny"
    with pytest.raises(InputError, match=r"did you mean 'merge/100k\.yaml'"):
        find_config("merge/10k.yaml")


def test_the_controller_needs_neither_pyarrow_nor_transformers() -> None:
    code = (
        "import sys; from eagle3 import merge_config, dataset_manifest, target_digest, estimate;"
        "print(sorted({'pyarrow', 'transformers', 'numpy', 'torch', 'gguf'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_arguments_and_their_digest() -> None:
    config = arguments("b=/x/b.jsonl", "a=a.jsonl", exclude=["a"])
    assert config.input_paths() == {"b": "/x/b.jsonl"}
    assert config.excluded == ("a",)
    same = arguments("a=/elsewhere/a.jsonl", "b=b.jsonl", exclude=["a"], target="/other/t")
    assert same.digest == config.digest
    assert arguments("a=a.jsonl", "b=b.jsonl").digest != config.digest
    assert arguments("b=c.jsonl", "a=a.jsonl", exclude=["a"]).digest != config.digest


@pytest.mark.parametrize(
    ("sources", "changes", "words"),
    [
        ([], {}, "no source"),
        (["a.jsonl"], {}, "write NAME=FILE"),
        (["a="], {}, "write NAME=FILE"),
        (["a b=x"], {}, "no name of a source"),
        (["a=x", "a=y"], {}, "given twice: x and y"),
        (["code=x"], {"exclude": ["cod"]}, "did you mean 'code'?"),
        (["a=x"], {"exclude": ["a"]}, "every source is excluded"),
        (["a=x"], {"max_tokens": 0}, "at least 1"),
        (["a=x"], {"seed": -1}, "at least 0"),
    ],
)
def test_wrong_arguments(sources: list[str], changes: dict, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        arguments(*sources, **changes)


def test_roots() -> None:
    environment = {"EAGLE3_ROOT_DATA": "/data/eagle3", "EAGLE3_ROOT_OLD_DATA": "/old"}
    assert resolve_path("data:raw/x", environment) == Path("/data/eagle3/raw/x")
    assert resolve_path("old-data:", environment) == Path("/old")
    assert resolve_path("/abs/x:y", environment) == Path("/abs/x:y")
    assert resolve_path("rel/x", environment) == Path("rel/x")
    with pytest.raises(InputError, match="EAGLE3_ROOT_MODEL=/model"):
        resolve_path("model:x", environment)
    for text in ("data:../x", "data:/etc/passwd"):
        with pytest.raises(InputError, match="leaves its root"):
            resolve_path(text, environment)
