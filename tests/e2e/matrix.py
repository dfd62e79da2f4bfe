"""What the crash and link matrices run: a runbook of six steps on three hosts, in a world whose
acts are counted.

A host's folder of a world is `WORLD/HOST`: `data/` is its root, `state/` the engine's, `acts` a
line `STEP begin` and a line `STEP end` for every act, written on the host. Commands and the job
are the program `act`, which counts itself; what the engine does by `mv` (copy) and `rm` (delete)
is counted by programs of these names before the real ones in the host's PATH. A file `hold-STEP`
makes the act of a step wait after its `begin` until the file is gone; `held-STEP` says that it
waits. Of the gate, its reading of free space waits, once the run has begun (a plan reads it too);
`start` is the moment at which the job's processes are about to be made.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbooks.engine.run.journal import read_journal
from tests.e2e.fleet import HOSTS, Fleet

__all__ = ["ACTS", "Unit", "World", "approvals_of", "finished", "runbook"]

# A step on a host.
Unit = tuple[str, str]

RUNBOOK = """\
runbook: matrix
about: A gate, a command, a copy, a job, a command that needs other hosts, a delete.
steps:
  room:
    needs: []
    hosts: [machines]
    requires: [disk_free: {root: data, ge: 1 MiB}]
  mark:
    needs: [room]
    hosts: [machines]
    do: {command: {argv: [act, mark, data:marked]}}
    ensures: [path: {path: data:marked, is: file}]
  file:
    needs: [mark]
    hosts: [alpha]
    do: {copy: {src: payload, dest: data:copied, mode: "0640"}}
    ensures: [path: {path: data:copied, source: payload, same: true}]
  work:
    needs: [mark]
    hosts: [beta]
    do: {job: {argv: [act, work, data:worked], env: {LASTS: "0.3"}}}
    ensures: [path: {path: data:worked, is: file}]
  join:
    needs: [file, work]
    hosts: [gamma]
    do: {command: {argv: [act, join, data:joined]}}
    ensures: [path: {path: data:joined, is: file}]
  purge:
    needs: [join]
    hosts: [alpha]
    requires: [tree: {path: data:old, one_filesystem: true}]
    do: {delete: {paths: [data:old]}}
    irreversible: {loses: old files, restore: none}
    ensures: [path: {path: data:old, is: absent}]
"""
# What acts, and where: each exactly once in a world.
ACTS: frozenset[Unit] = frozenset(
    {
        *(("mark", host) for host in HOSTS),
        ("file", "alpha"),
        ("work", "beta"),
        ("join", "gamma"),
        ("purge", "alpha"),
    }
)

_COUNT = r"""here=${EAGLE3_ROOT_DATA%/*}
begin() { printf '%s begin\n' "$1" >> "$here/acts"; hold "$1"; }
end() { printf '%s end\n' "$1" >> "$here/acts"; }
hold() {
  [ -e "$here/hold-$1" ] || return 0
  : > "$here/held-$1"
  while [ -e "$here/hold-$1" ]; do sleep 0.02; done
}
for last; do :; done
PATH=${PATH#*:}
"""
_PROGRAMS = {
    "act": r"""begin "$1"
sleep "${LASTS:-0}"
umask 022
printf '%s\n' "$1" > "$2"
echo "$1 done"
end "$1"
""",
    "mv": r"""[ "$last" = "$EAGLE3_ROOT_DATA/copied" ] || exec mv "$@"
begin file
mv "$@" || exit
end file
""",
    "rm": r"""[ "$last" = ./old ] || exec rm "$@"
begin purge
rm "$@" || exit
end purge
""",
    "df": r"""if ls "${here%/*}"/runs/*/journal.jsonl >/dev/null 2>&1; then hold room; fi
exec df "$@"
""",
    # The job inherits PATH, and finds `act` in it.
    "setsid": r"""real=$(command -v setsid)
PATH=${0%/*}:$PATH
[ "$1" != --fork ] || hold start
exec "$real" "$@"
""",
}


@dataclass(frozen=True)
class World:
    """A folder with everything of one run: hosts' folders, inventory, runbook, journals."""

    folder: Path

    @classmethod
    def make(cls, fleet: Fleet, folder: Path) -> World:
        """A world where nothing is done yet; its hosts' folders are on the hosts as well."""
        world = cls(folder)
        (folder / "bin").mkdir(parents=True)
        for name, text in _PROGRAMS.items():
            program = folder / "bin" / name
            program.write_text(f"#!/bin/sh\n{_COUNT}{text}")
            program.chmod(0o755)
        hosts = {}
        for host in HOSTS:
            data = folder / host / "data"
            data.mkdir(parents=True)
            root = {"path": str(data), "owner": host, "filesystem": host}
            hosts[host] = {
                "roots": {"data": root},
                "state_dir": str(folder / host / "state"),
                "path": [str(folder / "bin")],
            }
        (folder / "alpha" / "data" / "old").mkdir()
        (folder / "alpha" / "data" / "old" / "file").write_text("x" * 9000)
        (folder / "payload").write_text("what is copied\n" * 50)
        (folder / "hosts.py").write_text(fleet.inventory(hosts))
        (folder / "matrix.yaml").write_text(RUNBOOK)
        return world

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def journals(self) -> list[Path]:
        """The folders of the runs, oldest first."""
        folders = [path for path in self.runs.glob("*") if (path / "journal.jsonl").exists()]
        return sorted(folders, key=lambda path: (path / "journal.jsonl").stat().st_ctime_ns)

    def words(self, command: str, *more: str) -> list[str]:
        """Arguments of `runbook` for a command on this world."""
        return [command, str(self.folder / "matrix.yaml"), "-i", "hosts.py", *more]

    def environment(self) -> dict[str, str]:
        """What the controller finds in its environment, beside its own."""
        return {"RUNBOOK_RUNS": str(self.runs), "HOME": str(self.folder), "COLUMNS": "200"}

    def records(self) -> list[dict[str, Any]]:
        """What the newest run's journal says so far."""
        folders = self.journals
        return list(read_journal(folders[-1] / "journal.jsonl")) if folders else []

    def hold(self, what: str, host: str) -> None:
        (self.folder / host / f"hold-{what}").touch()

    def held(self, what: str, host: str) -> bool:
        return (self.folder / host / f"held-{what}").exists()

    def let_go(self, what: str, host: str) -> None:
        (self.folder / host / f"hold-{what}").unlink()

    def acts(self, word: str = "begin") -> Counter[Unit]:
        """How often each step began (or came to its `end`) on each host."""
        found: Counter[Unit] = Counter()
        for host in HOSTS:
            log = self.folder / host / "acts"
            lines = log.read_text().splitlines() if log.exists() else []
            found.update((step, host) for step, said in map(str.split, lines) if said == word)
        return found

    def state(self) -> dict[str, str]:
        """All that a run is to bring about: type, mode and content by path, and the job's runs.

        Times and inodes are left out; a temporary file that was left behind is not.
        """
        seen = {}
        for host in HOSTS:
            data = self.folder / host / "data"
            for path in [data, *sorted(data.rglob("*"))]:
                seen[str(path.relative_to(self.folder))] = _looks(path)
        jobs = self.folder / "beta" / "state" / "jobs" / "matrix" / "work"
        seen["job claims"] = " ".join(sorted(path.name for path in jobs.glob("*.claim")))
        for name in ("exit", "log"):
            path = jobs / "1" / name
            seen[f"job {name}"] = path.read_text() if path.exists() else "absent"
        return seen


def _looks(path: Path) -> str:
    status = path.lstat()
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return f"{stat.filemode(status.st_mode)} {content}"


def approvals_of(planned: str) -> list[str]:
    """`--approve` words for all that the plan, the first line of `--json`, asks approval for."""
    rows = json.loads(planned.splitlines()[0])["rows"]
    asked = [row for row in rows if "approval" in row]
    return [word for row in asked for word in ("--approve", f"{row['step']}={row['approval']}")]


def runbook(fleet: Fleet, world: World, *words: str) -> subprocess.Popen[str]:
    """Start `runbook WORDS` where it reaches the hosts; standard error goes to its output."""
    program = os.fspath(Path(sys.executable).parent / "runbook")
    return subprocess.Popen(
        fleet.controller([program, *words]),
        cwd=world.folder,
        env=os.environ | world.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(process: subprocess.Popen[str], seconds: float = 120) -> tuple[int, str]:
    """Exit code and output; ends the process when it takes longer than `seconds`."""
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        raise AssertionError(f"not ended after {seconds:g} s:\n{said}") from None
    assert "Traceback" not in said, said
    return process.returncode, said
