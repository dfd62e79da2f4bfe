"""Words that mean an inventory, data that means a host, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from runbooks.engine.adapter.inventory import load_hosts, make_fleet, select_hosts
from runbooks.engine.model.diagnostic import Diagnostic, ExitCode, RunbookError
from runbooks.engine.model.host import DEFAULT_STATE, Root

PROJECT = Path(__file__).resolve().parents[3]


def fault(word: str, **options: object) -> Diagnostic:
    with pytest.raises(RunbookError) as caught:
        load_hosts(word, **options)  # type: ignore[arg-type]
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code is ExitCode.USAGE
    return diagnostic


def write(folder: Path, data: object, *, name: str = "one") -> None:
    (folder / "inventory").mkdir(exist_ok=True)
    text = f'group = [("{name}", {data!r}), "other"]\n'
    (folder / "inventory" / "hosts.py").write_text(text)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    hosts = load_hosts("inventory")
    assert {name: host.kind for name, host in hosts.items()} == {
        "kpro6": "proxmox",
        "llm-two": "gpu",
        "llm-one": "gpu",
    }
    assert hosts["llm-two"].roots["data"] == Root(
        "data", PurePosixPath("/data/eagle3"), "kpro6", "tank/data", True, 200 * 2**30
    )
    assert hosts["llm-two"].resolve("model:kimi-k2.5") == "/data/models/kimi-k2.5"
    assert hosts["kpro6"].state == DEFAULT_STATE
    assert load_hosts("inventory/hosts.py") == hosts


def test_the_embedded_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    (host,) = load_hosts("inventory/local.py").values()
    assert host.name == "local"
    assert "local" in host.groups
    assert host.resolve("data:merged") == str(PROJECT / "var" / "data" / "merged")
    assert host.resolve("model:x") == str(PROJECT / "var" / "model" / "x")
    assert {root.owner for root in host.roots.values()} == {"local"}
    assert load_hosts("local") == {"local": host}


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("inventry", "did you mean 'inventory'?"),
        ("Inventory", "did you mean 'inventory'?"),
        ("locl", "did you mean 'local'?"),
        ("inventory/hots.py", "did you mean 'inventory/hosts.py'?"),
        ("", "the fleet is 'inventory'"),
    ],
)
def test_an_unknown_word_is_an_error(word: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    assert fault(word).hint == hint


def test_a_folder_without_hosts(project: Path) -> None:
    (project / "inventory").mkdir()
    (project / "inventory" / "fleet.py").write_text("")
    assert fault("inventory").message == "the folder 'inventory' has no hosts.py"


def test_an_empty_inventory(project: Path) -> None:
    (project / "hosts.py").write_text('_group = ["a"]\n')
    diagnostic = fault("hosts.py")
    assert diagnostic.message == "the inventory 'hosts.py' has no hosts"


@pytest.mark.parametrize("text", ["1 +", "import nothing_there", "raise KeyError('x')", "a=['@x']"])
def test_an_inventory_that_cannot_be_read(project: Path, text: str) -> None:
    (project / "hosts.py").write_text(text)
    diagnostic = fault("hosts.py")
    assert diagnostic.message.startswith("the inventory cannot be read: ")
    assert diagnostic.where is not None
    assert diagnostic.where.endswith("hosts.py")


def test_lists_of_hosts() -> None:
    assert list(load_hosts("a,b")) == ["a", "b"]
    assert list(load_hosts("@local")) == ["local"]
    assert list(load_hosts("@fake/a,@ssh/b")) == ["a", "b"]
    assert list(load_hosts("somewhere", data={"ssh_hostname": "127.0.0.1"})) == ["somewhere"]
    assert "two hosts" in fault("a,@ssh/a").message


def test_limits(project: Path) -> None:
    write(project, {})
    assert list(load_hosts("inventory", ["other"])) == ["other"]
    assert list(load_hosts("inventory", ["o*"])) == ["one", "other"]
    diagnostic = fault("inventory", limit=["othr"])
    assert (diagnostic.where, diagnostic.hint) == ("--limit", "did you mean 'other'?")
    fleet = make_fleet("inventory", ["one"])
    assert [host.name for host in fleet.state.limit_hosts] == ["one"]
    assert select_hosts(fleet.hosts, ["group"]) == {"one", "other"}


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        ({"roots": {"data": {}}}, "roots.data.path is missing", None),
        ({"roots": {"data": {"path": "x"}}}, "roots.data.path is 'x', want an absolute", None),
        ({"roots": {"data": {"path": "/a/../b"}}}, "roots.data.path is '/a/../b'", None),
        ({"roots": {"Data": {"path": "/x"}}}, "roots.Data: a name has small letters", None),
        ({"roots": {"data": "/x"}}, "roots.data is '/x', want a mapping", None),
        ({"roots": ["data"]}, "roots is ['data'], want a mapping", None),
        (
            {"roots": {"data": {"path": "/x", "onwer": "one"}}},
            "roots.data.onwer is no key of a root",
            "did you mean 'owner'?",
        ),
        (
            {"roots": {"data": {"path": "/x", "owner": "othr"}}},
            "roots.data.owner 'othr' is no host of the inventory",
            "did you mean 'other'?",
        ),
        (
            {"roots": {"data": {"path": "/x", "mounted": "yes"}}},
            "roots.data.mounted is 'yes'",
            None,
        ),
        ({"roots": {"data": {"path": "/x", "reserve": "9"}}}, "roots.data.reserve: ", None),
        ({"roots": {"data": {"path": "/x", "filesystem": 3}}}, "roots.data.filesystem is 3", None),
        ({"kind": 3}, "kind is 3, want text", None),
        ({"path": "/opt/bin"}, "path is '/opt/bin', want a list", "write path = ['/opt/bin']"),
    ],
)
def test_malformed_data_names_file_host_and_key(
    project: Path, data: object, message: str, hint: str | None
) -> None:
    write(project, data)
    diagnostic = fault("inventory")
    assert diagnostic.message.startswith(message)
    assert diagnostic.where == f"{project}/inventory/hosts.py, host one"
    assert hint is None or diagnostic.hint == hint


def test_roots_of_layers_are_merged(project: Path) -> None:
    write(project, {"roots": {"data": {"path": "/own"}}})
    data = project / "inventory" / "group_data"
    data.mkdir()
    (data / "all.py").write_text('roots = {"data": {"path": "/all"}, "model": {"path": "/m"}}\n')
    (data / "group.py").write_text('roots = {"model": {"path": "m"}}\n')
    with pytest.raises(RunbookError) as caught:
        load_hosts("inventory")
    assert {item.where for item in caught.value.diagnostics} == {
        f"{data}/group.py, host one",
        f"{data}/group.py, host other",
    }
    (data / "group.py").write_text("kind = 'x'\n")
    hosts = load_hosts("inventory")
    assert str(hosts["one"].roots["data"].path) == "/own"
    assert str(hosts["other"].roots["data"].path) == "/all"
    assert str(hosts["one"].roots["model"].path) == "/m"
    assert hosts["other"].roots["data"].filesystem == "other:/all"
    assert hosts["other"].kind == "x"
