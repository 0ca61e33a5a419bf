"""A state folder's id."""

from __future__ import annotations

import platform
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from build.errors import Refused
from supervisor.gang import identity


def test_a_folder_has_none_before_its_first_gang_and_reading_makes_none(tmp_path: Path) -> None:
    assert identity.read(tmp_path / "state") is None
    assert not (tmp_path / "state").exists()


def test_the_id_stays_moves_with_the_folder_and_is_another_in_a_new_one(tmp_path: Path) -> None:
    before = identity.own(tmp_path / "state")
    assert identity.own(tmp_path / "state") == before
    (tmp_path / "state").rename(tmp_path / "moved")
    moved = identity.read(tmp_path / "moved")
    assert moved is not None
    assert (moved.id, moved.folder.rpartition(":")[2]) == (before.id, str(tmp_path / "moved"))
    assert identity.own(tmp_path / "state").id != before.id
    assert [one.name for one in (tmp_path / "state").iterdir()] == ["id"]


def test_those_that_make_it_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len({found.id for found in pool.map(identity.own, [tmp_path / "state"] * 32)}) == 1


def test_a_copy_is_refused_while_its_original_is_there_and_told_what_to_remove(tmp_path: Path) -> None:
    folder = tmp_path / "ü state"
    mine = identity.own(folder)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for ask in (identity.read, identity.own):
        with pytest.raises(Refused, match=r"is a copy of .*ü state .*remove `id` and `run`"):
            ask(copy)
    assert identity.own(folder) == mine
    (copy / "id").unlink()
    assert identity.own(copy).id != mine.id


def test_a_copy_whose_original_serves_no_more_is_the_folder_itself(tmp_path: Path) -> None:
    mine = identity.own(tmp_path / "state")
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    (tmp_path / "state" / "id").unlink()
    assert identity.own(tmp_path / "copy").id == mine.id
    assert identity.own(tmp_path / "state").id != mine.id
    assert identity.own(tmp_path / "copy").id == mine.id


def test_a_folder_reached_by_a_link_is_no_copy(tmp_path: Path) -> None:
    mine = identity.own(tmp_path / "state")
    (tmp_path / "link").symlink_to(tmp_path / "state")
    assert identity.own(tmp_path / "link").id == mine.id
    (tmp_path / "state").rename(tmp_path / "moved")
    (tmp_path / "state").symlink_to(tmp_path / "moved")
    assert identity.own(tmp_path / "moved").id == mine.id == identity.own(tmp_path / "state").id


@pytest.mark.parametrize("lay", ["", "nowhere", "other host:/state", "{host}:/no/such", "{host}:\0", "{host}:relative"])
def test_where_it_lay_may_be_unknown(tmp_path: Path, lay: str) -> None:
    (tmp_path / "id").write_text(f"{'a' * 16}\n{lay.format(host=platform.node())}\n")
    assert identity.own(tmp_path).id == "a" * 16
    assert (tmp_path / "id").read_text() == f"{'a' * 16}\n{platform.node()}:{tmp_path}\n"


def test_a_file_that_is_no_id_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("")
    with pytest.raises(Refused, match="is no id"):
        identity.own(tmp_path)


def test_a_folder_that_cannot_hold_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="cannot be made there"):
        identity.own(tmp_path / "file" / "state")
