"""Services, processes, sources and packages, for real; and with the usual tools missing."""

from __future__ import annotations

import hashlib
import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import distribution
from deploy.facts.types import CommitPrefix
from runbooks.engine.model.diagnostic import RunbookError
from runbooks.engine.model.probe import Unknown
from runbooks.engine.model.values import ABSENT
from tests.deploy.facts.this_machine import ROOT, ThisMachine, needs_root, only


class Answers(http.server.BaseHTTPRequestHandler):
    starting = 0

    def do_GET(self) -> None:
        if self.path == "/slow":
            time.sleep(5)
        if self.path == "/starting" and Answers.starting > 0:
            Answers.starting -= 1
            status = 503
        else:
            status = {"/bad": 503, "/moved": 302, "/none": 404}.get(self.path.split("?")[0], 200)
        self.send_response(status)
        self.send_header("Location", "/ok")
        self.end_headers()
        self.wfile.write(b'{"a": 1}\n\0unknown\tnothing\n')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def needs_python() -> None:
    if not os.access(sys.executable, os.X_OK):
        pytest.skip(f"LOUD: {sys.executable} may not be run by this user")


@pytest.fixture(params=["curl", "python3", "wget", "busybox-wget"])
def client(request: pytest.FixtureRequest, machine: ThisMachine) -> ThisMachine:
    """A machine with one HTTP client only."""
    if machine.shell[0] == "busybox":
        pytest.skip("busybox finds its own wget before PATH: the case busybox-wget")
    folder = machine.folder / "bin"
    name = request.param
    if name == "busybox-wget":
        machine.path = only(folder, "busybox", "timeout")
        (folder / "wget").symlink_to("busybox")
        return machine
    if name == "python3":
        needs_python()
        machine.path = only(folder)
        (folder / "python3").symlink_to(sys.executable)
        return machine
    machine.path = only(folder, name)
    return machine


def test_http_status(client: ThisMachine, address: str) -> None:
    for path, status in (("/x?a=1&b=[2]", 200), ("/bad", 503), ("/none", 404)):
        assert client.read("http", url=address + path)["status"] == status, path
    assert client.read("http", url=f"{address}/x")["body"].startswith('{"a": 1}\nunknown')


def test_http_redirects_are_not_followed(client: ThisMachine, address: str) -> None:
    assert client.read("http", url=f"{address}/moved")["status"] == 302


def test_http_refused_is_absent_and_no_name_is_unknown(client: ThisMachine) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert client.read("http", url=f"http://127.0.0.1:{port}/")["status"] is ABSENT
    with pytest.raises(Unknown):
        client.read("http", url="http://no-such-name.invalid/")


def test_http_slow_is_unknown(client: ThisMachine, address: str) -> None:
    with pytest.raises(Unknown, match="timed out"):
        client.read("http", url=f"{address}/slow", timeout="1s")


def test_http_without_a_client_is_unknown(folder: Path, address: str) -> None:
    machine = ThisMachine(folder, path=only(folder / "bin"))
    with pytest.raises(Unknown, match="no curl"):
        machine.read("http", url=address)


def test_http_waits_until_it_answers(folder: Path, address: str) -> None:
    Answers.starting = 1
    machine = ThisMachine(folder)
    assert machine.read("http", url=f"{address}/starting", wait="20s")["status"] == 200


def test_a_server_that_is_not_sglang(machine: ThisMachine, address: str) -> None:
    port = int(address.rpartition(":")[2])
    with pytest.raises(Unknown, match="another program"):
        machine.read("sglang_server", port=port)


def test_processes_and_zombies(machine: ThisMachine) -> None:
    title = f"proc{os.getpid()}"
    program = machine.folder / title
    program.symlink_to(shutil.which("sleep") or "/bin/sleep")
    alive = subprocess.Popen([program, "60"], env={"MODE": "a\nb", "EMPTY": ""})
    dead = subprocess.Popen([program, "0"])
    try:
        deadline = time.monotonic() + 10
        while Path(f"/proc/{dead.pid}/stat").read_text().split()[2] != "Z":
            assert time.monotonic() < deadline
        fields = machine.read("process", name=title)
        assert (fields["count"], fields["zombies"]) == (1, 1)
        # The probe's own command line holds the pattern too, in its label.
        assert machine.read("process", pattern=f"{title} 60")["count"] == 1
        assert machine.read("process", pattern="no-such-process-anywhere")["count"] == 0
        for name, value in (("MODE", "a\nb"), ("EMPTY", ""), ("MOD", ABSENT)):
            assert machine.read("process_env", pid_of=title, name=name)["value"] == value
        assert machine.read("process_env", pid_of="nobody-at-all", name="X")["value"] is ABSENT
        if ROOT:
            machine.nobody = True
            with pytest.raises(Unknown, match="cannot be read"):
                machine.read("process_env", pid_of=title, name="MODE")
    finally:
        alive.kill()
        alive.wait()
        dead.wait()


def git(folder: Path, *words: str) -> str:
    name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(
        ["git", *name, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(machine: ThisMachine) -> Path:
    repo = machine.folder / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    (repo / "f").write_text("a\nb\nc\n")
    git(repo, "add", "f")
    git(repo, "commit", "-q", "-m", "x")
    return repo


def test_git(machine: ThisMachine, repository: Path) -> None:
    index = (repository / ".git/index").read_bytes()
    os.utime(repository / "f")  # a plain `git status` would refresh the index now
    fields = machine.read("git", repo="data:repo")
    assert fields["commit"] == git(repository, "rev-parse", "HEAD")
    assert (fields["branch"], fields["clean"], fields["remote"]) == ("main", True, ABSENT)
    assert (repository / ".git/index").read_bytes() == index
    (repository / "new").touch()
    assert machine.read("git", repo="data:repo")["clean"] is False
    git(repository, "checkout", "-q", "--detach")
    assert machine.read("git", repo="data:repo")["branch"] is ABSENT
    (repository / "sub").mkdir()
    assert machine.read("git", repo="data:repo/sub")["commit"] is ABSENT
    assert machine.read("git", repo="data:missing")["commit"] is ABSENT


@needs_root
def test_git_of_another_owner_is_unknown(machine: ThisMachine, repository: Path) -> None:
    machine.nobody = True
    with pytest.raises(Unknown, match="dubious ownership"):
        machine.read("git", repo="data:repo")


def test_git_missing(folder: Path) -> None:
    (folder / "repo/.git").mkdir(parents=True)
    machine = ThisMachine(folder, path=only(folder / "bin"))
    with pytest.raises(Unknown, match="git is not on the host"):
        machine.read("git", repo="data:repo")
    assert machine.read("git", repo="data:bin")["commit"] is ABSENT


def test_a_commit_is_compared_by_its_first_digits() -> None:
    whole = "3f2a9c1" + "0" * 33
    assert whole == CommitPrefix("3f2a9c1")
    assert whole != CommitPrefix("3f2a9c2")
    assert CommitPrefix("3f2a9c1") != "3f2a9c"


PATCH = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B'\"$x\n c\n"


@pytest.mark.parametrize("tool", ["git", "patch"])
def test_patch(machine: ThisMachine, tool: str) -> None:
    if machine.shell[0] == "busybox" and tool == "patch":
        pytest.skip("busybox finds its own patch before PATH")
    machine.path = only(machine.folder / "bin", tool)
    machine.project = machine.folder / "project"
    (machine.project / "patches").mkdir(parents=True)
    (machine.project / "patches/x.patch").write_text(PATCH)
    tree = machine.folder / "tree"
    tree.mkdir()

    def state(content: str) -> object:
        (tree / "f").write_text(content)
        before = sorted(tree.iterdir())
        found = machine.read("patch", repo="data:tree", file="patches/x.patch")["is"]
        assert (tree / "f").read_text() == content
        assert sorted(tree.iterdir()) == before
        return found

    assert state("a\nb\nc\n") == "absent"
    assert state("a\nB'\"$x\nc\n") == "applied"
    assert state("a\nother\nc\n") == "conflict"
    assert machine.read("patch", repo="data:no", file="patches/x.patch")["is"] is ABSENT
    with pytest.raises(RunbookError, match="not in the project"):
        machine.read("patch", repo="data:tree", file="patches/missing.patch")
    if ROOT:
        (tree / "f").chmod(0o600)
        machine.nobody = True
        with pytest.raises(Unknown, match="permission denied"):
            machine.read("patch", repo="data:tree", file="patches/x.patch")


def install(folder: Path, *, edit: str | None = None) -> Path:
    """A small project and a copy of it as pip installs it, under a venv of symbolic links."""
    needs_python()
    project, venv = folder / "project", folder / "venv"
    record = []
    site = venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, capture_output=True
    )
    for package in distribution.PACKAGES:
        for place in (project, site):
            (place / package / "__pycache__").mkdir(parents=True)
            (place / package / "a.py").write_text(f"# {package}\n")
            (place / package / "b.yaml").write_text("b: 1\n")
            (place / package / "__pycache__/a.pyc").write_text(str(place))
        record += [f"{package}/a.py,,", f"{package}/b.yaml,,", f"{package}/__pycache__/a.pyc,,"]
    if edit is not None:
        (site / "eagle3/a.py").write_text(edit)
    info = site / "eagle3_runbooks-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: eagle3-runbooks\nVersion: 0.1.0\n")
    record += [f"{info.name}/RECORD,,", f"{info.name}/METADATA,,", "../../../bin/runbook,,"]
    (info / "RECORD").write_text("\n".join(record) + "\n")
    return project


def test_package_of_the_project(machine: ThisMachine) -> None:
    machine.project = install(machine.folder)
    machine.data = {"eagle3_venv": "data:venv"}
    fields = machine.read("package", name="eagle3-runbooks")
    assert (fields["version"], fields["digest"]) == ("0.1.0", "controller")
    (machine.project / "deploy/a.py").write_text("# newer\n")
    digest = machine.read("package", name="Eagle3_Runbooks")["digest"]
    assert len(digest) == 64
    assert machine.read("package", name="absent-package")["version"] is ABSENT
    assert machine.read("package", name="eagle3-runbooks", venv="data:no")["version"] is ABSENT
    if ROOT:
        (machine.folder / "venv").chmod(0o700)
        machine.nobody = True
        with pytest.raises(Unknown, match="Permission denied"):
            machine.read("package", name="eagle3-runbooks")


def test_package_edited_on_the_host(folder: Path) -> None:
    project = install(folder, edit="# changed by hand\n")
    machine = ThisMachine(folder, project=project, data={"eagle3_venv": "data:venv"})
    assert machine.read("package", name="eagle3-runbooks")["digest"] != "controller"


def test_package_without_python_or_dpkg_is_absent(folder: Path) -> None:
    machine = ThisMachine(folder, path=only(folder / "bin"))
    assert machine.read("package", name="torch")["version"] is ABSENT
    assert machine.read("package", name="bash", manager="apt")["state"] == "absent"


def test_the_digest_is_of_paths_and_contents(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1")
    line = f"{hashlib.sha256(b'1').hexdigest()}  p/x\n"
    assert distribution.digest({"p/x": tmp_path / "x"}) == hashlib.sha256(line.encode()).hexdigest()


def script(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.mark.parametrize(
    ("fixture", "code"), [("fail-no-driver", 9), ("fail-mismatch", 18), ("fail-no-devices", 6)]
)
def test_gpu_processes_of_a_failing_driver(machine: ThisMachine, fixture: str, code: int) -> None:
    file = FIXTURES / f"nvidia-smi-{fixture}.txt"
    script(machine.folder / "fake", "nvidia-smi", f"cat '{file}'; exit {code}")
    machine.path = f"{machine.folder / 'fake'}:{machine.path}"
    first = file.read_text().splitlines()[0].strip()
    with pytest.raises(Unknown) as caught:
        machine.read("gpu_processes")
    assert caught.value.reason == f"nvidia-smi: {first}"


def test_gpu_processes_of_an_idle_driver(machine: ThisMachine) -> None:
    file = FIXTURES / "nvidia-smi-compute-apps-empty.txt"
    script(machine.folder / "fake", "nvidia-smi", f"cat '{file}'")
    machine.path = f"{machine.folder / 'fake'}:{machine.path}"
    fields = machine.read("gpu_processes")
    assert (fields["count"], fields["orphans"], fields["zombies"]) == (0, 0, 0)


@needs_root
def test_orphans_are_seen_without_a_driver(machine: ThisMachine) -> None:
    """A worker whose parent was killed, in its own process namespace (sgl-project/sglang#23627)."""
    worker = machine.folder / "sglang::scheduler_TP0"
    worker.symlink_to(shutil.which("sleep") or "/bin/sleep")
    machine.wrap = (
        *("unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c"),
        f"export PATH='{machine.folder}':$PATH\n"
        # In a subshell that ends at once, so that process 1 inherits the worker.
        '(sglang::scheduler_TP0 60 &)\nsleep 0.3\n"$@"\nexit $?',
        "sh",
    )
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has a driver")
    fields = machine.read("gpu_processes")
    assert fields["orphans"] == 1
    assert fields["zombies"] is ABSENT


def test_modinfo_and_libraries(machine: ThisMachine) -> None:
    if machine.shell[0] == "busybox":
        pytest.skip("busybox finds its own modinfo before PATH")
    open_module = FIXTURES / "modinfo-nvidia-open.txt"
    script(machine.folder / "fake", "modinfo", f'[ "$3" = nvidia ] && cat "{open_module}"')
    machine.path = f"{machine.folder / 'fake'}:{machine.path}"
    assert machine.read("nvidia_driver")["built"] == "580.95.05"
    script(machine.folder / "fake", "modinfo", "echo 'modinfo: Permission denied' >&2; exit 1")
    assert isinstance(machine.read("nvidia_driver")["built"], Unknown)


def test_service_without_systemd(folder: Path) -> None:
    machine = ThisMachine(folder, path=only(folder / "bin"))
    assert machine.read("service", unit="x")["state"] == "absent"
    assert machine.read("process_env", unit="x", name="Y")["value"] is ABSENT


def test_a_job_is_read_from_its_folder(machine: ThisMachine) -> None:
    from deploy.operations.job_start import start_script

    assert machine.read("job")["state"] == "absent"
    env = {"PATH": machine.path, "EAGLE3_STATE": str(machine.folder / "state"), "HOME": "/"}
    start = start_script("extract", "one", ["sh", "-c", "exit 7"], None)
    shell = str(shutil.which(machine.shell[0]))
    subprocess.run(
        [shell, *machine.shell[1:], "-c", start], env=env, check=True, capture_output=True
    )
    deadline = time.monotonic() + 20
    while (fields := machine.read("job"))["state"] == "running":
        assert time.monotonic() < deadline
    assert (fields["state"], fields["exit"]) == ("failed", 7)
    if ROOT:
        (machine.folder / "state").chmod(0o700)
        machine.nobody = True
        with pytest.raises(Unknown, match="Permission denied"):
            machine.read("job")
