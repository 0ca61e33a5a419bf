"""The content-addressed store: ``<key>-<name>`` paths, each with its record ``<key>-<name>.json`` beside it.

The record is written last: a path without a readable one is garbage, whatever it holds, and is made again where something needs
it. Work happens in ``tmp/`` on the same file system; contents and folders are fsynced before the rename, and paths are read-only
afterwards. Two processes that make the same artefact at once are both right: the second finds the first's record and drops its
own work.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from build.errors import StoreDamaged
from build.store import durable, hashing, record, scratch
from build.store.record import Record

ENTRY = re.compile(r"[0-9a-f]{32}-[A-Za-z0-9_][A-Za-z0-9_.+-]*")
TMP = "tmp"
LOCK = ".lock"


class Store:
    """One store folder. ``hash_file`` is how contents are hashed (a cache may answer for files that were not touched)."""

    def __init__(self, root: Path, hash_file: hashing.FileHash = hashing.sha256_file) -> None:
        self.root = root
        self.hash_file = hash_file
        self.scratch = scratch.Scratch(root / TMP)
        self.unreadable: dict[str, str] = {}  # entry -> what is wrong with its record, of those that were asked for
        self._seen: dict[str, Record] = {}

    def path(self, entry: str) -> Path:
        """Where an entry lies."""
        return self.root / entry

    def record_path(self, entry: str) -> Path:
        """Where its record lies."""
        return self.root / f"{entry}.json"

    def find(self, entry: str) -> Record | None:
        """The record of a finished entry; None where none can be read or its path is gone. Contents are not read."""
        seen = self._seen.get(entry)
        if seen is not None:
            return seen
        path = f"{self.root}/{entry}"  # plain strings: a run with nothing to do asks this for every artefact
        try:
            with open(f"{path}.json", "rb", buffering=0) as file:  # noqa: PTH123
                content = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except IsADirectoryError:
            self.unreadable[entry] = f"the record of {entry} is a folder: run `doit repair`"
            return None
        try:
            found = record.from_json(content, entry)
        except StoreDamaged as error:
            self.unreadable[entry] = str(error)
            return None
        if not os.path.lexists(path):
            return None
        self._seen[entry] = found
        return found

    def output(self, key: str, name: str) -> str | None:
        """The index that :func:`build.graph.graph.resolve` asks."""
        found = self.find(f"{key}-{name}")
        return None if found is None else found.output

    def need(self, entry: str) -> Record:
        """The record of an entry that must be there."""
        found = self.find(entry)
        if found is None:
            raise StoreDamaged(f"{entry} is not in {self.root}: run `doit`, or `doit repair` if it was there before")
        return found

    def register(self, made: Path, new: Record) -> Record:
        """Move finished work into the store. Returns the record that counts: an earlier one of the same entry wins."""
        durable.seal(made)
        with self.exclusive():
            self._seen.pop(new.entry, None)
            there = self.find(new.entry)
            if there is None:
                self._put(made, new)
        durable.remove_tree(made)
        return there or new

    def _put(self, made: Path, new: Record) -> None:
        """A path without a readable record (its maker died, or the record is damaged) stays where it holds the same."""
        target = self.root / new.entry
        if new.entry in self.unreadable:
            self.forget(new.entry)
        if os.path.lexists(target) and not _holds(target, new):
            self.discard(new.entry)
        if os.path.lexists(target):
            durable.seal(target)
        else:
            made.rename(target)
        durable.seal_top(target)
        durable.sync_folder(self.root)
        self.write_record(new)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Alone among all processes and threads while entries appear or go; held for moments, never while building."""
        self.root.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def write_record(self, new: Record) -> None:
        """Write an entry's record atomically and durably."""
        durable.replace_file(self.record_path(new.entry), record.to_json(new), scratch=self.scratch.new("record"))
        self._seen[new.entry] = new

    def forget(self, entry: str) -> None:
        """Take an entry's record away: from now on its path counts for nothing."""
        self._seen.pop(entry, None)
        durable.remove_tree(self.record_path(entry))
        durable.sync_folder(self.root)

    def discard(self, entry: str) -> Path | None:
        """Take an entry away: first its record, then its path, which is moved to scratch and returned for removal."""
        self.forget(entry)
        path = self.root / entry
        if not os.path.lexists(path):
            return None
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
        away = self.scratch.new(entry)
        path.rename(away)
        durable.sync_folder(self.root)
        return away

    def entries(self) -> Iterator[str]:
        """Every name that has a path or a record, sorted; whether it is whole is for :mod:`build.store.verify`."""
        try:
            names = {p.name.removesuffix(".json") for p in self.root.iterdir()}
        except FileNotFoundError:
            names = set()
        yield from sorted(n for n in names if ENTRY.fullmatch(n))

    def clean(self) -> tuple[str, ...]:
        """Remove what dead processes left in tmp."""
        return scratch.clean(self.root / TMP)

    def close(self) -> None:
        """Remove this process's scratch."""
        self.scratch.close()


def _holds(path: Path, wanted: Record) -> bool:
    """True where a path has just what a record says; read now."""
    try:
        return hashing.tree(path) == wanted.files
    except (OSError, ValueError):
        return False
