"""Programs of the testbed: started in a session of their own, known by pid, start time and boot, ended for certain."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from supervisor.runners import procid
from supervisor.runners.procid import ProcessId

_children: set[ProcessId] = set()  # started by this very process, which must take their exit status


def start(argv: list[str], log: Path, environ: dict[str, str] | None = None) -> ProcessId:
    """Start a program that outlives this one; its output goes to ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawnp(
        argv[0],
        argv,
        os.environ if environ is None else environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    who = procid.identify(pid)
    if who is None:
        raise RuntimeError(f"{argv[0]} ended at once: see {log}")
    _children.add(who)
    return who


def end(who: ProcessId, number: int = signal.SIGKILL, wait_s: float = 10.0) -> bool:
    """Send a signal to exactly this process and wait for its end; False where it still runs after ``wait_s``."""
    fd = procid.open_pidfd(who)
    if fd is None:
        return True
    try:
        signal.pidfd_send_signal(fd, number)
        ready, _, _ = select.select([fd], [], [], wait_s)
    except ProcessLookupError:
        ready = [fd]
    finally:
        os.close(fd)
    if ready and who in _children:
        os.waitpid(who.pid, 0)
        _children.discard(who)
    return bool(ready)


def end_all(pids: Callable[[], Iterable[int]], wait_s: float = 15.0) -> None:
    """Kill every process that ``pids`` finds, again until it finds none: what forks meanwhile is found the next time round."""
    until = time.monotonic() + wait_s
    while found := [who for pid in pids() if (who := procid.identify(pid)) and procid.runs(who)]:
        if time.monotonic() > until:
            raise RuntimeError("these processes of the testbed do not end: " + ", ".join(str(who.pid) for who in found))
        for who in found:
            end(who, wait_s=1.0)


def gone(pid: int) -> bool:
    """Whether no such process runs; a zombie that nobody has waited for yet does not."""
    who = procid.identify(pid)
    return who is None or not procid.runs(who)


def wait_until(happened: Callable[[], bool], deadline_s: float, what: str) -> None:
    """Wait until ``happened()``; an error that says ``what`` where it has not after ``deadline_s``."""
    until = time.monotonic() + deadline_s
    while not happened():
        if time.monotonic() > until:
            raise RuntimeError(f"{what} after {deadline_s:g} s")
        time.sleep(0.02)
