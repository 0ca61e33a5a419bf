"""Files that are wholly there, or as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from build.store import durable


def test_a_replaced_file_is_the_new_one_with_its_mode_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    for content, mode in ((b"old", 0o644), (b"new", 0o600)):
        durable.replace_file(file, content, mode)
        assert (file.read_bytes(), file.stat().st_mode & 0o777) == (content, mode)
    assert list(tmp_path.iterdir()) == [file]


def test_a_writer_that_fails_leaves_the_old_file_and_no_scratch(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    durable.replace_file(file, b"old")
    with pytest.raises(RuntimeError, match="half"):
        _write_half(file)
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def _write_half(file: Path) -> None:
    with durable.replacing(file) as out:
        out.write(b"new")
        raise RuntimeError("half written")


def test_a_link_is_made_and_moved(tmp_path: Path) -> None:
    link = tmp_path / "current"
    for leads_to in ("a", "b"):
        durable.replace_link(link, leads_to)
        assert link.readlink() == Path(leads_to)
    assert list(tmp_path.iterdir()) == [link]


def test_a_link_in_the_place_of_a_folder_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    with pytest.raises(OSError, match="current"):
        durable.replace_link(tmp_path / "current", "a")
    assert list(tmp_path.iterdir()) == [tmp_path / "current"]
