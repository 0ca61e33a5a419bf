"""A wall clock that can be made to jump under one program and its children, while the machine's own stays what it is.

A library of a few lines stands in front of libc's ``clock_gettime``: CLOCK_REALTIME is moved by the seconds that a file holds
(a mapped signed 64-bit number), every other clock is left alone, as on a machine whose time is set.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

SOURCE = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *moved;

__attribute__((constructor)) static void map_it(void) {
    const char *path = getenv("SOAK_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (at != MAP_FAILED) moved = at;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int rc = syscall(SYS_clock_gettime, clock, out);
    if (rc == 0 && clock == CLOCK_REALTIME && moved) out->tv_sec += *moved;
    return rc;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """Made in ``folder``; programs started with :attr:`environment` see the moved time."""

    def __init__(self, folder: Path) -> None:
        self._library, self._moved = folder / "clock.so", folder / "clock"
        source = folder / "clock.c"
        source.write_text(SOURCE)
        compiler = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(source)]
        subprocess.run(compiler, check=True, capture_output=True)
        self.move(0)

    @property
    def environment(self) -> dict[str, str]:
        """For the programs whose clock may jump."""
        return {"LD_PRELOAD": str(self._library), "SOAK_CLOCK": str(self._moved)}

    def move(self, seconds: int) -> None:
        """Be so many seconds off from now on."""
        with self._moved.open("r+b" if self._moved.exists() else "wb") as file:
            file.write(struct.pack("<q", seconds))
