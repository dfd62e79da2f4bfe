"""What `eagle3 merge` is asked to do: settings, from a YAML file or from the command line.

    target: model:kimi-k2.5
    max_tokens: 16_384
    seed: 42
    base: data:raw                  # optional: where relative source paths start
    sources:
      code: {path: code.jsonl}
      old: {path: old.jsonl, exclude: true}
    exclude: [old]                  # the same, said in another place

PyYAML and the standard library only: the engine loads a config on a controller that has neither
pyarrow nor transformers, and compares `config_digest` with the manifest on the host. So the
digest is over the config's own words, never over paths as one machine resolves them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from eagle3.errors import InputError, Place, UsageError
from eagle3.files import canonical_json
from eagle3.units import did_you_mean

__all__ = [
    "CONFIGS",
    "MergeConfig",
    "Source",
    "config_from_arguments",
    "find_config",
    "load_config",
    "parse_config",
    "resolve_path",
]

CONFIGS = Path(__file__).parent / "configs"
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_ROOT = re.compile(r"([a-z][a-z0-9_-]*):(.*)", re.DOTALL)
_KEYS = ("target", "max_tokens", "seed", "base", "sources", "exclude")
_SOURCE_KEYS = ("path", "exclude")


@dataclass(frozen=True)
class Source:
    """One named input file. `path` is text as given, with `base` before it when relative."""

    name: str
    path: str
    excluded: bool = False


@dataclass(frozen=True)
class MergeConfig:
    """Validated settings; sources sorted by name, since their order changes nothing.

    `target` is text as given. `words` is what `digest` is taken of.
    """

    target: str
    max_tokens: int
    seed: int
    sources: tuple[Source, ...]
    words: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of the canonical JSON of the settings as written."""
        return hashlib.sha256(canonical_json(dict(self.words))).hexdigest()

    @property
    def included(self) -> tuple[Source, ...]:
        return tuple(source for source in self.sources if not source.excluded)

    @property
    def excluded(self) -> tuple[str, ...]:
        return tuple(source.name for source in self.sources if source.excluded)

    def input_paths(self) -> dict[str, str]:
        """Name to path text (`root:rest`, absolute or relative) of each source that is read."""
        return {source.name: source.path for source in self.included}


def find_config(name: str) -> Path:
    """The config file called `name`: in the working directory, else one that the package brings.

    Raises InputError when it is neither.
    """
    own = Path(name)
    if own.is_file():
        return own
    bundled = CONFIGS / name
    if not Path(name).is_absolute() and ".." not in own.parts and bundled.is_file():
        return bundled
    known = [str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*.yaml")]
    raise InputError(
        "is no file here, and no config of this package",
        place=Place(own),
        hint=did_you_mean(name, known),
    )


def load_config(path: Path) -> MergeConfig:
    """Read and validate a merge config. Raises InputError with file and line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", place=Place(path)) from error
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8", place=Place(path)) from error
    return parse_config(text, path)


def parse_config(text: str, path: Path) -> MergeConfig:
    """The config in `text`; `path` is named in errors. Pure. Raises InputError with line."""
    top = _mapping(_compose(text, path), path, _KEYS, "")
    for key in ("target", "max_tokens", "seed", "sources"):
        if key not in top:
            raise InputError(f"has no {key}", place=Place(path))
    base = _string(top["base"], path, "base") if "base" in top else None
    marked = _names(top["exclude"], path) if "exclude" in top else {}
    given = _mapping(top["sources"], path, None, "sources")
    for name, line in marked.items():
        if name not in given:
            raise InputError(
                f"exclude: no source is called {name!r}",
                place=Place(path, line=line),
                hint=did_you_mean(name, given),
            )
    sources = [_source(name, node, path, base, name in marked) for name, node in given.items()]
    target = _string(top["target"], path, "target")
    max_tokens = _integer(top["max_tokens"], path, "max_tokens", least=1)
    seed = _integer(top["seed"], path, "seed", least=0)
    words = _words(target, max_tokens, seed, sources)
    config = MergeConfig(target, max_tokens, seed, tuple(_sorted(sources)), words)
    if not config.included:
        raise InputError(
            "every source is excluded" if sources else "names no source",
            place=Place(path, line=_line(top["sources"])),
        )
    return config


def config_from_arguments(
    *, target: str, max_tokens: int, seed: int, sources: Sequence[str], exclude: Sequence[str]
) -> MergeConfig:
    """The config of `NAME=FILE …` arguments. Raises UsageError.

    Its digest is over names and the files' last path parts, and leaves `target` out: the same
    command in another directory is the same merge (the manifest holds the target's own digest).
    """
    found: dict[str, str] = {}
    for argument in sources:
        name, equals, file = argument.partition("=")
        if not equals or not file:
            raise UsageError(
                f"{argument!r} is no source; write NAME=FILE, for example code=code.jsonl"
            )
        if problem := _name_problem(name):
            raise UsageError(f"{argument!r}: {problem}")
        if name in found:
            raise UsageError(f"source {name!r} is given twice: {found[name]} and {file}")
        found[name] = file
    for name in exclude:
        if name not in found:
            raise UsageError(
                f"--exclude {name}: no source is called so", hint=did_you_mean(name, found)
            )
    if max_tokens < 1:
        raise UsageError(f"--max-tokens {max_tokens}: write at least 1")
    if seed < 0:
        raise UsageError(f"--seed {seed}: write at least 0")
    listed = _sorted([Source(name, file, name in exclude) for name, file in found.items()])
    short = [Source(s.name, PurePosixPath(s.path).name, s.excluded) for s in listed]
    words = _words(None, max_tokens, seed, short)
    config = MergeConfig(target, max_tokens, seed, tuple(listed), words)
    if not config.included:
        raise UsageError("every source is excluded" if found else "no source; write NAME=FILE …")
    return config


def resolve_path(text: str, environment: Mapping[str, str] | None = None) -> Path:
    """`root:rest` below the directory in EAGLE3_ROOT_<ROOT>, or any other path as it is.

    `environment` defaults to the process's own. The engine exports the variables of a host's
    declared roots. Raises InputError when the root has none, or the rest leaves the root.
    """
    match = _ROOT.fullmatch(text)
    if not match or (environment is None and Path(text).exists()):
        return Path(text)
    variable = "EAGLE3_ROOT_" + match[1].upper().replace("-", "_")
    directory = (os.environ if environment is None else environment).get(variable)
    if not directory:
        raise InputError(
            f"{text}: no directory is known for the root {match[1]!r}",
            hint=f"set it, for example {variable}=/{match[1]}",
        )
    rest = PurePosixPath(match[2])
    if rest.is_absolute() or ".." in rest.parts:
        raise InputError(f"{text}: leaves its root; write {match[1]}:PATH without '..'")
    return Path(directory) / rest


def _sorted(sources: Sequence[Source]) -> list[Source]:
    return sorted(sources, key=lambda source: source.name)


def _words(
    target: str | None, max_tokens: int, seed: int, sources: Sequence[Source]
) -> dict[str, Any]:
    return {
        "target": target,
        "max_tokens": max_tokens,
        "seed": seed,
        "sources": {source.name: source.path for source in sources},
        "exclude": sorted(source.name for source in sources if source.excluded),
    }


def _name_problem(name: str) -> str | None:
    if _NAME.fullmatch(name):
        return None
    return f"{name!r} is no name of a source; letters, digits, '_', '.' and '-' are"


# YAML nodes: composed by PyYAML's safe loader, judged here for the sake of line numbers.


def _compose(text: str, path: Path) -> yaml.Node:
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                place = Place(path, line=event.start_mark.line + 1 if event.start_mark else None)
                raise InputError("an alias (*name); write it out", place=place)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InputError(
            f"is no YAML: {error.problem or error.context}",
            place=Place(path, line=mark.line + 1 if mark else None),
        ) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(
            f"is no YAML: {str(error) or 'nested too deeply'}", place=Place(path)
        ) from None
    if node is None:
        raise InputError("is empty", place=Place(path), hint=f"its keys: {', '.join(_KEYS)}")
    return node


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _mapping(
    node: yaml.Node, path: Path, keys: Sequence[str] | None, where: str
) -> dict[str, yaml.Node]:
    """Key to node. `keys` None: names of sources."""
    if not isinstance(node, yaml.MappingNode):
        raise InputError(
            f"{where or 'the config'} is no mapping", place=Place(path, line=_line(node))
        )
    found: dict[str, yaml.Node] = {}
    for key_node, value in node.value:
        place = Place(path, line=_line(key_node))
        if not isinstance(key_node, yaml.ScalarNode):
            raise InputError("a key is no plain word", place=place)
        key = str(key_node.value)
        if key in found:
            raise InputError(f"{key!r} is there twice", place=place)
        if keys is not None and key not in keys and not key.startswith("x-"):
            raise InputError(
                f"key {key!r} is unknown{f' in {where}' if where else ''}",
                place=place,
                hint=did_you_mean(key, keys),
            )
        if keys is None and (problem := _name_problem(key)):
            raise InputError(problem, place=place)
        found[key] = value
    return found


def _string(node: yaml.Node, path: Path, what: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or not node.tag.endswith(":str") or not node.value:
        raise InputError(
            f"{what} is no text; put it in quotes", place=Place(path, line=_line(node))
        )
    return str(node.value)


def _integer(node: yaml.Node, path: Path, what: str, *, least: int) -> int:
    # Not YAML 1.1's: 0644 is octal there and 1:30 is 90.
    text = node.value if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":int") else ""
    if not re.fullmatch(r"0|[1-9][0-9_]{0,17}", text):
        raise InputError(
            f"{what} is no whole number; write for example 16_384",
            place=Place(path, line=_line(node)),
        )
    number = int(text.replace("_", ""))
    if number < least:
        raise InputError(
            f"{what} is {number}; write at least {least}", place=Place(path, line=_line(node))
        )
    return number


def _boolean(node: yaml.Node, path: Path, what: str) -> bool:
    if not isinstance(node, yaml.ScalarNode) or node.value not in ("true", "false") or node.style:
        raise InputError(f"{what}: write true or false", place=Place(path, line=_line(node)))
    return bool(node.value == "true")


def _names(node: yaml.Node, path: Path) -> dict[str, int]:
    if not isinstance(node, yaml.SequenceNode):
        raise InputError("exclude is no list of names", place=Place(path, line=_line(node)))
    return {_string(item, path, "a name in exclude"): _line(item) for item in node.value}


def _source(name: str, node: yaml.Node, path: Path, base: str | None, marked: bool) -> Source:
    where = f"sources.{name}"
    fields = _mapping(node, path, _SOURCE_KEYS, where)
    if "path" not in fields:
        raise InputError(f"{where} has no path", place=Place(path, line=_line(node)))
    file = _string(fields["path"], path, f"{where}.path")
    if base is not None and not _ROOT.fullmatch(file) and not file.startswith("/"):
        file = base + ("" if base.endswith((":", "/")) else "/") + file
    excluded = "exclude" in fields and _boolean(fields["exclude"], path, f"{where}.exclude")
    return Source(name, file, excluded or marked)
