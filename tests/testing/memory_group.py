"""A memory control group as one node's memory: what its processes use of its limit is what a proc tree says.

Real pressure without filling the machine: everything started inside takes real memory, and ``meminfo`` says what is left of the
group's limit, written anew every 20 ms. Both kinds of control groups: v1 (``memory.usage_in_bytes``) and v2 (``memory.current``).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Self

ROOTS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
PERIOD_S = 0.02


class NoGroups(Exception):
    """Memory groups cannot be made here."""


class MemoryGroup:
    """Use as a context manager; ``root`` is the proc tree. Processes join by :meth:`add`, their children with them."""

    def __init__(self, root: Path, limit_bytes: int) -> None:
        self.root, self.limit_bytes = root, limit_bytes
        self.lowest_bytes = limit_bytes
        self._v2 = (ROOTS[1] / "cgroup.controllers").exists()
        self._folder = ROOTS[self._v2] / f"twinfold-test-{os.getpid()}-{time.monotonic_ns()}"
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir()
            usage = self.used_bytes()
            assert usage >= 0
        except OSError as error:
            raise NoGroups(str(error)) from None
        self.root.mkdir(parents=True)
        self._write_once()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        end = time.monotonic() + 30
        while time.monotonic() < end:  # a group is removed once nothing of it lives
            with contextlib.suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.05)

    def add(self, pid: int) -> None:
        """Move a process in."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    def used_bytes(self) -> int:
        """What its processes hold and cannot be had back by dropping file pages."""
        used = int((self._folder / ("memory.current" if self._v2 else "memory.usage_in_bytes")).read_text())
        rows = dict(line.split() for line in (self._folder / "memory.stat").read_text().splitlines())
        name = "file" if self._v2 else "total_cache"
        shared = "shmem" if self._v2 else "total_shmem"
        return max(0, used - int(rows.get(name, 0)) + int(rows.get(shared, 0)))

    def available_bytes(self) -> int:
        """What is left."""
        return max(0, self.limit_bytes - self.used_bytes())

    def _write(self) -> None:
        while not self._stopped.wait(PERIOD_S):
            self._write_once()

    def _write_once(self) -> None:
        left = self.available_bytes()
        self.lowest_bytes = min(self.lowest_bytes, left)
        rows = {"MemTotal": self.limit_bytes, "MemFree": left, "MemAvailable": left, "SwapTotal": 0, "SwapFree": 0}
        made = self.root / "meminfo.new"
        made.write_text("".join(f"{name + ':':<15}{count >> 10:>10} kB\n" for name, count in rows.items()))
        made.rename(self.root / "meminfo")
