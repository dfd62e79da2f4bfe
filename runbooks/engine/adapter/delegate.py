"""pyinfra operations as actions: their generators, run here one command at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS, pop_global_arguments
from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import ctx_config, ctx_host, ctx_state

from runbooks.engine.adapter.batch import Task
from runbooks.engine.adapter.guard import FactFailed, Guard
from runbooks.engine.adapter.runtime import using
from runbooks.engine.model.operation import Delegate
from runbooks.engine.model.probe import Output, Unknown

__all__ = ["NO_CHANGES", "connector_arguments", "run_delegate", "would_change"]

# The standard output of an operation that found nothing to do.
NO_CHANGES = b"no changes"
Runner = Callable[[Any, Task, dict[str, Any]], Output]

_IN_OPERATION = ("in_op", "current_op_hash", "current_op_global_arguments")


def connector_arguments(state: Any, host: Any, given: dict[str, Any]) -> dict[str, Any]:
    """How commands run on this host (sudo, environment, …): from `given`, which loses them,
    then the host's data, then the configuration."""
    return _of_connector(pop_global_arguments(state, host, given)[0])


def _of_connector(arguments: Any) -> dict[str, Any]:
    return {key: arguments[key] for key in CONNECTOR_ARGUMENT_KEYS if key in arguments}


def run_delegate(state: Any, host: Any, guard: Guard, delegate: Delegate, run: Runner) -> Output:
    """Run the operation on one host; `run` runs one command and gives its output.

    Stops at the first command that fails. Raises Unreachable. A fact that cannot be read
    fails the operation, before it acts on what was not read.
    """
    outputs: list[Output] = []
    noops: list[str] = []
    try:
        with _operating(state, host, guard, delegate, noops) as (commands, arguments):
            for command in commands:
                outputs.append(_execute(state, host, command, arguments, run))
                if outputs[-1].exit != 0:
                    break
    except (FactFailed, PyinfraError) as error:
        outputs.append(Output(1, stderr=str(error) or type(error).__name__))
    except (OSError, TypeError, ValueError) as error:
        # A missing template, an argument that the operation does not take.
        outputs.append(Output(1, stderr=f"{type(error).__name__}: {error}"))
    if not outputs:
        return Output(0, NO_CHANGES + "".join(f": {noop}" for noop in noops[:1]).encode())
    return Output(
        outputs[-1].exit,
        b"".join(output.stdout for output in outputs),
        "".join(output.stderr for output in outputs),
    )


def would_change(state: Any, host: Any, guard: Guard, delegate: Delegate) -> bool:
    """Whether the operation would run a command now; runs none.

    Raises Unknown when a fact cannot be read, Unreachable, ReadOnlyError when the operation
    tries to act while it looks.
    """
    try:
        with (
            guard.previewing(),
            _operating(state, host, guard, delegate, []) as (commands, _),
        ):
            return next(iter(commands), None) is not None
    except (FactFailed, PyinfraError) as error:
        raise Unknown(str(error) or type(error).__name__) from error


@contextmanager
def _operating(
    state: Any, host: Any, guard: Guard, delegate: Delegate, noops: list[str]
) -> Iterator[tuple[Iterator[Any], dict[str, Any]]]:
    """pyinfra's surroundings of an operation, set up for one host and set back."""
    given = dict(delegate.arguments)
    inner = getattr(delegate.operation, "_inner", delegate.operation)
    config = state.config.copy()
    config.DIFF = False
    with ExitStack() as stack:
        stack.enter_context(_without_diffs(state))
        stack.enter_context(using(ctx_state, state))
        stack.enter_context(using(ctx_config, config))
        stack.enter_context(using(ctx_host, host))
        stack.enter_context(guard.strict())
        arguments, _ = pop_global_arguments(state, host, given)
        before = {name: getattr(host, name) for name in _IN_OPERATION}
        noop = host.noop
        host.in_op = True
        host.current_op_global_arguments = arguments
        host.noop = noops.append
        commands = inner(**given)
        try:
            yield commands, _of_connector(arguments)
        finally:
            commands.close()
            host.noop = noop
            for name, value in before.items():
                setattr(host, name, value)


@contextmanager
def _without_diffs(state: Any) -> Iterator[None]:
    """A diff would fetch files and print what is in them, secrets too. pyinfra asks the state's
    own configuration, which operations on other hosts share: the last one sets it back."""
    if not getattr(state, "eagle3_delegates", 0):
        state.eagle3_delegates = 0
        state.eagle3_diff = state.config.DIFF
        state.config.DIFF = False
    state.eagle3_delegates += 1
    try:
        yield
    finally:
        state.eagle3_delegates -= 1
        if not state.eagle3_delegates:
            state.config.DIFF = state.eagle3_diff


def _execute(state: Any, host: Any, command: Any, base: dict[str, Any], run: Runner) -> Output:
    """One command that the operation yielded."""
    if isinstance(command, str):
        command = StringCommand(command.strip())
    arguments = base | dict(command.connector_arguments)
    if isinstance(command, StringCommand):
        accepted = list(arguments.get("_success_exit_codes") or [0])
        task = _task(command.get_raw_value(), arguments)
        output = run(host, task, arguments)
        return Output(0, output.stdout, output.stderr) if output.exit in accepted else output
    # What runs beside our framing (a file transfer) is fenced by a command of its own.
    run(host, Task(argv=("true",), timeout=60), dict(base))
    if isinstance(command, FunctionCommand):
        # The function may call operations of its own.
        before, host.in_op = host.in_op, False
        try:
            done: object = command.execute(state, host, arguments)  # type: ignore[arg-type]
        finally:
            host.in_op = before
    else:
        done = command.execute(state, host, arguments)
    failed = done is False
    return Output(int(failed), stderr=f"{command!r} failed" if failed else "")


def _task(script: str, arguments: dict[str, Any]) -> Task:
    """The command for our own framing: exit status, any bytes, nothing of it in an argv."""
    stdin = arguments.pop("_stdin", None)
    if hasattr(stdin, "read"):
        stdin = stdin.read()
    if isinstance(stdin, (list, tuple)):
        stdin = "".join(line if line.endswith("\n") else f"{line}\n" for line in stdin)
    environment = arguments.pop("_env", None) or {}
    unmasked = {
        key: value.unmask() if hasattr(value, "unmask") else str(value)
        for key, value in environment.items()
    }
    return Task(
        script=script,
        env=unmasked,
        cwd=arguments.pop("_chdir", None),
        stdin=stdin.encode() if isinstance(stdin, str) else stdin,
        timeout=arguments.pop("_timeout", None),
        last=True,
        # An operation's arguments stand in its commands.
        hidden=True,
        shell=arguments.pop("_shell_executable", None) or "sh",
    )
