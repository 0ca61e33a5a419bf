"""Hashes of trees, and the cache of hashes."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import mmap
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from build.store import direct, fingerprints, hashing
from build.store.fingerprints import Fingerprints

BIG = b"x" * (fingerprints.SMALL_BYTES + 1)


def tree(root: Path) -> Path:
    (root / "d").mkdir(parents=True)
    (root / "d" / "one").write_bytes(b"one")
    (root / "two").write_bytes(b"two")
    (root / "link").symlink_to("d/one")
    return root


def hash_of(root: Path) -> str:
    return hashing.tree_hash(hashing.tree(root))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte": lambda r: (r / "two").write_bytes(b"twO"),
    "a name": lambda r: (r / "two").rename(r / "three"),
    "the executable bit": lambda r: (r / "two").chmod(0o755),
    "an empty folder": lambda r: (r / "e").mkdir(),
    "a link's target": lambda r: ((r / "link").unlink(), (r / "link").symlink_to("two")),
    "a file in place of a link": lambda r: ((r / "link").unlink(), (r / "link").write_bytes(b"d/one")),
    "two contents swapped": lambda r: ((r / "two").write_bytes(b"one"), (r / "d" / "one").write_bytes(b"two")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_that_counts_changes_the_hash(tmp_path: Path, change: str) -> None:
    root = tree(tmp_path / "t")
    before = hash_of(root)
    CHANGES[change](root)
    assert hash_of(root) != before


def test_times_owners_and_the_folder_s_place_do_not_count(tmp_path: Path) -> None:
    one, two = tree(tmp_path / "a"), tree(tmp_path / "b" / "c")
    os.utime(two / "two", (1, 1))
    (two / "two").chmod(0o600)
    assert hash_of(one) == hash_of(two)


def test_a_pipe_in_a_tree_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="neither a file"):
        hashing.tree(tmp_path)


def aged(path: Path, content: bytes) -> Path:
    """A file that was changed long enough ago to be trusted."""
    path.write_bytes(content)
    deadline = time.monotonic() + 30
    while fingerprints.racy(path.stat(), time.time_ns()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return path


def kept(cache: Path) -> int:
    with sqlite3.connect(cache) as db:
        count: int = db.execute("SELECT count(*) FROM seen").fetchone()[0]
    db.close()
    return count


def test_a_file_that_was_not_touched_is_answered_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = aged(tmp_path / "f", BIG)
    first = Fingerprints(tmp_path / "cache")
    wanted = first.sha256(file)
    first.save()
    monkeypatch.setattr(fingerprints, "sha256_file", lambda _: "read again")
    assert Fingerprints(tmp_path / "cache").sha256(file) == wanted == hashing.sha256_bytes(BIG)


def test_a_changed_byte_with_its_old_time_put_back_is_seen(tmp_path: Path) -> None:
    file = aged(tmp_path / "f", BIG)
    cache = Fingerprints(tmp_path / "cache")
    cache.sha256(file)
    before = file.stat()
    changed = b"y" + BIG[1:]
    with file.open("r+b") as same:
        same.write(b"y")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert cache.sha256(file) == hashing.sha256_bytes(changed)


def test_the_hash_of_a_file_changed_a_moment_ago_is_not_kept(tmp_path: Path) -> None:
    cache = Fingerprints(tmp_path / "cache")
    file = tmp_path / "f"
    file.write_bytes(BIG)
    ahead_ns = time.time_ns() + 10**12
    os.utime(file, ns=(ahead_ns, ahead_ns))
    cache.sha256(file)
    cache.save()
    assert not (tmp_path / "cache").exists()


def test_small_files_are_read_each_time(tmp_path: Path) -> None:
    cache = Fingerprints(tmp_path / "cache")
    cache.sha256(aged(tmp_path / "f", b"small"))
    cache.save()
    assert not (tmp_path / "cache").exists()


def test_two_caches_over_one_file_both_keep_what_they_learnt(tmp_path: Path) -> None:
    files = [aged(tmp_path / n, BIG + n.encode()) for n in ("a", "b")]
    caches = [Fingerprints(tmp_path / "cache") for _ in files]
    for cache, file in zip(caches, files, strict=True):
        cache.sha256(file)
    for cache in caches:
        cache.save()
    assert kept(tmp_path / "cache") == 2


def test_a_cache_that_is_no_database_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"not a database" * 100)
    cache = Fingerprints(tmp_path / "cache")
    assert cache.sha256(aged(tmp_path / "f", BIG)) == hashing.sha256_bytes(BIG)
    cache.save()


def cached_pages(path: Path) -> int:
    """Pages of a file that are in the page cache (mincore(2))."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as memory:
        pages = (ctypes.c_ubyte * -(-len(memory) // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(memory)
        code = ctypes.CDLL(None, use_errno=True).mincore(ctypes.byref(first), ctypes.c_size_t(len(memory)), pages)
        del first
        assert code == 0, os.strerror(ctypes.get_errno())
        return sum(page & 1 for page in pages)


def cold(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


BLOCK = direct.BLOCK_BYTES


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 4097])
@pytest.mark.parametrize("way", ["sha256", "_dropping"])
def test_every_way_to_read_a_large_file_comes_to_the_same_hash(tmp_path: Path, size: int, way: str) -> None:
    content = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "f").write_bytes(content[:size])
    assert getattr(direct, way)(tmp_path / "f") == hashlib.sha256(content[:size]).hexdigest()


def test_a_file_system_without_direct_reads_is_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path) -> str:
        raise OSError(errno.EINVAL, "Invalid argument")

    (tmp_path / "f").write_bytes(b"content")
    monkeypatch.setattr(direct, "_direct", refuse)
    assert direct.sha256(tmp_path / "f") == hashlib.sha256(b"content").hexdigest()


def test_hashing_a_large_file_leaves_the_page_cache_as_it_was(tmp_path: Path) -> None:
    content = os.urandom(1 << 20) * (hashing.LARGE_BYTES >> 20) + b"end"
    large = cold(tmp_path / "large", content)
    if cached_pages(large):
        pytest.skip("this file system is the page cache")
    assert hashing.sha256_file(large) == hashlib.sha256(content).hexdigest()
    assert cached_pages(large) == 0


def test_a_file_that_gets_shorter_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"x" * (BLOCK + 4096))
    monkeypatch.setattr(os, "preadv", lambda _fd, _blocks, _offset: 512)
    with pytest.raises(OSError, match="read short"):
        direct.sha256(tmp_path / "f")
