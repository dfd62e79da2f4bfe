"""Inventories: a word of the command line as hosts, or an error that says what was meant.

pyinfra takes an unknown word or a limit that matches nothing for an empty fleet, runs nothing
and exits 0; here both are errors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runbooks.engine.adapter import runtime
from runbooks.engine.model.diagnostic import RunbookError, did_you_mean, nearest
from runbooks.engine.model.host import Host

if TYPE_CHECKING:
    from runbooks.engine.adapter.fleet import PyinfraFleet

__all__ = ["load_hosts", "locate", "make_fleet", "read_inventory", "select_hosts"]

FOLDER = "inventory"


def load_hosts(
    inventory: str, limit: Sequence[str] = (), data: Mapping[str, Any] | None = None
) -> Mapping[str, Host]:
    """The hosts of an inventory (those of `limit` where given); contacts nobody.

    Raises RunbookError (usage) when the inventory is unknown, empty or malformed.
    """
    from runbooks.engine.adapter.hosts import model_hosts

    hosts = model_hosts(_open(inventory, data or {}).inventory)
    if not limit:
        return hosts
    chosen = select_hosts(hosts, limit)
    return {name: host for name, host in hosts.items() if name in chosen}


def make_fleet(
    inventory: str, limit: Sequence[str] = (), data: Mapping[str, Any] | None = None
) -> PyinfraFleet:
    """The fleet of an inventory, in pyinfra's API mode; connects to nobody yet.

    The front door has called `runtime.patch` before anything else, or uses the fleet from the
    main thread alone.
    """
    from runbooks.engine.adapter.fleet import PyinfraFleet

    state = _open(inventory, data or {})
    fleet = PyinfraFleet(state)
    if limit:
        chosen = select_hosts(fleet.hosts, limit)
        state.limit_hosts = [host for host in state.inventory if fleet.name_of(host) in chosen]
    runtime.quiet()
    return fleet


def select_hosts(
    hosts: Mapping[str, Host], limit: Sequence[str], *, where: str = "--limit"
) -> set[str]:
    """The hosts that names, groups or patterns choose; RunbookError for one that matches none."""
    groups = {group for host in hosts.values() for group in host.groups}
    chosen: set[str] = set()
    for pattern in limit:
        matched = {
            name for name, host in hosts.items() if pattern in host.groups or fnmatch(name, pattern)
        }
        if not matched:
            raise RunbookError.usage(
                f"'{pattern}' is no host and no group of the inventory",
                where=where,
                hint=did_you_mean(pattern, {*hosts, *groups}),
            )
        chosen |= matched
    return chosen


def locate(word: str, folder: Path) -> Path | None:
    """The file that an inventory word means, or None for a list of hosts.

    A folder means its `hosts.py`; a bare name may be a file of `inventory/` by its stem.
    Raises RunbookError for a path that is not there.
    """
    if not word:
        raise RunbookError.usage("no inventory is named", hint="the fleet is 'inventory'")
    path = folder / word
    if path.is_dir():
        file = path / "hosts.py"
        if file.exists():
            return file
        others = sorted(str(Path(word) / found.name) for found in path.glob("*.py"))
        raise RunbookError.usage(
            f"the folder '{word}' has no hosts.py", hint=did_you_mean(word, others)
        )
    if path.exists():
        return path
    if "," in word or "@" in word:
        return None
    by_stem = _stems(folder)
    if word in by_stem:
        return by_stem[word]
    if "/" in word or word.endswith(".py"):
        known = _known_words(folder, by_stem)
        raise RunbookError.usage(f"no inventory '{word}'", hint=did_you_mean(word, known))
    return None


def _stems(folder: Path) -> dict[str, Path]:
    files = (folder / FOLDER).glob("*.py")
    return {file.stem: file for file in sorted(files) if not file.name.startswith("_")}


def _known_words(folder: Path, stems: Mapping[str, Path]) -> set[str]:
    """What can stand for an inventory here."""
    words = {str(file.relative_to(folder)) for file in stems.values()} | set(stems) - {"hosts"}
    return words | {found.parent.name for found in folder.glob("*/hosts.py")}


def read_inventory(
    word: str,
    data: Mapping[str, Any],
    folder: Path,
    group_data: Iterable[str] = (),
) -> Any:
    """The pyinfra inventory of a word; pyinfra's state must be the context's already.

    Raises RunbookError (usage); never returns an empty inventory.
    """
    with runtime.without_patching():
        from pyinfra_cli.exceptions import UnexpectedExternalError
        from pyinfra_cli.inventory import make_inventory_from_files

    file = locate(word, folder)
    if file is None:
        _refuse_unknown(word, data, folder)
    name = str(file) if file is not None else word
    _forget(file)
    try:
        inventory = make_inventory_from_files(name, dict(data), str(folder), list(group_data))
    except UnexpectedExternalError as error:
        fault = error.exception
        raise RunbookError.usage(
            f"the inventory cannot be read: {type(fault).__name__}: {fault}",
            where=str(error.filename),
        ) from fault
    except (Exception, SystemExit) as error:
        # An inventory is Python, and may fail in any way.
        raise RunbookError.usage(
            f"the inventory cannot be read: {type(error).__name__}: {error}", where=name
        ) from error
    if not len(inventory):
        raise RunbookError.usage(
            f"the inventory '{word}' has no hosts",
            where=name,
            hint="a group is a list of host names at the file's top level",
        )
    inventory.source = name
    return inventory


def _forget(file: Path | None) -> None:
    """pyinfra keeps the code of a file by its name; a changed file must not read as before."""
    from pyinfra_cli.util import PYTHON_CODES

    if file is not None:
        for name in [name for name in PYTHON_CODES if name.startswith(str(file.parent))]:
            del PYTHON_CODES[name]


def _refuse_unknown(word: str, data: Mapping[str, Any], folder: Path) -> None:
    """Raise unless the word is a list of hosts, or a host that ssh or DNS knows."""
    if "," in word or "@" in word or "ssh_hostname" in data:
        return
    from pyinfra_cli.inventory import _get_ssh_alias, _resolves_to_host

    known = _known_words(folder, _stems(folder))
    # A misspelling first: some DNS servers resolve every name.
    meant = nearest(word, known)
    if _get_ssh_alias(word) or (meant is None and _resolves_to_host(word)):
        return
    raise RunbookError.usage(
        f"no inventory '{word}': no file, no folder, and no host that ssh knows",
        hint=did_you_mean(word, known)
        or f"run it in the project's folder (this is {folder}), or give --inventory",
    )


def _open(word: str, data: Mapping[str, Any]) -> Any:
    """A pyinfra state with the inventory, in API mode."""
    from pyinfra.api.config import Config
    from pyinfra.api.state import State
    from pyinfra.context import ctx_state

    folder = Path.cwd()
    # As pyinfra's CLI does, so that an inventory may import from the project.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    state = State()
    state.cwd = str(folder)
    context: Any = ctx_state
    context.set(state)
    make_config: Any = Config
    state.init(read_inventory(word, data, folder), make_config())
    return state
