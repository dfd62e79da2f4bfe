"""What a job says of itself is masked, or left out where its secrets cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from runbooks.engine.commands.words import Words
from runbooks.engine.model.job import JobRecord, Progress
from tests.engine.scripted import World, registry

RUNBOOK = """\
runbook: train
secrets: {token: {env: TRAIN_TOKEN}}
steps:
  work:
    needs: []
    hosts: [one]
    do: {work: {name: work}}
    ensures: [flag: {name: work, is: done}]
"""
LOG = "the job ended with exit 1\nusing t0ken-s3cret now"


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Words:
    (tmp_path / "runbooks").mkdir()
    (tmp_path / "runbooks" / "train.yaml").write_text(RUNBOOK)
    monkeypatch.chdir(tmp_path)
    return Words(registry(), World({"one": {}}), tmp_path)


def job(text: str) -> JobRecord:
    progress = Progress(text, done=3.0, total=4.0)
    return JobRecord("one", "train", "work", 1, "running", reason=LOG, progress=progress)


def test_with_the_secrets_at_hand_they_are_masked(words, monkeypatch):
    monkeypatch.setenv("TRAIN_TOKEN", "t0ken-s3cret")
    shown = words.job(job("t0ken-s3cret"))
    assert shown.progress.text == "[secret]"
    assert shown.reason == "the job ended with exit 1\nusing [secret] now"


def test_without_them_the_words_are_left_out_and_the_numbers_stay(words, monkeypatch):
    monkeypatch.delenv("TRAIN_TOKEN", raising=False)
    shown = words.job(job("t0ken-s3cret"))
    assert (shown.progress.text, shown.progress.done) == ("", 3.0)
    assert shown.reason.startswith("the job ended with exit 1\n(its words are left out")
    assert "s3cret" not in shown.reason


def test_a_runbook_that_is_not_here_counts_as_without(words):
    assert words.text("unknown", LOG).splitlines()[0] == "the job ended with exit 1"
    assert "s3cret" not in words.text("unknown", LOG)


def test_what_could_not_be_read_of_a_host_stays(words):
    assert words.jobs({"one": "permission denied"}) == {"one": "permission denied"}
