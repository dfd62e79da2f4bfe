"""Fifteen pains of other tools, from the ninth on: jobs, saved plans, guards, types, secrets.

The numbers are public issues of the tools named; what they tell is retold in our words. Every
test goes through the command line, on this machine as the host.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runbooks.worlds import PROJECT, World, approval, kill, until

ROOT = os.geteuid() == 0
NOBODY = 65534


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.end()


JOB = """\
runbook: long
steps:
  work:
    needs: []
    hosts: [local]
    do:
      job:
        argv: [sh, -c, "echo work >> $EAGLE3_ROOT_DATA/acts; while ! [ -e $EAGLE3_ROOT_DATA/go ]; do sleep 0.05; done; touch $EAGLE3_ROOT_DATA/worked"]
        resumable: true
    ensures: [path: {path: "data:worked", is: file}]
"""


def job_exit(world: World) -> str:
    """The exit-code file of the one job."""
    files = [file for file in world.state.rglob("exit") if "work" in str(file)]
    return files[0].read_text().strip() if files else ""


def starts(world: World) -> list[dict]:
    return [record for record in world.records("command") if "job start" in record["command"]]


@pytest.mark.parametrize("found", ["living", "finished"])
def test_09_the_controller_dies_and_work_is_lost_or_doubled(world: World, found: str) -> None:
    """ansible#34875, rundeck/rundeck#564, nextflow#1448, nextflow#937: who comes back finds no
    trace of what still runs, or starts it once more."""
    world.write(JOB)
    controller = world.start_run()
    until(lambda: len(starts(world)) == 1 and world.acts() == ["work"], "the job")
    kill(controller)
    if found == "finished":
        (world.data / "go").touch()
        until(lambda: job_exit(world) == "0", "the job's exit")
        world.run().has(0, "0 changed steps")
    else:
        second = world.start_run()
        until(
            lambda: any("attached" in record["text"] for record in world.records("note")),
            "the second run to attach",
        )
        (world.data / "go").touch()
        out, err = second.communicate()
        assert second.returncode == 0, out + err
        assert "its job lives; attached" in out, out + err
    assert world.acts() == ["work"]
    assert len(starts(world)) == 1
    world.run().has(0, "0 changed steps")
    assert world.acts() == ["work"]


def forge(world: World, **parts: str) -> None:
    """Change the claim of the one job: program, its start, boot id, supervisor, its start."""
    (claim,) = world.state.rglob("*.claim")
    names = ("program", "born", "boot", "supervisor", "supervised")
    *old, digest, starter = str(claim.readlink()).split(":")
    new = [parts.get(name, value) for name, value in zip(names, old, strict=True)]
    claim.unlink()
    claim.symlink_to(":".join([*new, digest, starter]))


def test_10_a_status_that_is_not_the_truth(world: World) -> None:
    """ansible#25637, dagucloud/dagu#2298, PrefectHQ/prefect#7239, jhuckaby/Cronicle#789: what
    was killed stays "running", and a number that another process has now passes for the job."""
    world.write(JOB)
    controller = world.start_run()
    until(lambda: len(starts(world)) == 1 and world.acts() == ["work"], "the job")
    kill(controller)
    status = ("runbook", "status", "-i", str(world.inventory))
    world.say(*status).has(0, "long/work  running")
    (claim,) = world.state.rglob("*.claim")
    program, _, _, supervisor, *_ = str(claim.readlink()).split(":")
    for pid in (supervisor, program):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    until(lambda: "running" not in world.say(*status).has(0).text, "the job's end")
    # A process of today has the numbers now.
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        try:
            forge(world, program=str(stranger.pid), supervisor=str(stranger.pid))
            said = world.say(*status).has(0, "long/work  lost")
            assert "running" not in said.text
            forge(world, boot="00000000-0000-0000-0000-000000000000")
            said = world.say(*status).has(0, "lost (the host rebooted)")
            assert "running" not in said.text
            said = world.plan().has(0)
            assert "will run" in said.row("work") and "continues" in said.text
            assert "the host rebooted" in said.text
        finally:
            stranger.kill()
    # It is resumable: a run starts it anew, and it is the truth from then on.
    (world.data / "go").touch()
    world.run().has(0, "the job ended with exit 0")
    assert world.acts() == ["work", "work"]


def test_11_a_saved_plan_applied_to_a_moved_world(world: World) -> None:
    """hashicorp/terraform#24078, #8790, #28693: a saved plan is applied twice, or to a world
    that moved, or its refusal leaves the lock."""
    world.write("""\
runbook: saved
steps:
  purge:
    needs: []
    hosts: [local]
    requires: [tree: {path: "data:hidden-v1", one_filesystem: true}]
    do: {delete: {paths: ["data:hidden-v1"]}}
    irreversible: {loses: v1, restore: none}
    ensures: [path: {path: "data:hidden-v1", is: absent}]
""")
    old = world.data / "hidden-v1"
    old.mkdir()
    (old / "f").write_text("x")
    status = old.stat()
    plan = str(world.folder / "plan.json")
    world.plan("-o", plan).has(0)
    given = approval(world, "purge")
    (old / "new").touch()

    def apply(*words: str):
        saved = ("runbook", "run", "--plan", plan, "-i", str(world.inventory), "-y")
        return world.say(*saved, "--approve", given, *words)

    apply().has(7, "tree data:hidden-v1", "files 1 → 2")
    assert old.is_dir() and not world.records("intent")
    said = world.say("runbook", "status", "-i", str(world.inventory)).has(0)
    assert "locked by" not in said.text
    # As it was: the plan fits again, once.
    (old / "new").unlink()
    os.utime(old, ns=(status.st_atime_ns, status.st_mtime_ns))
    apply().has(0)
    assert not old.exists()
    old.mkdir()
    (old / "f").write_text("x")
    said = apply().has(7)
    assert "used" in said.text and old.is_dir()


GUARDED = """\
runbook: guarded
vars: {{sub: ""}}
steps:
  purge:
    needs: []
    hosts: [local]
    requires: [path: {{path: "data:keep", is: directory}}]
    do: {{delete: {{paths: ["{path}"]}}}}
    irreversible: {{loses: it, restore: none}}
    ensures: [path: {{path: "data:gone", is: file}}]
"""


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("data:${{{{ vars.sub }}}}", "is the root itself"),
        ("data:../x", "data:../x"),
        ("data:keep/../..", "data:keep/../.."),
    ],
)
def test_12_the_guard_is_not_written_by_the_author(world: World, path: str, words: str) -> None:
    """hashicorp/terraform#17599, ansible#14706: the guard is a line that is deleted with the
    block; an empty variable makes the parent the target."""
    (world.data / "keep").mkdir()
    before = world.snapshot()
    world.write(GUARDED.format(path=path.replace("{{{{", "{{").replace("}}}}", "}}")))
    said = world.validate().has(3, words)
    assert "book.yaml:" in said.text
    world.run().has(3, words)
    assert world.snapshot() == before


def test_12_the_guard_is_the_operations_own(world: World) -> None:
    """hashicorp/terraform#17599: without `irreversible` a delete is no valid step."""
    text = GUARDED.format(path="data:keep")
    lines = [line for line in text.splitlines() if "irreversible:" not in line]
    (world.data / "keep").mkdir()
    world.write("\n".join(lines) + "\n")
    number = next(at for at, line in enumerate(lines, 1) if "delete:" in line)
    world.validate().has(3, f"book.yaml:{number}:", "irreversible")
    assert (world.data / "keep").is_dir()


def test_12_the_guard_follows_links_out(world: World) -> None:
    """trapexit/mergerfs#896: what is deleted lies elsewhere than it seems."""
    outside = world.folder / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "f").write_text("precious")
    (world.data / "keep").mkdir()
    (world.data / "link").symlink_to(outside)
    world.write(GUARDED.format(path="data:link/deep"))
    said = world.run("--approve", "purge=0/000000000000")
    assert said.code not in (0, 1), said.text
    assert "Traceback" not in said.text
    assert (outside / "deep" / "f").read_text() == "precious"
    assert not world.records("intent")


def test_12_the_guard_sees_mounts(world: World) -> None:
    """trapexit/mergerfs#896: a delete went through a bind mount. Here it is refused."""
    target = world.data / "tree"
    (target / "mounted").mkdir(parents=True)
    (world.data / "keep").mkdir()
    outside = world.folder / "outside"
    outside.mkdir()
    (outside / "f").write_text("precious")
    world.write(GUARDED.format(path="data:tree"))
    space = ["unshare", "--mount", "--propagation", "private"]
    if not ROOT:
        space = ["unshare", "--user", "--map-root-user", "--mount"]
    runbook = str(Path(sys.executable).parent / "runbook")
    script = 'mount --bind "$1" "$2" || exit 99; shift 2; exec "$@"'
    mount = ["sh", "-c", script, "sh", str(outside), str(target / "mounted")]
    words = [str(world.folder / "book.yaml"), "-i", str(world.inventory), "-y"]
    done = subprocess.run(
        [*space, *mount, runbook, "run", *words],
        cwd=PROJECT,
        env=world.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode not in (0, 1, 99), said
    assert "mount" in said and "Traceback" not in said
    assert (outside / "f").read_text() == "precious" and target.is_dir()
    assert not world.records("intent")


def test_13_strings_that_are_true(world: World) -> None:
    """ansible#34591, actions/runner#1173, #2629: the text "false" is true, and so is a text
    around an expression."""
    world.write("""\
runbook: typed
vars: {rows: 3}
steps:
  a:
    needs: []
    hosts: [local]
    requires:
      - git: {repo: "data:repo", clean: "false"}
      - row_count: {path: "data:rows", eq: "${{ vars.rows }}"}
""")
    world.validate().has(3, "book.yaml:8:", "'false'", "boolean", "write false")
    fixed = (world.folder / "book.yaml").read_text().replace('"false"', "false")
    world.write(fixed)
    world.validate().has(0)
    said = world.plan("-v", "rows=false")
    said.has(2, "rows=false", "'false' is not a whole number")


def test_14_secrets_in_output_diffs_and_plans(world: World) -> None:
    """ansible#33912, #38214, hashicorp/terraform#27577, pyinfra#1148, #1896: arguments, loops,
    stored plans and labels show what was to stay secret. `test_secrets_stay.py` goes further."""
    world.env["TOKEN"] = "tok-5f0c1e77b2"
    world.write("""\
runbook: secret
secrets: {t: {env: TOKEN}}
steps:
  a:
    needs: []
    hosts: [local]
    do: {command: {argv: [curl, -H, "X: ${{ secrets.t }}"]}}
    ensures: [path: {path: "data:x", is: file}]
""")
    world.validate().has(3, "book.yaml:7:", "secret in argv")
    world.write("""\
runbook: secret
secrets: {t: {env: TOKEN}}
steps:
  a:
    needs: []
    hosts: [local]
    do: {command: {argv: [sh, -c, "echo said $T; echo also $T >&2; exit 3"], env: {T: "${{ secrets.t }}"}}}
    ensures: [path: {path: "data:x", is: file}]
""")
    said = world.run().has(6, "exit 3", "[secret]")
    assert "tok-5f0c1e77b2" not in said.text
    (command,) = world.records("command")
    assert command["stdout"] == "said [secret]\n" and command["stderr"] == "also [secret]\n"


FAULTS = [
    ("timeout: 72:00:00", ":6:14:", ("'72:00:00' is not a duration", "72h")),
    ("needs: []", ":6:5:", ("'needs' stands twice", "first on line 4")),
    ("irreversable: {loses: x, restore: none}", ":6:5:", ("irreversible",)),
]


@pytest.mark.parametrize(("line", "place", "words"), FAULTS)
def test_15_errors_have_a_place(
    world: World, line: str, place: str, words: tuple[str, ...]
) -> None:
    """ansible#71978, python-jsonschema/jsonschema#1002, redhat-developer/vscode-yaml#614,
    ansible#16903: an error without its line, or none for a key that is there twice."""
    world.write(f"""\
runbook: placed
steps:
  a:
    needs: []
    hosts: [local]
    {line}
    do: {{command: {{argv: [touch, "data:x"]}}}}
    ensures: [path: {{path: "data:x", is: file}}]
""")
    world.validate().has(3, f"book.yaml{place}", *words)
    world.run().has(3, f"book.yaml{place}")
    assert not (world.data / "x").exists() and not world.state.exists()


def test_15_yaml_has_no_surprises(world: World) -> None:
    """ansible#5409, docker/compose#103, yaml/pyyaml#376, actions/setup-python#662,
    ansible#66137: octal, base 60, `on`, 3.10 and merge keys."""
    world.write("""\
runbook: yaml
steps:
  a:
    needs: []
    hosts: [local]
    requires:
      - path: {path: "data:f", mode: 0644}
      - git: {repo: "data:repo", commit: 0012345}
""")
    (world.data / "f").write_text("x")
    (world.data / "f").chmod(0o644)
    checks = world.plan_rows()["a"]["requires"]
    assert checks[0]["truth"] == "true" and checks[0]["wanted"] == "0644"
    assert "0012345" in checks[1]["wanted"] and "5349" not in checks[1]["wanted"]
    for key, value, words in (
        ("on", "[local]", ("hosts",)),
        ("<<", "{hosts: [local]}", ("merge",)),
    ):
        world.write(f"""\
runbook: yaml
steps:
  a:
    needs: []
    {key}: {value}
    requires: [path: {{path: "data:f", is: file}}]
""")
        world.validate().has(3, "book.yaml:5:", *words)
    world.write("""\
runbook: yaml
steps:
  a:
    needs: []
    hosts: [local]
    do: {package: {name: x, version: 3.10}}
    ensures: [package: {name: x, version: "3.10"}]
""")
    said = world.validate().has(3, "book.yaml:6:", "quote")
    assert "3.1'" not in said.text
