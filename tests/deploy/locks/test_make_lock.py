"""Lock files: public versions, sorted, without the project itself, for every environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.locks import make_lock

LOCKS = Path(make_lock.__file__).parent


def report(*items: tuple[str, str]) -> dict:
    return {"install": [{"metadata": {"name": name, "version": v}} for name, v in items]}


def test_local_labels_and_ourselves_are_left_out() -> None:
    lines = make_lock.lock_lines(
        report(("torch", "2.13.0+cpu"), ("Eagle3_Runbooks", "0.1.0"), ("PyYAML", "6.0.4"))
    )
    assert lines == ["pyyaml==6.0.4", "torch==2.13.0"]


def pins(name: str) -> dict[str, str]:
    lines = (LOCKS / f"{name}.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


@pytest.mark.parametrize(
    ("environment", "package", "version"),
    [
        ("embedded", "torch", "2.13.0"),
        ("sglang", "torch", "2.11.0"),
        ("sglang", "transformers", "5.12.1"),
        ("sglang", "sglang", "0.5.17"),
    ],
)
def test_the_versions_that_the_design_names(environment: str, package: str, version: str) -> None:
    assert pins(environment)[package] == version


def test_a_controller_needs_no_torch() -> None:
    assert "torch" not in pins("controller")
    assert "pyinfra" in pins("controller")


def test_environments_agree_where_they_share_a_package() -> None:
    controller, embedded = pins("controller"), pins("embedded")
    assert {name: embedded[name] for name in controller} == controller
