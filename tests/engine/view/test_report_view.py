"""The page of a run: whole, closed in itself, and nothing of a host becomes markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import pytest

from runbooks.engine.history.runs import read_run
from runbooks.engine.history.verify import journal_faults
from runbooks.engine.view import report as reporting
from runbooks.engine.view.report import MARK, render_report
from tests.engine.history.journals import (
    add_two,
    check,
    intent,
    outcome,
    record,
    started,
    unit,
    write,
)

_VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Fails for a tag that is not closed; collects what the tests ask about."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.ids: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (self.open, tag)
        self.open.pop()

    def handle_data(self, data):
        self.text += data

    def named(self, tag: str, **attrs: str) -> list[dict[str, str | None]]:
        found = [given for name, given in self.tags if name == tag]
        return [given for given in found if attrs.items() <= given.items()]


def page(runs: Path, run: str) -> str:
    one = read_run(runs / run)
    return render_report(one, journal_faults(one))


def sample(runs: Path) -> str:
    write(
        runs,
        "x",
        started("x"),
        record("lock", 0.5, host="one", action="taken", generation=3),
        unit("facts", 1, "gate", part="requires", checks=[check("disk data", read="9 TiB")]),
        outcome(2, "gate", "held", acted=False, seconds=1.5),
        unit("facts", 3, "a", part="ensures", checks=[check(truth="false", read="absent")]),
        intent(4, "a", diff="@@ -1 +1 @@\n-old\n+new"),
        unit("command", 8, "a", command="set a", exit=1, seconds=4, stdout="hello", stderr="  \n"),
        unit("note", 9, "a", text="later than 5s", warning="late"),
        outcome(10, "a", "failed", seconds=7),
        record("end", 10, exit=6),
    )
    return page(runs, "x")


def test_it_shows_everything_that_happened(tmp_path: Path) -> None:
    html = sample(tmp_path)
    shown = Page(html)
    for part in (
        "extract",
        "failed (6)",
        "alice on laptop",
        "= held",
        "! failed",
        "disk data",
        "9 TiB",
        "✘ false",
        "-old",
        "$ set a → exit 1 in 4.00s",
        "hello",
        "warning, late: later than 5s",
        "one: lock taken, generation 3",
    ):
        assert part in shown.text, part
    assert "stderr" not in shown.text  # nothing but blanks
    rows = [given["id"] for given in shown.named("details")]
    assert [given["href"] for given in shown.named("a")] == [f"#{row}" for row in rows]
    # What went wrong is open, the rest is closed.
    assert ["open" in given for given in shown.named("details")] == [False, True]


def test_the_timeline_shows_when_each_step_ran_and_acted(tmp_path: Path) -> None:
    html = sample(tmp_path)
    spans = re.findall(r'class="(whole|act)" style="left:([\d.]+)%;width:([\d.]+)%"', html)
    assert spans == [
        ("whole", "5.0", "15.0"),
        ("whole", "30.0", "70.0"),
        ("act", "40.0", "60.0"),
    ]
    ticks = re.findall(r'<span style="left:([\d.]+)%"(?: class="late")?>(\w+)</span>', html)
    assert ticks == [(f"{20 * n:.1f}", f"{2 * n}s") for n in range(6)]


@pytest.mark.parametrize("seconds", [0, 0.3, 59, 3600, 90_000, 260_000, 9e6])
def test_any_length_of_run_has_a_readable_axis(tmp_path: Path, seconds: float) -> None:
    write(
        tmp_path,
        "x",
        started("x"),
        intent(seconds / 2, "a"),
        outcome(seconds, "a", seconds=seconds),
        record("end", seconds, exit=0),
    )
    html = page(tmp_path, "x")
    Page(html)
    ticks = [float(one) for one in re.findall(r'<span style="left:([\d.]+)%"', html)]
    assert len(ticks) <= 8 and ticks == sorted(ticks) and all(0 <= one <= 100 for one in ticks)
    assert len(ticks) >= 3 or seconds < 1
    for left, width in re.findall(r"left:([\d.]+)%;width:([\d.]+)%", html):
        assert float(left) >= 0 and float(width) > 0 and float(left) + float(width) <= 100.001


def test_nothing_comes_from_elsewhere(tmp_path: Path) -> None:
    html = sample(tmp_path)
    shown = Page(html)
    assert {tag for tag, _ in shown.tags}.isdisjoint({"script", "link", "img", "iframe", "object"})
    for _, given in shown.tags:
        assert "src" not in given and str(given.get("href", "#")).startswith("#")
        assert not any(name.startswith("on") for name in given)
    assert "url(" not in html and "@import" not in html and "://" not in html


def test_light_dark_and_paper_have_their_styles(tmp_path: Path) -> None:
    html = sample(tmp_path)
    assert "prefers-color-scheme: dark" in html and "@media print" in html
    assert MARK in html[:512]


@pytest.mark.parametrize(
    "evil",
    ["<script>alert(1)</script>", '"><img src=x onerror=1>', "</pre></details>", "{{ 7*7 }}"],
)
def test_what_hosts_and_journals_say_stays_text(tmp_path: Path, evil: str) -> None:
    write(
        tmp_path,
        "x",
        started("x", runbook=evil, operator=evil, hosts=[evil], versions={evil: evil}),
        record("lock", 1, host=evil, action=evil, text=evil),
        record(evil, 1),
        unit("facts", 1, evil, evil, part=evil, checks=[check(evil, evil, read=evil, wanted=evil)]),
        intent(2, evil, evil, operation=evil, summary=evil, diff=evil),
        unit(evil, 2, evil, evil),
        unit("command", 3, evil, evil, command=evil, exit=evil, stdout=evil, stderr=evil),
        outcome(4, evil, evil, evil, reason=evil),
        record("end", 5, exit=0, left={evil: evil}),
    )
    html = page(tmp_path, "x")
    shown = Page(html)
    assert evil in shown.text
    assert not {"script", "img"} & {tag for tag, _ in shown.tags}


def test_control_characters_and_stray_bytes_are_spelled_out(tmp_path: Path) -> None:
    write(tmp_path, "x", started("x"), outcome(1, "a", reason="\x1b[2J\x00\u202e \udc80"))
    html = page(tmp_path, "x")
    assert "\\x1b[2J\\x00\\x202e" in html
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", html)


def test_a_run_that_was_killed_and_one_that_never_began(tmp_path: Path) -> None:
    add_two(tmp_path)
    late = Page(page(tmp_path, "late"))
    assert "unfinished" in late.text and "? interrupted" in late.text
    write(tmp_path, "empty", closed=False)
    assert "No step began." in Page(page(tmp_path, "empty")).text


def test_a_broken_journal_is_said_at_the_top(tmp_path: Path) -> None:
    path = write(tmp_path, "x", started("x"), outcome(1, "a", "failed"), record("end", 2, exit=0))
    path.write_bytes(path.read_bytes().replace(b'"failed"', b'"ran"'))
    shown = Page(page(tmp_path, "x"))
    assert len(shown.named("div", role="alert")) == 1
    assert "line 3 does not follow" in shown.text
    whole = write(tmp_path, "y", started("y"), record("end", 1, exit=0))
    assert not Page(page(whole.parent.parent, "y")).named("div", role="alert")


def test_a_name_that_the_template_does_not_know_is_an_error() -> None:
    from jinja2 import UndefinedError

    made = reporting._environment()
    with pytest.raises(UndefinedError):
        made.from_string("{{ nowhere }}").render()
    assert made.from_string("{{ x }}").render(x="<") == "&lt;"


def test_the_template_is_a_resource_of_the_package() -> None:
    assert resources.files("runbooks.engine.view").joinpath("report.html.j2").is_file()
