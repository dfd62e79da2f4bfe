"""Secrets do not leave: what three secrets go through, and every place where they must not be.

One world is run once, by both front doors and in every manner of speaking; then each sink is
searched for each secret in each of six encodings, wrapped or not. The one exception is a job's
own log, on its own host: what a program prints there is the program's.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runbooks.secret_world import (
    COMMANDS,
    FORMS,
    MASK,
    SECRETS,
    Ran,
    leaks,
    text_of,
)
from tests.runbooks.worlds import World


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    world = World(tmp_path_factory.mktemp("secrets"))
    yield Ran(world)
    world.end()


# The exit code of each command, and words that show that it went through what it should.


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SECRETS)
def test_the_search_finds_what_is_not_masked(name: str, form: str) -> None:
    """A control: zero occurrences mean something."""
    written = FORMS[form](SECRETS[name].encode())
    assert any(found.startswith(f"{name} as ") for found in leaks(f"said: {written} .")), written
    assert leaks(f"said: {MASK} .") == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_no_secret(ran: Ran, name: str) -> None:
    said = ran.said[name]
    code, words = COMMANDS[name]
    assert said.code == code, said.text
    for word in words:
        assert word in said.text, said.text
    assert leaks(said.text) == []


def test_every_command_was_searched(ran: Ran) -> None:
    assert ran.said.keys() == COMMANDS.keys()


def test_the_run_went_through_everything(ran: Ran) -> None:
    """What the searches rest on: each step ended as it should, in every run."""
    for journal in ran.world.journals():
        ended = {
            record["step"]: record["result"] for record in journal if record["event"] == "outcome"
        }
        assert ended["fails"] == ended["job-fails"] == "failed" and ended["raises"] == "bug"
        for step in ("say", "deliver", "render", "hide", "work", "read", "serve", "delegate"):
            assert ended[step] == "ran", (step, ended)
        assert (ended["mistaken"], ended["wrong"]) == ("unknown", "blocked")
        said = [record["stdout"] for record in journal if record["event"] == "command"]
        assert f"releasing {MASK}\n" in said
    # The programs did get the secrets themselves.
    conf = (ran.world.data / "conf").read_text()
    assert all(secret in conf for secret in SECRETS.values())


def test_the_controllers_files_hold_no_secret(ran: Ran) -> None:
    """Journals, the index, the report, the saved plan."""
    folder = ran.world.folder
    journals = list(ran.world.runs.glob("*/journal.jsonl"))
    assert len(journals) == len([name for name, (code, _) in COMMANDS.items() if code == 1])
    masked = [*journals, folder / "plan.json", folder / "report.html"]
    for file in masked:
        assert MASK in text_of(file), file
    others = [file for file in ran.world.runs.rglob("*") if file.is_file() and file not in masked]
    assert ran.world.runs / "index.sqlite" in others
    for file in [*masked, *others]:
        assert (file, leaks(text_of(file))) == (file, [])


def state_files(ran: Ran) -> list[Path]:
    return [path for path in ran.world.state.rglob("*") if not path.is_symlink() and path.is_file()]


def job_logs(ran: Ran) -> list[Path]:
    return [path for path in state_files(ran) if path.name == "log" and "jobs" in path.parts]


def test_the_hosts_state_holds_no_secret(ran: Ran) -> None:
    """Copies of journals, checkpoints, jobs; but for the log that a job writes itself."""
    files = state_files(ran)
    copies = [path for path in files if path.name == "journal.jsonl"]
    checkpoints = [path for path in files if "checkpoints" in path.parts]
    metas = [path for path in files if path.name == "meta.json"]
    assert copies and checkpoints and metas
    assert all(MASK in text_of(path) for path in copies)
    assert any(MASK in text_of(path) for path in checkpoints)
    for path in set(files) - set(job_logs(ran)):
        assert (path, leaks(text_of(path))) == (path, [])
    links = [str(path.readlink()) for path in ran.world.state.rglob("*") if path.is_symlink()]
    assert links and leaks("\n".join(links)) == []


def test_a_jobs_own_log_is_its_own_and_nobody_elses(ran: Ran) -> None:
    """The one exception, named: what a program prints stays on its host, for its user alone."""
    logs = job_logs(ran)
    assert logs
    for log in logs:
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        assert leaks(text_of(log))


def test_pyinfras_debug_log_holds_no_secret(ran: Ran) -> None:
    text = text_of(ran.world.folder / "pyinfra-debug.log")
    assert "a fault beside the runbook" in text
    assert leaks(text) == []


def test_no_process_was_given_a_secret_as_an_argument(ran: Ran) -> None:
    """Sampled while everything ran; and the ancestors of the program that holds the secrets,
    read by itself, which no sampling can miss."""
    assert "say.py" in ran.cmdlines and "runbook" in ran.cmdlines
    assert leaks(ran.cmdlines) == []
    ancestors = text_of(ran.world.data / "cmdlines").replace("\0", " ")
    assert "say.py" in ancestors and "pyinfra" in ancestors
    assert leaks(ancestors) == []


def test_files_with_secrets_are_their_owners_alone(ran: Ran) -> None:
    """What the engine makes by itself: templates with their mode, journals, state."""
    world = ran.world
    kept = [world.data / "other", world.data / "hidden", world.folder / "plan.json"]
    assert leaks(text_of(kept[0])) and leaks(text_of(kept[1]))
    kept += [*world.runs.glob("*/journal.jsonl"), world.runs / "index.sqlite"]
    kept += [path for path in state_files(ran) if path.name == "journal.jsonl"]
    kept += [path for path in state_files(ran) if "checkpoints" in path.parts]
    modes = {str(path): oct(stat.S_IMODE(path.stat().st_mode)) for path in kept}
    assert set(modes.values()) == {"0o600"}, modes
    # No temporary file stayed behind.
    assert not [path for path in world.data.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("value", [b"tok\xff5f0c1e", b"tok\x005f0c1e"], ids=["bytes", "NUL"])
def test_a_secret_that_no_program_could_be_given_is_refused(tmp_path: Path, value: bytes) -> None:
    """Told before anything is done, and without a word of the secret."""
    world = World(tmp_path)
    (tmp_path / "secret").write_bytes(value)
    world.write(f"""\
runbook: odd
secrets: {{odd: {{command: [cat, {tmp_path}/secret]}}}}
steps:
  a:
    needs: []
    hosts: [local]
    do: {{command: {{argv: [touch, "data:x"], env: {{T: "${{{{ secrets.odd }}}}"}}}}}}
    ensures: [path: {{path: "data:x", is: file}}]
""")
    said = world.run().has(2, "secret 'odd'")
    assert "5f0c1e" not in said.text
    assert not (world.data / "x").exists() and not world.records("intent")
