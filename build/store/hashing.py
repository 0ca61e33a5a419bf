"""sha256 of files and trees. A tree's hash covers names, kinds, the executable bit and contents; never times, owners or sizes."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from build.store import direct

LARGE_BYTES = 16 << 20  # from here on a file is read past the page cache

FileHash = Callable[[Path], str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name of a tree. ``kind``: file, program, link or folder.

    ``sha256`` is of the content; of a link, of its target; of a folder, "".
    """

    path: str
    kind: str
    size: int
    sha256: str


def sha256_bytes(data: bytes) -> str:
    """Hex sha256."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's content, read now; a large one past the page cache."""
    if path.stat().st_size >= LARGE_BYTES:
        return direct.sha256(path)
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree(root: Path, hash_file: FileHash = sha256_file) -> tuple[Entry, ...]:
    """All entries below ``root``, sorted by path; ``ValueError`` for anything but files, folders and links."""
    return tuple(sorted((_entry(path, rel, hash_file) for path, rel in walk(root)), key=lambda e: e.path))


def walk(root: Path) -> Iterator[tuple[Path, str]]:
    """Every name below ``root`` with its path relative to it, in no order; links are not followed. Raises what listing raises."""
    waiting = [(root, "")]
    while waiting:
        folder, prefix = waiting.pop()
        with os.scandir(folder) as found:
            for item in found:
                rel = f"{prefix}{item.name}"
                yield Path(item.path), rel
                if item.is_dir(follow_symlinks=False):
                    waiting.append((Path(item.path), rel + "/"))


def tree_hash(entries: Iterable[Entry]) -> str:
    """Hex sha256 over one line an entry: ``kind sha256 path``, NUL-ended, sorted by path. A function of the entries alone."""
    digest = hashlib.sha256()
    for entry in sorted(entries, key=lambda e: e.path):
        digest.update(f"{entry.kind} {entry.sha256} {entry.path}\0".encode())
    return digest.hexdigest()


def _entry(path: Path, rel: str, hash_file: FileHash) -> Entry:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return Entry(rel, "link", 0, sha256_bytes(os.fsencode(path.readlink())))
    if stat.S_ISDIR(status.st_mode):
        return Entry(rel, "folder", 0, "")
    if stat.S_ISREG(status.st_mode):
        return Entry(rel, "program" if status.st_mode & 0o100 else "file", status.st_size, hash_file(path))
    raise ValueError(f"{path} is neither a file, a folder nor a link")
