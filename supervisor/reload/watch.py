"""Watches files by hints and by looking again every few seconds: some file systems send no events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from supervisor.gang.watchers import Watcher
from supervisor.reload.notices import hints

LOOK_EVERY_S = 5.0  # a hint comes at once; this is for files that send none
SETTLE_S = 0.1  # an editor may truncate a file first and write it then

Stamp = tuple[int, int, int] | None


def stamp(path: Path) -> Stamp:
    """Changes with the file, wherever a link leads; None where there is none."""
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


class ReloadWatch(Watcher):
    """Calls ``consider`` once at first, and then whenever one of the files has changed and lies still again.

    ``served`` names what is served: another is considered too, since a relaunch takes what waited.
    """

    def __init__(self, files: Sequence[Path], consider: Callable[[], None], served: Callable[[], str] = lambda: "") -> None:
        super().__init__("reload")
        self._files, self._consider, self._served = tuple(path.absolute() for path in files), consider, served

    def _watch(self) -> None:
        seen: tuple[object, ...] | None = None
        with hints(self._files, self.wake):
            while not self._stopped.is_set():
                now = self._now()
                if now == seen:
                    self._rested(LOOK_EVERY_S)
                elif not self._stopped.wait(SETTLE_S) and now == self._now():
                    seen = now
                    self._consider()

    def _now(self) -> tuple[object, ...]:
        return (*map(stamp, self._files), self._served())
