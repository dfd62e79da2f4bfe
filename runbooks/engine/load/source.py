"""Reads one YAML file into a plain tree and the place of every value and key.

The parser's events are walked with a stack of our own: aliases keep their place (composed
nodes lose it), nothing expands, and no depth of nesting reaches Python's recursion limit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runbooks.engine.load.collector import Collector
from runbooks.engine.load.places import NodePath, Places
from runbooks.engine.load.scalars import resolve_plain
from runbooks.engine.load.syntax import BARE_BRACES, BRACES_HINT, syntax_diagnostic
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, Place, RunbookError

__all__ = ["MAX_BYTES", "MAX_DEPTH", "Source", "parse_source", "read_source"]

MAX_BYTES = 1 << 20
MAX_DEPTH = 40

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# What YAML does not print, and the breaks and marks that editors count differently.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\u202a-\u202e\u2066-\u2069]"
)


@dataclass(frozen=True)
class Source:
    """A file as data: `tree` of dicts, lists and scalars, and where each stands."""

    file: Path
    tree: dict[str, Any]
    places: Places


def read_source(file: Path) -> Source:
    """Read and parse; RunbookError for every fault of the file itself."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RunbookError(
            Diagnostic(f"cannot be read: {reason}", where=str(file), code=ExitCode.USAGE)
        ) from None
    return parse_source(raw, file)


def parse_source(raw: bytes, file: Path) -> Source:
    """Parse bytes as if `file` held them."""
    if len(raw) > MAX_BYTES:
        _refuse(file, (1, 1), f"the file is larger than {MAX_BYTES >> 10} KiB")
    text = _decoded(raw, file)
    places = Places(file, text)
    tree = _Walk(places).tree()
    if tree is None:
        _refuse(file, (1, 1), "the file is empty", "a runbook has at least: runbook, steps")
    if not isinstance(tree, dict):
        kind = "a list" if isinstance(tree, list) else "a single value"
        _refuse(file, places.values[()], f"the file holds {kind}; a runbook is a mapping of keys")
    return Source(file, tree, places)


def _refuse(file: Path, position: tuple[int, int], message: str, hint: str | None = None) -> Any:
    raise RunbookError(Diagnostic(message, Place(file, *position), hint=hint))


def _decoded(raw: bytes, file: Path) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        _refuse(file, (1, 1), "the file is UTF-16; save it as UTF-8")
    if raw.startswith(b"\xef\xbb\xbf"):
        _refuse(
            file, (1, 1), "the file begins with a byte order mark; save it as UTF-8 without BOM"
        )
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode(errors="replace")
        _refuse(
            file,
            _position(before, len(before)),
            f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8",
        )
    if match := _UNPRINTABLE.search(text):
        _refuse(
            file,
            _position(text, match.start()),
            f"character U+{ord(match[0]):04X} is invisible and not allowed; remove it",
        )
    return text


def _position(text: str, index: int) -> tuple[int, int]:
    lines = re.split(r"\r\n|\n|\r", text[:index])
    return len(lines), len(lines[-1]) + 1


class _Frame:
    """A mapping or list being filled. `loose` ones belong to a key that is at fault."""

    __slots__ = ("container", "key", "loose", "path", "start")

    def __init__(self, path: NodePath, container: Any, start: Any, loose: bool):
        self.path = path
        self.container = container
        self.start = start
        self.loose = loose
        # The key whose value comes next; None while a key is due.
        self.key: _Key | None = None


class _Key:
    __slots__ = ("loose", "name")

    def __init__(self, name: str, loose: bool = False):
        self.name = name
        self.loose = loose


class _Walk:
    """One pass over the events."""

    def __init__(self, places: Places):
        self.places = places
        self.found = Collector(places)
        self.stack: list[_Frame] = []
        self.root: Any = None
        self.documents = 0

    def tree(self) -> Any:
        try:
            for event in yaml.parse(self.places.text, Loader=_Loader):
                self._take(event)
        except yaml.YAMLError as error:
            # A fault found before explains the parser's own better than the parser does.
            if not self.found.diagnostics:
                raise RunbookError(syntax_diagnostic(error, self.places)) from None
        self.found.raise_if_any()
        return self.root

    def _take(self, event: Any) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self._stop(event.start_mark, "a second document begins; write one runbook a file")
        elif isinstance(event, yaml.CollectionEndEvent):
            self.stack.pop()
        elif isinstance(event, yaml.NodeEvent):
            frame = self.stack[-1] if self.stack else None
            if frame is not None and isinstance(frame.container, dict) and frame.key is None:
                frame.key = self._key(event, frame)
            else:
                self._node(event, frame)

    def _stop(self, mark: Any, message: str, hint: str | None = None) -> None:
        """A fault after which the rest of the file means nothing."""
        self._fault(mark, (), message, hint)
        self.found.raise_if_any()

    def _fault(self, mark: Any, path: NodePath, message: str, hint: str | None = None) -> None:
        place = Place(self.places.file, mark.line + 1, mark.column + 1)
        self.found.at(place, path, message, hint)

    def _key(self, event: Any, frame: _Frame) -> _Key:
        mark = event.start_mark
        if isinstance(event, yaml.CollectionStartEvent):
            if self.places.text.startswith("{{", frame.start.index):
                self._stop(frame.start, BARE_BRACES, BRACES_HINT)
            self._stop(mark, "a key is a list or mapping; write text")
        if isinstance(event, yaml.AliasEvent):
            self._alias(event, frame)
            return _Key("", loose=True)
        plain = event.implicit[0]
        name = event.value
        loose = frame.loose
        if not loose:
            loose = not self._key_fits(event, frame, plain)
        if not loose:
            frame.container[name] = None
            self.places.keys[(*frame.path, name)] = (mark.line + 1, mark.column + 1)
        return _Key(name, loose)

    def _key_fits(self, event: Any, frame: _Frame, plain: bool) -> bool:
        mark, name = event.start_mark, event.value
        path = (*frame.path, name)
        if event.tag is not None:
            self._fault(mark, path, _tag_message(event.tag))
        elif plain and name == "<<":
            self._fault(
                mark,
                path,
                "'<<' is a merge key, which is not allowed",
                "write the keys out, or use defaults",
            )
        elif plain and not isinstance(_plain_or_text(name), str):
            shown = name or "nothing"
            self._fault(mark, path, f'the key {shown} is not text; put it in quotes: "{name}"')
        elif "${{" in name:
            self._fault(mark, path, "a key holds ${{ …; references stand in values only")
        elif "\0" in name:
            self._fault(mark, path, "a key holds a NUL character")
        elif name in frame.container:
            first = self.places.keys[path]
            self.found.at(
                Place(self.places.file, mark.line + 1, mark.column + 1),
                path,
                f"'{name}' stands twice in one mapping; first on line {first[0]}",
                related=((self.places.at(first), f"first '{name}'"),),
            )
        else:
            return True
        return False

    def _alias(self, event: Any, frame: _Frame | None) -> None:
        path = frame.path if frame else ()
        self._fault(
            event.start_mark,
            path,
            f"alias '*{event.anchor}' is not allowed",
            "write the value out, or use vars or defaults",
        )

    def _node(self, event: Any, frame: _Frame | None) -> None:
        mark = event.start_mark
        path: NodePath = ()
        loose = False
        if frame is not None:
            loose = frame.loose
            if frame.key is None:
                path = (*frame.path, len(frame.container))
            else:
                path = (*frame.path, frame.key.name)
                loose = loose or frame.key.loose
        value = self._value(event, frame, path, loose)
        if not loose:
            self.places.values[path] = (mark.line + 1, mark.column + 1)
        if frame is None:
            self.root = value
        elif frame.key is None:
            frame.container.append(value)
        else:
            if not loose:
                frame.container[frame.key.name] = value
            frame.key = None
        if isinstance(event, yaml.CollectionStartEvent):
            self.stack.append(_Frame(path, value, mark, loose))

    def _value(self, event: Any, frame: _Frame | None, path: NodePath, loose: bool) -> Any:
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            if not loose:
                self._alias(event, frame)
            return None
        if event.tag is not None and not loose:
            self._fault(mark, path, _tag_message(event.tag))
        if isinstance(event, yaml.CollectionStartEvent):
            if len(self.stack) >= MAX_DEPTH:
                self._stop(mark, f"nested more than {MAX_DEPTH} deep")
            if not event.flow_style and not loose:
                self.places.blocks.add(path)
            return {} if isinstance(event, yaml.MappingStartEvent) else []
        if event.tag is not None or not event.implicit[0]:
            if "\0" in event.value and not loose:
                self._fault(mark, path, "the text holds a NUL character; no program can take it")
            return event.value
        if not event.value and not loose:
            self.places.blocks.add(path)
        try:
            return resolve_plain(event.value)
        except ValueError as error:
            if not loose:
                self._fault(mark, path, str(error))
            return event.value


def _plain_or_text(text: str) -> Any:
    try:
        return resolve_plain(text)
    except ValueError:
        return None


def _tag_message(tag: str) -> str:
    shown = tag.replace("tag:yaml.org,2002:", "!!")
    return f"tag '{shown}' is not allowed; types come from the key, text from quotes"
