"""Saved plans: what is in the file, what is refused, and that an edited one is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from runbooks.engine.model.host import Host
from runbooks.engine.plan.plan import Plan
from runbooks.engine.plan.planner import make_plan
from runbooks.engine.plan.saved import load_saved, refuse_other, save_plan, saved_plan
from runbooks.engine.plan.scope import narrowed, scope_of
from runbooks.engine.plan.seal import host_digests, inventory_digest, project_key
from runbooks.engine.plan.survey import Survey
from runbooks.engine.redact import Redactor
from tests.engine.plan.recorded import Recorded, described, making, thing
from tests.engine.scripted import DROP, flag, registry, runbook, setting, step

PURGE = step("purge", do=(DROP, {"name": "old"}), ensures=(flag("old", "gone"),))
STEPS = (
    setting("a", requires=(thing("disk", free=("ge", 5)),)),
    making("b", thing("b", is_="directory"), needs=["a"]),
    PURGE,
)
LIVE = {"a": "token hunter2", "b": described(**{"is": "directory", "files": 3}), "old": "x" * 40}


def plan_of(world: Recorded | None = None, *steps, **options) -> Plan:
    world = world or Recorded({"one": {**LIVE, "disk": described(free=9)}})
    book = runbook(*(steps or STEPS))
    scope = scope_of(book, **options)
    return make_plan(
        Survey(narrowed(book, scope), registry(), world, Path("/p"), lambda: 1000.5, scope=scope)
    )


HOSTS = Recorded({"one": {}}).hosts


def save(folder: Path, plan: Plan | None = None, name: str = "plan.json") -> Path:
    key = project_key(folder / "runs")
    file = folder / name
    save_plan(file, saved_plan(plan or plan_of(), HOSTS, key, Redactor(["hunter2"])), key)
    return file


def refused(file: Path, runs: Path) -> RunbookError:
    with pytest.raises(RunbookError) as caught:
        load_saved(file, runs)
    assert caught.value.diagnostics[0].hint is None or "plan" in caught.value.diagnostics[0].hint
    return caught.value


def test_a_plan_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    plan = plan_of(None, limit={"one"}, only=["b"])
    key = project_key(tmp_path / "runs")
    made = saved_plan(plan, HOSTS, key, Redactor())
    save_plan(tmp_path / "p", made, key)
    back = load_saved(tmp_path / "p", tmp_path / "runs")
    assert back == made
    assert (back.id, back.runbook, back.scope, back.created) == (
        plan.id,
        "test",
        plan.scope,
        1000.5,
    )
    assert {(row.step, row.status) for row in back.rows} == {
        ("a", "blocked"),
        ("b", "may run"),
    }


def test_the_schema_version_comes_first_and_the_file_is_private(tmp_path: Path) -> None:
    file = save(tmp_path)
    content = json.loads(file.read_text())
    assert list(content)[:2] == ["v", "kind"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", "runs"]


def test_it_holds_every_finding_and_what_an_irreversible_step_would_lose(tmp_path: Path) -> None:
    saved = load_saved(save(tmp_path), tmp_path / "runs")
    assert [(item.step, item.part, item.index, item.subject) for item in saved.findings] == [
        ("a", "requires", 0, "thing disk"),
        ("a", "ensures", 0, "flag a"),
        ("b", "ensures", 0, "thing b"),
        ("purge", "ensures", 0, "flag old"),
    ]
    # Volatile fields are not kept: only what the check said.
    assert saved.findings[0].values == {"is": None, "files": None, "size": None}
    (purge,) = [row for row in saved.rows if row.step == "purge"]
    assert (purge.identity, purge.bytes) == ("flag old", 40)
    assert purge.approval is not None and purge.approval.startswith("40-")


def test_secrets_do_not_reach_the_file(tmp_path: Path) -> None:
    text = save(tmp_path).read_text()
    assert "hunter2" not in text
    assert "token [secret]" in text


def test_digests_need_the_key(tmp_path: Path) -> None:
    """The digest of a masked value must not let anybody try out what it is."""
    plan = plan_of()
    one = saved_plan(plan, HOSTS, b"1" * 32, Redactor())
    two = saved_plan(plan, HOSTS, b"2" * 32, Redactor())
    assert not {item.digest for item in one.findings} & {item.digest for item in two.findings}


def test_a_plan_with_nothing_to_do_can_be_saved(tmp_path: Path) -> None:
    plan = plan_of(Recorded({"one": {"x": "on"}}), setting("x"))
    assert plan.changes == 0
    assert load_saved(save(tmp_path, plan), tmp_path / "runs").rows[0].status == "satisfied"


def leaves(content, path=()):
    """Paths of every value of a JSON document, containers too."""
    yield path
    if isinstance(content, dict):
        for key, item in content.items():
            yield from leaves(item, (*path, key))
    elif isinstance(content, list):
        for index, item in enumerate(content):
            yield from leaves(item, (*path, index))


def altered(content, path, change):
    if not path:
        return change(content)
    copy = dict(content) if isinstance(content, dict) else list(content)
    copy[path[0]] = altered(content[path[0]], path[1:], change)
    return copy


def another(value):
    """A value of the same type that differs."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    return {**value, "more": "x"} if isinstance(value, dict) else [*value, "x"]


def test_whatever_is_altered_the_plan_is_refused(tmp_path: Path) -> None:
    """A property of every place in the file, found by walking it."""
    file = save(tmp_path)
    content = json.loads(file.read_text())
    seen = set()
    for path in leaves(content):
        if not path:
            continue
        file.write_text(json.dumps(altered(content, path, another)))
        error = refused(file, tmp_path / "runs")
        assert error.code in (ExitCode.STALE, ExitCode.USAGE), path
        seen.add(error.code)
    assert seen == {ExitCode.STALE, ExitCode.USAGE}
    file.write_text(json.dumps(content))
    load_saved(file, tmp_path / "runs")


def test_an_edited_status_is_refused_as_altered(tmp_path: Path) -> None:
    file = save(tmp_path)
    file.write_text(file.read_text().replace('"may run"', '"satisfied"', 1))
    error = refused(file, tmp_path / "runs")
    assert error.code is ExitCode.STALE
    assert "was altered" in error.diagnostics[0].message


def test_layout_is_no_content(tmp_path: Path) -> None:
    file = save(tmp_path)
    turned = dict(reversed(list(json.loads(file.read_text()).items())))
    file.write_text(json.dumps(turned, indent=4))
    load_saved(file, tmp_path / "runs")


def test_a_plan_of_another_key_is_refused(tmp_path: Path) -> None:
    file = save(tmp_path)
    error = refused(file, tmp_path / "elsewhere")
    assert error.code is ExitCode.STALE
    assert "has no key" in error.diagnostics[0].message
    assert not (tmp_path / "elsewhere").exists()
    project_key(tmp_path / "other")
    assert refused(file, tmp_path / "other").code is ExitCode.STALE


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("id",), 7, "id is 7, want text"),
        (("created",), "x", 'created is "x", want a whole number'),
        (("created",), True, "created is true, want a whole number"),
        (("rows",), {}, "rows is {}, want a list"),
        (("rows", 1), "x", 'rows[1] is "x", want an object'),
        (("rows", 1, "status"), None, "rows[1].status is null, want text"),
        (("rows", 2, "bytes"), "40", 'rows[2].bytes is "40", want a whole number'),
        (("findings", 3, "truth"), True, "findings[3].truth is true, want text"),
        (("findings", 0, "index"), False, "findings[0].index is false, want a whole number"),
        (("findings", 0, "values"), [1], "findings[0].values is [1], want an object"),
        (("inventory", "one"), 1, "inventory.one is 1, want text"),
        (("scope", "limit"), [1], "scope.limit.0 is 1, want text"),
        (("scope", "words"), None, "scope.words is null, want text"),
        (("v",), 2, "v: its schema version is 2, want 1"),
        (("kind",), "x", "is no saved plan"),
    ],
)
def test_a_field_of_another_type_is_named_with_its_place(
    tmp_path: Path, path, value, message: str
) -> None:
    file = save(tmp_path)
    content = json.loads(file.read_text())
    file.write_text(json.dumps(altered(content, path, lambda old: value)))
    error = refused(file, tmp_path / "runs")
    assert error.code is ExitCode.USAGE
    assert error.diagnostics[0].message == message
    assert error.diagnostics[0].where == str(file)


def test_every_missing_field_is_named(tmp_path: Path) -> None:
    file = save(tmp_path)
    content = json.loads(file.read_text())
    for name in set(content) - {"v", "kind"}:
        file.write_text(json.dumps({key: item for key, item in content.items() if key != name}))
        assert f"{name} is missing" in refused(file, tmp_path / "runs").diagnostics[0].message
    for name in content["findings"][0]:
        short = altered(content, ("findings", 0), lambda old, name=name: {**old, name: old[name]})
        del short["findings"][0][name]
        file.write_text(json.dumps(short))
        message = refused(file, tmp_path / "runs").diagnostics[0].message
        assert message == f"findings[0].{name} is missing"


def test_a_plan_that_is_cut_off_says_so(tmp_path: Path) -> None:
    file = save(tmp_path)
    whole = file.read_bytes()
    for size in range(0, len(whole) - 2, max(1, len(whole) // 200)):
        file.write_bytes(whole[:size])
        error = refused(file, tmp_path / "runs")
        assert error.code is ExitCode.USAGE
        assert error.diagnostics[0].message == "the plan file is cut off", size
        assert str(file) in (error.diagnostics[0].where or "")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.binary(max_size=60) | st.sampled_from([b"[]", b"null", b"{}", b"[" * 100_000]))
def test_other_files_are_refused_without_a_traceback(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other"
    file.write_bytes(content)
    assert refused(file, tmp_path).code is ExitCode.USAGE


def test_a_file_that_is_not_there_or_not_readable(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "no", tmp_path).diagnostics[0].message
    assert "Is a directory" in refused(tmp_path, tmp_path).diagnostics[0].message


def test_only_a_plan_is_overwritten(tmp_path: Path) -> None:
    file = save(tmp_path)
    first = load_saved(file, tmp_path / "runs").id
    save(tmp_path)
    assert load_saved(file, tmp_path / "runs").id != first
    for content in ("a report", "{}", '{"kind": "other"}', ""):
        other = tmp_path / "other"
        other.write_text(content)
        with pytest.raises(RunbookError, match="is no plan"):
            save(tmp_path, name="other")
        assert other.read_text() == content
    with pytest.raises(RunbookError, match="is no plan"):
        refuse_other(tmp_path)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RunbookError, match="is no plan"):
        refuse_other(tmp_path / "dangling")
    refuse_other(tmp_path / "new")
    with pytest.raises(RunbookError, match="cannot be written: No such file"):
        save(tmp_path, name="no folder/plan")


def test_the_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    key = project_key(tmp_path / "runs")
    assert len(key) == 32
    assert project_key(tmp_path / "runs") == key
    (file,) = (tmp_path / "runs").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(b"short")
    with pytest.raises(RunbookError, match="has 5 bytes, want 32"):
        project_key(tmp_path / "runs")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunbookError, match="cannot be read or made"):
        project_key(tmp_path / "file")


def test_two_that_make_the_key_at_once_get_the_same_one(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(16) as pool:
        keys = set(pool.map(lambda _: project_key(tmp_path / "runs"), range(64)))
    assert len(keys) == 1
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["key"]


def test_the_inventory_is_where_hosts_are_and_never_how_one_logs_in() -> None:
    def host(**data) -> dict[str, Host]:
        return {"one": Host("one", data=data)}

    plain = inventory_digest(host())
    assert inventory_digest(host(ssh_password="x", ssh_key="k", sudo_password="y")) == plain
    assert inventory_digest(host(ssh_hostname="10.0.0.1")) != plain
    assert inventory_digest(host(ssh_port=22)) != inventory_digest(host(ssh_port=23))
    for other in (
        Host("one", kind="lxc"),
        Host("one", groups=("g",)),
        Host("one", path=("/x",)),
        Host("one", state="/s"),
        Host("one", guest_of="two"),
        Host("one", roots=HOSTS["one"].roots),
    ):
        assert inventory_digest({"one": other}) != plain
    assert inventory_digest({"two": Host("two"), **host()}) == inventory_digest(
        {**host(), "two": Host("two")}
    )
    assert set(host_digests(host())) == {"one"}
