"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.fleet import Fleet, make_fleet, why_not
from tests.e2e.loopback import Server, loopback_sshd


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with loopback_sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(scope="session")
def namespaced() -> None:
    """Skips where no fleet can be made."""
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def fleet(namespaced: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three hosts, for a module whose tests leave them as they are."""
    with make_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet
