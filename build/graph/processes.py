"""Programs run by builders: output in a log file, no terminal, dead when the build is interrupted or its process dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from build.errors import BuildFailed

# Ask the kernel for SIGKILL when the parent goes, then become the program. A child that outlived a killed build would go on
# writing into scratch that the next run has cleaned. 1 is PR_SET_PDEATHSIG of prctl(2).
TRAMPOLINE = (
    "import ctypes,os,sys;ctypes.CDLL(None).prctl(1,9);os.getppid()==int(sys.argv[1]) or os._exit(137);"
    "os.execve(sys.argv[2],sys.argv[2:],os.environ)"
)
LOG_TAIL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended; ``stdout`` is what it printed there, ``log`` the file that has all of stderr."""

    code: int
    stdout: str
    log: Path

    def disk_full(self) -> bool:
        """True where the log says that a write found no room; Zig's word for it, and libc's."""
        return any(word in _tail(self.log) for word in ("NoSpaceLeft", "No space left on device", "Disk quota exceeded"))

    def last_words(self) -> str:
        """The first line of the log that speaks of an error, else its last line, for a person."""
        lines = [line.strip() for line in _tail(self.log).splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()]
        return (errors or lines[-1:] or ["it said nothing"])[0][:300]


class Children:
    """The programs that run now, so that an interrupt can end them all from another thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def run(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path, stdin: int = subprocess.DEVNULL
    ) -> Finished:
        """Run one program to its end. ``BuildFailed`` where it cannot be started."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as errors:
            try:
                child = self._start(argv, cwd, env, (stdin, errors.fileno()))
            except OSError as error:
                raise BuildFailed(f"{argv[0]} cannot be run: {error.strerror}") from None
            try:
                out, _ = child.communicate()
            except BaseException:
                _kill(child)
                raise
            finally:
                with self._guard:
                    self._running.discard(child)
        return Finished(child.returncode, out.decode(errors="replace"), log)

    def end(self) -> None:
        """Kill what runs; nothing starts afterwards."""
        with self._guard:
            self._closed = True
            for child in self._running:
                _kill(child)

    def _start(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], streams: tuple[int, int]) -> subprocess.Popen[bytes]:
        with self._guard:
            if self._closed:
                raise KeyboardInterrupt
            child = subprocess.Popen(
                [sys.executable, "-ISc", TRAMPOLINE, str(os.getpid()), *argv],
                cwd=cwd, env=dict(env), stdin=streams[0], stdout=subprocess.PIPE, stderr=streams[1], start_new_session=True,
            )  # fmt: skip
            self._running.add(child)
            return child


def _kill(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _tail(log: Path) -> str:
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace")
    return ""
