"""pyinfra's hosts as the engine's: names without connectors, roots checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError, did_you_mean
from runbooks.engine.model.host import DEFAULT_STATE, Host, Root
from runbooks.engine.model.values import Size

__all__ = ["is_fake", "model_hosts", "name_of", "unreachable_hint"]

_ROOT_KEYS = ("path", "owner", "filesystem", "mounted", "reserve")
# pyinfra adds a group named after the inventory's file; of a folder that is `hosts`.
_FILE_GROUP = "hosts"


def name_of(name: str) -> str:
    """A host's name as runbooks write it: `@fake/kpro6` is `kpro6`, `@local` is `local`."""
    if not name.startswith("@"):
        return name
    connector, _, rest = name[1:].partition("/")
    return rest or connector


def unreachable_hint(host: str) -> str:
    """What to do about a host that does not answer."""
    return (
        f"set its address: an entry 'Host {host}' in ~/.ssh/config, "
        f"or ssh_hostname in inventory/hosts.py (for one run: --data ssh_hostname=ADDRESS)"
    )


def is_fake(host: Any) -> bool:
    """Whether pyinfra only simulates this host."""
    name = str(host.name)
    return name == "@fake" or name.startswith("@fake/")


def model_hosts(inventory: Any) -> dict[str, Host]:
    """The engine's hosts of a pyinfra inventory; RunbookError (usage) for every wrong one."""
    source = Path(getattr(inventory, "source", None) or "inventory")
    hosts: dict[str, Host] = {}
    faults: list[Diagnostic] = []
    known = [name_of(host.name) for host in inventory]
    for host in inventory:
        name = name_of(host.name)
        reader = _Reader(name, source, known, faults)
        layers = list(_layers(inventory, host, source))
        if name in hosts:
            reader.fault(str(source), f"two hosts of the inventory are named '{name}'")
        data = {key: value for _, layer in layers for key, value in layer.items()}
        where = {key: place for place, layer in layers for key in layer}
        hosts[name] = Host(
            name=name,
            kind=reader.text(where, data, "kind", "machine"),
            groups=_groups(host),
            roots=reader.roots(layers),
            path=reader.folders(where, data),
            state=reader.text(where, data, "state_dir", DEFAULT_STATE),
            guest_of=reader.guest_of(where, data),
            data=data,
        )
    faults.extend(_circles(hosts, source))
    if faults:
        raise RunbookError(*faults)
    return hosts


def _circles(hosts: Mapping[str, Host], source: Path) -> Iterator[Diagnostic]:
    """Hosts that are guests of themselves, over others."""
    for name in hosts:
        chain = [name]
        while (above := hosts[chain[-1]].guest_of) in hosts and above not in chain:
            chain.append(str(above))
        if above == name and min(chain) == name:
            turn = " → ".join([*chain, name])
            yield Diagnostic(f"guest_of goes in a circle: {turn}", where=str(source))


def _groups(host: Any) -> tuple[str, ...]:
    names = dict.fromkeys(host.groups)
    return (*(name for name in names if not name.startswith("@") and name != _FILE_GROUP), "all")


def _layers(inventory: Any, host: Any, source: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The data of a host with the file it comes from, the weakest first, as pyinfra orders it."""

    def place(group: str) -> str:
        file = source.parent / "group_data" / f"{group}.py"
        return str(file if file.exists() else source)

    yield place("all"), inventory.get_data()
    for group in host.groups:
        yield place(group), inventory.get_group_data(group)
    yield str(source), inventory.get_host_data(host.name)
    yield "--data", inventory.get_override_data()


class _Reader:
    """Reads the engine's keys of one host's data and collects what is wrong with them."""

    def __init__(self, host: str, source: Path, known: list[str], faults: list[Diagnostic]):
        self.host = host
        self.source = source
        self.known = known
        self.faults = faults

    def fault(self, place: str, message: str, hint: str | None = None) -> None:
        where = f"{place}, host {self.host}"
        self.faults.append(Diagnostic(message, where=where, hint=hint, code=ExitCode.USAGE))

    def text(
        self, where: Mapping[str, str], data: Mapping[str, Any], key: str, default: str
    ) -> str:
        value = data.get(key, default)
        if not isinstance(value, str) or not value:
            self.fault(where.get(key, ""), f"{key} is {value!r}, want text")
            return default
        return value

    def guest_of(self, where: Mapping[str, str], data: Mapping[str, Any]) -> str | None:
        value = data.get("guest_of")
        if value is None:
            return None
        if value not in self.known:
            self.fault(
                where.get("guest_of", ""),
                f"guest_of {value!r} is no host of the inventory",
                did_you_mean(str(value), self.known),
            )
            return None
        if value == self.host:
            self.fault(where.get("guest_of", ""), "guest_of names the host itself")
            return None
        return str(value)

    def folders(self, where: Mapping[str, str], data: Mapping[str, Any]) -> tuple[str, ...]:
        value = data.get("path", ())
        if isinstance(value, str) or not all(isinstance(item, str) for item in value):
            hint = f"write path = [{value!r}]" if isinstance(value, str) else None
            self.fault(where.get("path", ""), f"path is {value!r}, want a list of folders", hint)
            return ()
        return tuple(value)

    def roots(self, layers: list[tuple[str, Mapping[str, Any]]]) -> dict[str, Root]:
        """Roots of all layers by name; a stronger layer replaces a root whole."""
        found: dict[str, tuple[str, object]] = {}
        for place, data in layers:
            declared = data.get("roots", {})
            if not isinstance(declared, Mapping):
                self.fault(place, f"roots is {declared!r}, want a mapping of names to roots")
                continue
            found |= {str(name): (place, spec) for name, spec in declared.items()}
        roots = {name: self._root(name, place, spec) for name, (place, spec) in found.items()}
        return {name: root for name, root in roots.items() if root is not None}

    def _root(self, name: str, place: str, spec: object) -> Root | None:
        before = len(self.faults)
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
            self.fault(place, f"roots.{name}: a name has small letters, digits, '-' and '_'")
        if not isinstance(spec, Mapping):
            self.fault(place, f"roots.{name} is {spec!r}, want a mapping with path")
            return None
        for key in spec:
            if key not in _ROOT_KEYS:
                hint = did_you_mean(str(key), _ROOT_KEYS)
                self.fault(place, f"roots.{name}.{key} is no key of a root", hint)
        path = spec.get("path")
        if path is None:
            self.fault(place, f"roots.{name}.path is missing")
        elif not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/"):
            self.fault(place, f"roots.{name}.path is {path!r}, want an absolute path without '..'")
        owner = spec.get("owner", self.host)
        if owner not in self.known:
            hint = did_you_mean(str(owner), self.known)
            self.fault(place, f"roots.{name}.owner {owner!r} is no host of the inventory", hint)
        filesystem = spec.get("filesystem", f"{owner}:{path}")
        if not isinstance(filesystem, str) or not filesystem:
            self.fault(place, f"roots.{name}.filesystem is {filesystem!r}, want text")
        mounted = spec.get("mounted", False)
        if not isinstance(mounted, bool):
            self.fault(place, f"roots.{name}.mounted is {mounted!r}, want True or False")
        reserve = 0
        try:
            reserve = Size().parse(spec["reserve"]) if "reserve" in spec else 0
        except ValueError as error:
            self.fault(place, f"roots.{name}.reserve: {error}")
        if len(self.faults) > before:
            return None
        return Root(name, PurePosixPath(str(path)), owner, filesystem, mounted, reserve)
