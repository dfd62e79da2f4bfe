"""Fifteen pains of other tools, each as an input whose outcome here is another one.

The numbers are public issues of the tools named; what they tell is retold in our words. Every
test goes through the command line, on this machine as the host.
"""

from __future__ import annotations

import os
import shutil
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


def test_01_check_mode_lies(world: World) -> None:
    """ansible/ansible#8753, #82048, saltstack/salt#45895: a dry run takes a step that it left
    out for done (or failed), and shows the wrong way on from there."""
    world.write("""\
runbook: two
steps:
  a:
    needs: []
    hosts: [local]
    do: {command: {argv: [touch, "data:x"]}}
    ensures: [path: {path: "data:x", is: file}]
  b:
    needs: [a]
    hosts: [local]
    requires: [path: {path: "data:x", is: file}]
""")
    before = world.snapshot()
    said = world.plan("--detailed-exitcode").has(10, "1 to run, 0 satisfied, 0 blocked")
    assert "will run" in said.row("a")
    assert "may run" in said.row("b") and "(waits for a)" in said.row("b")
    assert "blocked" not in said.row("b") and "ok" not in said.row("b").split()
    assert world.snapshot() == before


PATCH = """\
--- a/text
+++ b/text
@@ -1 +1 @@
-one
+two
"""
EVERYTHING = """\
runbook: everything
plugins: ["everything:register"]
steps:
  run: {needs: [], hosts: [local], do: {command: {argv: [touch, "data:ran"]}}, ensures: [path: {path: "data:ran", is: file}]}
  copy: {needs: [], hosts: [local], do: {copy: {src: README.md, dest: "data:new/copied", parents: true}}, ensures: [path: {path: "data:new/copied", is: file}]}
  render: {needs: [], hosts: [local], do: {template: {src: README.md, dest: "data:rendered"}}, ensures: [path: {path: "data:rendered", is: file}]}
  long: {needs: [], hosts: [local], do: {job: {argv: [touch, "data:long"]}}, ensures: [path: {path: "data:long", is: file}]}
  purge:
    needs: []
    hosts: [local]
    requires: [tree: {path: "data:old", one_filesystem: true}]
    do: {delete: {paths: ["data:old"]}}
    irreversible: {loses: everything, restore: none}
    ensures: [path: {path: "data:old", is: absent}]
  sly: {needs: [], hosts: [local], do: {sly: {}}, ensures: [path: {path: "data:sly", is: file}]}
"""
SLY = """\
from runbooks.engine.model.operation import Command, Operation, Preview


class Sly(Operation):
    name = "sly"
    about = "Changes the host while it is asked what it would change."

    def preview(self, args, context):
        yield Command(script="touch %s", label="sly")
        return Preview(summary="nothing at all")

    def act(self, args, context):
        yield Command(argv=("touch", "%s"))
        return "done"


def register(registry):
    registry.add_operation(Sly())
"""


def test_02_the_dry_run_misses_the_destructive_path(world: World) -> None:
    """snakemake/snakemake#3264: the flag that deletes outputs did not heed the dry-run flag."""
    world.write(EVERYTHING)
    sly = str(world.data / "sly")
    (world.folder / "everything.py").write_text(SLY % (sly, sly))
    (world.data / "old" / "deep").mkdir(parents=True)
    (world.data / "old" / "deep" / "f").write_text("precious")
    before = world.snapshot()
    said = world.plan()
    assert world.snapshot() == before
    assert "IRREVERSIBLE" in said.text and "Traceback" not in said.text, said.text
    dry = world.pyinfra("--dry")
    assert world.snapshot() == before
    assert "IRREVERSIBLE" in dry.text and "Traceback" not in dry.text, dry.text
    assert not world.runs.exists() or not world.records("intent")


def test_03_stale_facts_inside_one_run(world: World) -> None:
    """pyinfra-dev/pyinfra#387, #889, ansible/ansible#15664: what was read before a step is
    used after it."""
    (world.data / "t").mkdir()
    (world.data / "t" / "f").write_text("x")
    world.write("""\
runbook: fresh
steps:
  remove:
    needs: []
    hosts: [local]
    requires: [tree: {path: "data:t", one_filesystem: true}]
    do: {delete: {paths: ["data:t"]}}
    irreversible: {loses: t, restore: none}
    ensures: [path: {path: "data:t", is: absent}]
  look:
    needs: [remove]
    hosts: [local]
    requires: [path: {path: "data:t", is: absent}]
""")
    rows = world.plan_rows()
    assert rows["look"]["requires"][0]["truth"] == "false"
    world.run("--approve", approval(world, "remove")).has(0)
    (outcome,) = world.records("outcome", "remove")
    (facts,) = world.records("facts", "look")
    (check,) = facts["checks"]
    assert check["truth"] == "true"
    assert check["at"] >= outcome["at"] > rows["look"]["requires"][0]["at"]


def obey_permissions(command: list[str]) -> list[str]:
    """As root the command runs without the capabilities by which root ignores permissions."""
    if not ROOT:
        return command
    script = (
        "import ctypes, os, sys\n"
        "libc = ctypes.CDLL(None)\n"
        "assert not any(libc.prctl(24, one, 0, 0, 0) for one in (1, 2))\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    return [sys.executable, "-c", script, *command]


def test_04_unknown_read_as_absent(world: World) -> None:
    """pyinfra 3.10's test for a file exits with 0 and says nothing where the folder above may
    not be entered, which reads as "there is no file"."""
    world.write("""\
runbook: denied
steps:
  a:
    needs: []
    hosts: [local]
    do: {command: {argv: [touch, "data:acted"]}}
    ensures: [path: {path: "data:locked/f", is: absent}]
""")
    locked = world.data / "locked"
    locked.mkdir()
    (locked / "f").write_text("x")
    if ROOT:
        os.chown(locked, NOBODY, NOBODY)
    locked.chmod(0o700 if ROOT else 0)
    words = ["run", str(world.folder / "book.yaml"), "-i", str(world.inventory), "-y"]
    runbook = str(Path(sys.executable).parent / "runbook")
    try:
        done = subprocess.run(
            obey_permissions([runbook, *words]),
            cwd=PROJECT,
            env=world.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        locked.chmod(0o700)
    said = done.stdout + done.stderr
    assert done.returncode == 6, said
    assert "unknown" in said and "ermission denied" in said and "Traceback" not in said
    assert not (world.data / "acted").exists()
    assert not world.records("intent")
    assert [record["result"] for record in world.records("outcome")] == ["unknown"]


PARTIAL = """\
runbook: partial
steps:
  purge-old:
    needs: []
    hosts: [local]
    requires: [tree: {path: "data:hidden-v1", one_filesystem: true}]
    do: {delete: {paths: ["data:hidden-v1"]}}
    irreversible: {loses: v1, restore: none}
    ensures: [path: {path: "data:hidden-v1", is: absent}]
  extract:
    needs: [purge-old]
    hosts: [local]
    do: {command: {argv: [touch, "data:extracted"]}}
    ensures: [path: {path: "data:extracted", is: file}]
"""


def test_05_partial_targets_skip_the_facts_they_need(world: World) -> None:
    """ansible/ansible#86268, #12147, #23687: starting at a task, or limiting the hosts, leaves
    out the facts that the chosen tasks rest on."""
    world.write(PARTIAL)
    old = world.data / "hidden-v1"
    old.mkdir()
    reason = "purge-old is not satisfied: path data:hidden-v1: directory, want absent"
    world.run("--from", "extract").has(5, reason)
    assert old.is_dir() and not (world.data / "extracted").exists()
    assert not world.records("intent")
    # The other way round: what holds already is judged, and the rest goes on.
    old.rmdir()
    said = world.run("--from", "extract").has(0)
    assert "satisfied" in said.row("purge-old")
    assert (world.data / "extracted").exists()


SHARDS = """\
runbook: resumed
about: {about}
matrix: {{shard: [0, 1, 2]}}
steps:
  merge:
    needs: []
    hosts: [local]
    about: {about}
    do: {{command: {{argv: [sh, -c, "echo merge >> $EAGLE3_ROOT_DATA/acts; touch $EAGLE3_ROOT_DATA/merged"]}}}}
    ensures: [path: {{path: "data:merged", is: file}}]
  extract:
    needs: [merge]
    hosts: [local]
    do:
      command:
        argv: [sh, -c, "echo ${{{{ matrix.shard }}}} >> $EAGLE3_ROOT_DATA/acts; while ! [ -e $EAGLE3_ROOT_DATA/go ]; do sleep 0.05; done; touch $EAGLE3_ROOT_DATA/done-${{{{ matrix.shard }}}}"]
    ensures: [path: {{path: "data:done-${{{{ matrix.shard }}}}", is: file}}]
"""


def test_06_resume_reruns_everything_or_skips_what_never_ran(world: World) -> None:
    """snakemake#1694, nextflow-io/nextflow#1629, dagster-io/dagster#18965: a cosmetic edit runs
    everything again; dagster#20925, #19490: what never started is skipped."""
    world.write(SHARDS.format(about="before"))
    controller = world.start_run()
    until(lambda: len(world.acts()) >= 2, "the first shard")
    kill(controller)
    first, *started = world.acts()
    assert first == "merge" and len(started) < 3, "one shard at least never started"
    # What was started goes on by itself: its command belongs to the host until it ends.
    (world.data / "go").touch()
    until(lambda: all((world.data / f"done-{shard}").exists() for shard in started))
    missing = sorted({"0", "1", "2"} - set(started))
    world.write(SHARDS.format(about="after, in other words"))
    said = world.plan().has(0)
    assert "satisfied" in said.row("merge")
    for shard in missing:
        assert "will run" in said.row(f"extract[shard={shard}]")
    said = world.run().has(0)
    assert "satisfied" in said.row("merge")
    assert [record["step"] for record in world.records("command") if record["step"] == "merge"] == [
        "merge"
    ]
    assert world.acts() == ["merge", *started, *missing]
    # Done is done: once more changes nothing and says so.
    before = world.acts()
    world.run().has(0, "0 changed steps")
    assert world.acts() == before


RESTART = """\
runbook: half
steps:
  config:
    needs: []
    hosts: [local]
    do: {{template: {{src: server.env.j2, dest: "data:server.env"}}}}
    ensures: [path: {{path: "data:server.env", template: server.env.j2, same: true}}]
  restart:
    needs: [config]
    hosts: [local]
    do: {{command: {{argv: [sh, "data:restart.sh"], env: {{SERVER: {name}}}}}}}
    ensures: [process_env: {{pid_of: {name}, name: SERVER_MODE, eq: extract}}]
"""
# The server reads its mode when it starts. The first restart waits and is cut off.
RESTART_SCRIPT = """\
cd "$EAGLE3_ROOT_DATA" || exit 1
echo restart >> acts
if ! [ -e crashed ]; then echo $$ > .crashed; mv .crashed crashed; exec sleep 1000; fi
. ./server.env
kill "$(cat pid)"
SERVER_MODE=$SERVER_MODE; export SERVER_MODE
"./$SERVER" 1000 </dev/null >/dev/null 2>&1 &
echo $! > pid
"""


def test_07_a_half_applied_change_hidden_by_idempotence(world: World) -> None:
    """ansible#10498, hashicorp/terraform#17681: the file is written, the restart is lost, and
    the next run finds the file in place and reports success."""
    world.project = world.folder  # where the template lies
    name = f"srv{os.getpid()}"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", world.data / name)
    (world.data / "restart.sh").write_text(RESTART_SCRIPT)
    (world.folder / "server.env.j2").write_text("SERVER_MODE=extract\n")
    world.write(RESTART.format(name=name))
    (world.data / "server.env").write_text("SERVER_MODE=serve\n")
    server = subprocess.Popen(
        [str(world.data / name), "1000"], env=world.environment() | {"SERVER_MODE": "serve"}
    )
    (world.data / "pid").write_text(f"{server.pid}\n")
    controller = world.start_run()
    until((world.data / "crashed").exists, "the restart")
    kill(controller)
    os.kill(int((world.data / "crashed").read_text()), signal.SIGKILL)
    assert (world.data / "server.env").read_text() == "SERVER_MODE=extract\n"
    said = world.plan().has(0)
    assert "satisfied" in said.row("config")
    assert "will run" in said.row("restart") and "serve, want extract" in said.row("restart")
    said = world.run().has(0)
    server.wait(timeout=60)
    assert "satisfied" in said.row("config") and "ran" in said.row("restart")
    assert world.acts() == ["restart", "restart"]
    world.run().has(0, "0 changed steps")
    assert world.acts() == ["restart", "restart"]


TRUNCATED = """\
runbook: truncated
matrix: {shard: [1, 2, 3]}
steps:
  extract:
    needs: []
    hosts: [local]
    do: {command: {argv: [sh, -c, "echo ${{ matrix.shard }} >> $EAGLE3_ROOT_DATA/acts; echo 40 > $EAGLE3_ROOT_DATA/hidden/000${{ matrix.shard }}.done"]}}
    ensures: [row_count: {path: "data:hidden/000${{ matrix.shard }}.done", eq: 1}]
  whole:
    needs: [extract]
    hosts: [local]
    requires: [row_count: {path: "data:hidden", eq: 120}]
"""


def test_08_truncated_output_taken_for_finished(world: World) -> None:
    """pnnl/hundo#16, snakemake#1497: a file that is there counts as made, whole or not."""
    world.write(TRUNCATED)
    hidden = world.data / "hidden"
    hidden.mkdir()
    for shard in (1, 2, 3):
        (hidden / f"000{shard}.done").write_text("" if shard == 1 else "40\n")
    said = world.say(
        "runbook", "check", str(world.folder / "book.yaml"), "-i", str(world.inventory)
    )
    assert said.code in (5, 6) and "0001.done" in said.text, said.text
    said = world.plan().has(0)
    assert "will run" in said.row("extract[shard=1]")
    assert "satisfied" in said.row("extract[shard=2]")
    assert "satisfied" in said.row("extract[shard=3]")
    said = world.run().has(0)
    assert world.acts() == ["1"]
    assert "held" in said.row("whole")
