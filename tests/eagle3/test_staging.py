from __future__ import annotations

from pathlib import Path

import pytest

from eagle3.errors import StoreError
from eagle3.staging import staged_directory


def test_it_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "new" / "deep" / "store"
    with pytest.raises(RuntimeError), staged_directory(out) as staging:
        (staging.directory / "half").write_text("x")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with staged_directory(out) as staging:
        (staging.directory / "whole").write_text("x")
        assert not out.exists()
        staging.commit(replace=False)
    assert [path.name for path in out.parent.iterdir()] == ["store"]
    assert [path.name for path in out.iterdir()] == ["whole"]


def test_what_a_killed_writer_left_is_replaced(tmp_path: Path) -> None:
    left = tmp_path / ".store.partial"
    (left / "sub").mkdir(parents=True)
    (left / "half").write_text("x")
    with staged_directory(tmp_path / "store") as staging:
        assert staging.directory == left
        assert list(left.iterdir()) == []


def test_a_symlink_in_the_place_of_the_temporary_directory(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    (tmp_path / ".store.partial").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match=r"."), staged_directory(tmp_path / "store"):
        pass
    assert (tmp_path / "precious" / "file").exists()


def test_two_writers_at_the_same_time(tmp_path: Path) -> None:
    with (
        staged_directory(tmp_path / "store") as first,
        pytest.raises(StoreError, match="another process"),
        staged_directory(tmp_path / "store"),
    ):
        pass
    assert not first.committed
    assert list(tmp_path.iterdir()) == []


def test_replace_takes_the_old_one_away(tmp_path: Path) -> None:
    out = tmp_path / "store"
    out.mkdir()
    (out / "old").write_text("x")
    with pytest.raises(OSError, match="not empty"), staged_directory(out) as staging:
        staging.commit(replace=False)
    assert (out / "old").exists()
    with staged_directory(out) as staging:
        (staging.directory / "new").write_text("x")
        staging.commit(replace=True)
    assert [path.name for path in out.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
