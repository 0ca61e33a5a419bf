"""One build at a time in a state folder: a flock on a file that names its holder."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from build.errors import Refused

NAME = "build.lock"


class RunLock:
    """Held from :meth:`take` to :meth:`release`, and by the kernel's word gone with the process."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / "run" / NAME
        self._fd = -1

    def take(self, say: Callable[[str], None], *, wait: bool = True) -> bool:
        """Wait for it, saying for whom; True where it had to wait. ``Refused`` with ``wait=False``.

        A state folder that cannot be written has no builds to keep apart: nothing is held there, and whatever must be made
        fails with its own reason.
        """
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno in {errno.EROFS, errno.EACCES, errno.ENOSPC}:
                return False
            raise
        waited = not self._try()
        if waited:
            holder = f"another doit (pid {self._holder()}) works in {self._file.parent.parent}"
            if not wait:
                self.release()
                raise Refused(f"{holder}: wait for it, or stop it")
            say(f"waiting: {holder}")
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        return waited

    def release(self) -> None:
        """Let the next one go on."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _try(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _holder(self) -> str:
        return os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "unknown"
