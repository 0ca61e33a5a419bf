"""Scratch folders in ``store/tmp``: one a process, held by a flock, which tells a dead process's leftovers from work.

Order: the lock file is made and locked, then the folder. The cleaner takes the lock, removes the folder, then the lock file;
a maker that loses the race for a just-made lock file sees that its name is gone and makes another.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path

from build.store.durable import remove_tree

LOCK = ".lock"


class Scratch:
    """This process's folder below ``parent``, made on first use and removed by :meth:`close`. Safe to use from threads."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._folder: Path | None = None
        self._fd = -1
        self._guard = threading.Lock()

    def new(self, name: str) -> Path:
        """A path of that name that nothing has yet, in a folder of its own."""
        with self._guard:
            if self._folder is None:
                self._folder = self._claim()
            folder = self._folder
        made = folder / os.urandom(6).hex()
        made.mkdir()
        return made / name

    def close(self) -> None:
        """Remove all that is left, then the lock."""
        with self._guard:
            if self._folder is not None:
                with suppress(OSError):  # a thread that is being ended may still write there; the next run cleans it
                    remove_tree(self._folder)
                self._folder.with_suffix(LOCK).unlink(missing_ok=True)
                os.close(self._fd)
                self._folder = None

    def _claim(self) -> Path:
        self._parent.mkdir(parents=True, exist_ok=True)
        while True:
            folder = self._parent / f"{os.getpid()}-{os.urandom(4).hex()}"
            fd = os.open(folder.with_suffix(LOCK), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                self._fd = fd
                folder.mkdir(mode=0o700)
                return folder
            os.close(fd)


def clean(parent: Path) -> tuple[str, ...]:
    """Remove what dead processes left below ``parent``; the names removed."""
    try:
        names = sorted(p.name for p in parent.iterdir())
    except FileNotFoundError:
        return ()
    locks = {n for n in names if n.endswith(LOCK)}
    # A folder's lock is made before it, so a folder without one belongs to nobody.
    owned = {n.removesuffix(LOCK) for n in locks}
    removed = [n for n in names if n not in locks and n not in owned]
    for name in removed:
        remove_tree(parent / name)
    removed += [n.removesuffix(LOCK) for n in sorted(locks) if _clean_one(parent / n)]
    return tuple(removed)


def _clean_one(lock: Path) -> bool:
    """True where the lock's owner is dead and its folder is gone now."""
    with suppress(FileNotFoundError):
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(lock.with_suffix(""))
            lock.unlink()
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True
    return False
