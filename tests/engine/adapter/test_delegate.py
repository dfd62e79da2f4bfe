"""pyinfra's own operations through the fleet."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import operation
from pyinfra.context import host as context_host
from pyinfra.operations import files, server

from runbooks.engine.adapter.fleet import PyinfraFleet
from runbooks.engine.fleet import ReadOnlyError
from runbooks.engine.model.operation import Delegate
from runbooks.engine.model.probe import Output, Unknown


def test_an_operation_changes_once(fleet: PyinfraFleet, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("one\n")
    delegate = Delegate(files.line, {"path": str(file), "line": "two"})
    assert fleet.would_change("local", delegate)
    assert file.read_text() == "one\n"
    assert fleet.perform("local", delegate) == Output(0)
    assert file.read_text() == "one\ntwo\n"
    assert not fleet.would_change("local", delegate)
    again = fleet.perform("local", delegate)
    assert again.exit == 0
    assert again.stdout.startswith(b"no changes")


def test_a_file_of_the_controller_is_put(fleet: PyinfraFleet, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"\0\xff")
    delegate = Delegate(
        files.put, {"src": str(source), "dest": str(tmp_path / "dest"), "mode": "600"}
    )
    assert fleet.would_change("local", delegate)
    assert not (tmp_path / "dest").exists()
    assert fleet.perform("local", delegate).exit == 0
    assert (tmp_path / "dest").read_bytes() == b"\0\xff"
    assert not fleet.would_change("local", delegate)


def test_status_output_and_errors_of_a_command(fleet: PyinfraFleet) -> None:
    commands = ["printf 'a\\377'; echo b >&2", "exit 7", "echo never"]
    output = fleet.perform("local", Delegate(server.shell, {"commands": commands}))
    assert output == Output(7, b"a\xff", "b\n")


def test_global_arguments_of_an_operation(fleet: PyinfraFleet, tmp_path: Path) -> None:
    arguments = {
        "commands": ['echo "$A"; pwd; exit 4'],
        "_env": {"A": "it's"},
        "_chdir": str(tmp_path),
        "_success_exit_codes": [4],
    }
    output = fleet.perform("local", Delegate(server.shell, arguments))
    assert output == Output(0, f"it's\n{tmp_path}\n".encode())


class Failing(FactBase[str]):
    def command(self) -> str:
        return "echo the reason >&2; exit 2"


class NeedsProgram(FactBase[str]):
    def requires_command(self) -> str:
        return "no-such-program"

    def command(self) -> str:
        return "no-such-program"


class Latin(FactBase[list[str]]):
    def command(self) -> str:
        return "printf 'caf\\351\\nlast\\n'"

    def process(self, output: list[str]) -> list[str]:
        return output


@operation()
def reads(fact: type[FactBase]):  # type: ignore[no-untyped-def]
    if not context_host.get_fact(fact):
        yield "echo acted"


@operation()
def sneaks(path: str):  # type: ignore[no-untyped-def]
    context_host.run_shell_command(StringCommand("touch", path))
    yield "true"


@operation()
def calls(path: str):  # type: ignore[no-untyped-def]
    yield FunctionCommand(Path.touch, [Path(path)], {})


@pytest.mark.parametrize(
    ("fact", "reason"), [(Failing, "the reason"), (NeedsProgram, "no-such-program")]
)
def test_a_fact_that_cannot_be_read_is_no_answer(
    fleet: PyinfraFleet, fact: type[FactBase], reason: str
) -> None:
    delegate = Delegate(reads, {"fact": fact})
    output = fleet.perform("local", delegate)
    assert output.exit == 1
    assert reason in output.stderr
    assert b"acted" not in output.stdout
    with pytest.raises(Unknown, match=reason):
        fleet.would_change("local", delegate)
    assert not fleet.state.failed_hosts


def test_bytes_that_are_not_utf8_lose_no_line_of_a_fact(fleet: PyinfraFleet) -> None:
    (host,) = fleet.state.inventory
    assert host.get_fact(Latin) == ["caf\N{REPLACEMENT CHARACTER}", "last"]


def test_a_preview_stops_an_operation_that_acts_while_it_looks(
    fleet: PyinfraFleet, tmp_path: Path
) -> None:
    delegate = Delegate(sneaks, {"path": str(tmp_path / "mark")})
    with pytest.raises(ReadOnlyError):
        fleet.would_change("local", delegate)
    assert not (tmp_path / "mark").exists()
    assert fleet.perform("local", delegate).exit == 0
    assert (tmp_path / "mark").exists()


def test_functions_of_operations_run(fleet: PyinfraFleet, tmp_path: Path) -> None:
    delegate = Delegate(calls, {"path": str(tmp_path / "mark")})
    assert fleet.would_change("local", delegate)
    assert not (tmp_path / "mark").exists()
    assert fleet.perform("local", delegate).exit == 0
    assert (tmp_path / "mark").exists()


def test_mistakes_are_failures_with_words(fleet: PyinfraFleet, tmp_path: Path) -> None:
    wrong = fleet.perform("local", Delegate(files.line, {"pth": "x"}))
    assert wrong.exit == 1
    assert "pth" in wrong.stderr
    missing = {"src": str(tmp_path / "nothing"), "dest": "/tmp/x"}
    absent = fleet.perform("local", Delegate(files.put, missing))
    assert absent.exit == 1
    assert "nothing" in absent.stderr


def test_the_host_is_left_as_it_was(fleet: PyinfraFleet) -> None:
    (host,) = fleet.state.inventory
    fleet.perform("local", Delegate(server.shell, {"commands": ["true"]}))
    assert host.in_op is False
    assert host.current_op_global_arguments is None
    assert host.noop("x") is None
