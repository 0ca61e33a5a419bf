"""Hashes of large files that were not touched since: (file system, inode, size, mtime, ctime) -> sha256.

git's racy rule: a file that changed less than a moment before it was hashed could change again within the same tick of the
file system's clock and look the same, so its hash is not kept. Small files are hashed each time: that costs less than asking,
and trusts nothing. The cache lies beside the store it speaks of; deleting it costs time only.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

from build.hub.files import GIT_BLOB, git_blob
from build.store.hashing import FileHash, sha256_file

FINGERPRINTS = "fingerprints.sqlite"  # beside the store
SMALL_BYTES = 64 * 1024
RACY_NS = 100_000_000  # the kernel's coarse clock, which stamps files, lags by one tick of at most 10 ms
COARSE_NS = 2_000_000_000  # file systems that keep whole seconds (or two)
SCHEMA = "CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, sha256 TEXT NOT NULL) WITHOUT ROWID"


def identity(status: os.stat_result, file_system: str) -> str:
    """What must be equal for two looks at a file to be the same content."""
    return f"{file_system}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def racy(status: os.stat_result, hashed_at_ns: int) -> bool:
    """True where a change after the hash could hide behind the same times."""
    newest = max(status.st_mtime_ns, status.st_ctime_ns)
    tick = COARSE_NS if status.st_ctime_ns % 1_000_000_000 == 0 else RACY_NS
    return newest > hashed_at_ns - tick


class Fingerprints:
    """A cache in one SQLite file; safe with several processes and threads. A cache that cannot be used is no cache."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._guard = threading.Lock()
        self._file_systems: dict[int, str] = {}
        self._known: dict[str, str] | None = None
        self._new: dict[str, str] = {}

    def sha256(self, path: Path) -> str:
        """Hex sha256 of a regular file, from the cache where that is safe."""
        return self._digest(path, "", sha256_file)

    def git_blob(self, path: Path) -> str:
        """Hex git blob id of a regular file, in the same way."""
        return self._digest(path, "git:", git_blob)

    def at_hand(self, path: Path, kind: str) -> str | None:
        """A hash that takes no reading to speak of, by the kinds of :class:`build.hub.files.Proof`: of a small file, or known."""
        work, prefix = (git_blob, "git:") if kind == GIT_BLOB else (sha256_file, "")
        status = path.stat()
        if status.st_size <= SMALL_BYTES:
            return work(path)
        with self._guard:
            return self._load().get(prefix + self._identity(path, status))

    def _digest(self, path: Path, kind: str, work: FileHash) -> str:
        status = path.stat()
        if status.st_size <= SMALL_BYTES:
            return work(path)
        name = kind + self._identity(path, status)
        with self._guard:
            known = self._load().get(name)
        if known is not None:
            return known
        started_ns = time.time_ns()
        found = work(path)
        if kind + self._identity(path, path.stat()) == name and not racy(status, started_ns):
            with self._guard:
                self._load()[name] = self._new[name] = found
        return found

    def save(self) -> None:
        """Keep what was learnt."""
        with self._guard, suppress(sqlite3.Error, OSError):
            if self._new:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with closing(self._open()) as db, db:
                    db.execute(SCHEMA)
                    db.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?)", self._new.items())
                self._new = {}

    def _identity(self, path: Path, status: os.stat_result) -> str:
        device = status.st_dev
        if device not in self._file_systems:
            # The file system's own id where it has one: device numbers change over a reboot.
            self._file_systems[device] = f"{os.statvfs(path).f_fsid:x}" if os.statvfs(path).f_fsid else f"dev{device:x}"
        return identity(status, self._file_systems[device])

    def _load(self) -> dict[str, str]:
        if self._known is None:
            self._known = {}
            with suppress(sqlite3.Error):
                if self._file.exists():
                    with closing(self._open()) as db:
                        self._known.update(db.execute("SELECT id, sha256 FROM seen"))
        return self._known

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._file, timeout=5)
