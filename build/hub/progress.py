"""How far a download is, at what rate, and how long it will take: arithmetic over samples, no clock of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from build.units import GIB, MIB

WINDOW_S = 20.0


class Progress:
    """Counts bytes as they arrive. ``done_bytes`` may start with what an earlier run fetched; the rate counts new ones only."""

    def __init__(self, total_bytes: int, done_bytes: int, clock: Callable[[], float]) -> None:
        self._guard = threading.Lock()
        self._clock, self._total, self._done = clock, total_bytes, done_bytes
        self._samples = deque([(clock(), done_bytes)])

    def add(self, count: int) -> None:
        """``count`` more bytes are there (negative: were thrown away)."""
        with self._guard:
            self._done += count
            now = self._clock()
            if now - self._samples[-1][0] >= WINDOW_S / 40:
                self._samples.append((now, self._done))
            while len(self._samples) > 2 and now - self._samples[0][0] > WINDOW_S:
                self._samples.popleft()

    def text(self) -> str:
        """``41.3 of 196.2 GiB, 0.31 GiB/s, 8 min left``."""
        with self._guard:
            since, before = self._samples[0]
            rate = max(0, self._done - before) / max(self._clock() - since, 1e-6)
            return told(self._done, self._total, rate)


def told(done_bytes: int, total_bytes: int, rate: float) -> str:
    """Progress for a person; ``rate`` in bytes a second."""
    unit, name = (GIB, "GiB") if total_bytes >= GIB else (MIB, "MiB")
    amount = f"{done_bytes / unit:.1f} of {total_bytes / unit:.1f} {name}"
    if rate <= 0:
        return f"{amount}, waiting"
    speed = f"{rate / GIB:.2f} GiB/s" if rate >= GIB / 10 else f"{rate / MIB:.1f} MiB/s"
    return f"{amount}, {speed}, {left(max(0, total_bytes - done_bytes) / rate)} left"


def left(seconds: float) -> str:
    """A time span in its largest fitting unit."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
