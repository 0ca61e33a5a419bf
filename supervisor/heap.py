"""One heap for all threads: the C library otherwise grows one for nearly each, and none of them gives back what it took."""

from __future__ import annotations

import contextlib
import ctypes

M_ARENA_MAX = -8  # malloc.h of the GNU C library


def share() -> None:
    """Call before any thread is started. Without the GNU C library nothing is done: others have one heap already.

    The interpreter's own lock mostly lets one thread allocate at a time, so that they hardly wait for each other here.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
