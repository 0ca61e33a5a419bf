"""The store: what registering leaves behind, what counts, and what dead processes left."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from build.errors import StoreDamaged
from build.graph import graph
from build.graph.graph import Artefact
from build.store import hashing, scratch
from build.store.record import Made, Record, record_of
from build.store.store import Store


def work(store: Store, content: bytes = b"content") -> tuple[Path, Record]:
    """A finished tree in scratch and its record."""
    artefact = Artefact("thing", "toy", 1, {"p": 1})
    key = graph.key(artefact, {})
    out = store.scratch.new(f"{key}-thing")
    (out / "inner").mkdir(parents=True)
    (out / "inner" / "file").write_bytes(content)
    (out / "program").write_bytes(b"#!/bin/sh\n")
    (out / "program").chmod(0o700)
    return out, record_of(Made(artefact, key, 0.5, "linux/amd64", ""), {}, hashing.tree(out))


def modes(root: Path) -> set[tuple[str, str]]:
    return {(rel, f"{stat.S_IMODE(p.lstat().st_mode):o}") for p, rel in hashing.walk(root)}


def test_what_is_registered_is_found_again_read_only_and_with_one_time(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    new = store.register(*work(store))
    assert Store(tmp_path / "store").find(new.entry) == new
    path = store.path(new.entry)
    assert modes(path) == {("inner", "555"), ("inner/file", "444"), ("program", "555")}
    assert stat.S_IMODE(path.stat().st_mode) == 0o555
    assert {p.stat().st_mtime for p, _ in hashing.walk(path) if p.is_file()} == {1}
    assert hashing.tree_hash(hashing.tree(path)) == new.output


def test_nothing_is_left_in_tmp_after_the_end(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.register(*work(store))
    store.close()
    assert list((tmp_path / "store" / "tmp").iterdir()) == []


def test_the_second_of_two_makers_of_one_key_finds_the_first_s_record(tmp_path: Path) -> None:
    one, two = Store(tmp_path / "store"), Store(tmp_path / "store")
    first, second = work(one), work(two, b"another result")
    assert one.register(*first) == first[1]
    assert two.register(*second) == first[1]
    assert (one.path(first[1].entry) / "inner" / "file").read_bytes() == b"content"
    assert not second[0].exists()


def test_a_path_without_a_record_counts_for_nothing_and_is_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    made, new = work(store)
    garbage = store.path(new.entry)
    (garbage / "half").mkdir(parents=True)
    garbage.chmod(0o555)
    assert store.find(new.entry) is None
    store.register(made, new)
    assert not (garbage / "half").exists()
    assert store.find(new.entry) == new


def test_a_record_without_its_path_counts_for_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    new = store.register(*work(store))
    away = store.discard(new.entry)
    assert away is not None
    store.write_record(new)
    assert Store(store.root).find(new.entry) is None
    with pytest.raises(StoreDamaged, match="run `doit`"):
        Store(store.root).need(new.entry)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": 99}'])
def test_a_path_whose_record_cannot_be_read_counts_for_nothing_and_one_line_says_why(tmp_path: Path, content: bytes) -> None:
    store = Store(tmp_path / "store")
    new = store.register(*work(store))
    store.record_path(new.entry).unlink()
    store.record_path(new.entry).write_bytes(content)
    fresh = Store(store.root)
    assert fresh.find(new.entry) is None
    assert new.entry in fresh.unreadable[new.entry]
    assert "\n" not in fresh.unreadable[new.entry]
    with pytest.raises(StoreDamaged, match="`doit repair`"):
        fresh.need(new.entry)


def test_a_record_moved_to_another_entry_is_damage(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    new = store.register(*work(store))
    other = f"{'0' * 32}-thing"
    store.path(other).mkdir()
    store.record_path(other).write_bytes(store.record_path(new.entry).read_bytes())
    assert store.find(other) is None
    assert "speaks of" in store.unreadable[other]


def test_entries_are_named_whole_or_not(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    new = store.register(*work(store))
    store.forget(new.entry)
    (store.root / "notes.txt").write_text("somebody's")
    assert list(store.entries()) == [new.entry]


def test_a_dead_process_s_scratch_goes_and_a_live_one_s_stays(tmp_path: Path) -> None:
    live = scratch.Scratch(tmp_path)
    kept = live.new("work")
    dead = tmp_path / "1-dead"
    (dead / "deep").mkdir(parents=True)
    (dead / "deep").chmod(0o555)
    dead.with_suffix(scratch.LOCK).touch()
    (tmp_path / "2-nobody").mkdir()
    assert set(scratch.clean(tmp_path)) == {"1-dead", "2-nobody"}
    kept.write_text("still here")
    live.close()
    assert list(tmp_path.iterdir()) == []


def test_cleaning_takes_the_lock_before_it_removes(tmp_path: Path) -> None:
    folder = tmp_path / "3-busy"
    folder.mkdir()
    fd = os.open(folder.with_suffix(scratch.LOCK), os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert scratch.clean(tmp_path) == ()
    os.close(fd)
    assert scratch.clean(tmp_path) == ("3-busy",)
