"""Who a process is beyond its number: pid, start time and boot id together are never used twice.

Start time is field 22 of ``/proc/<pid>/stat`` (clock ticks since boot), see proc_pid_stat(5). Readers take the root
of the proc tree.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from build import machine
from build.machine import PROC


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process of one boot. ``start_ticks`` are clock ticks since boot."""

    pid: int
    start_ticks: int
    boot_id: str


def boot_id(proc: Path = PROC) -> str:
    """This boot's id, empty where the kernel does not say."""
    try:
        return machine.boot_id(proc)
    except OSError:
        return ""


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """When the process started, or None where there is none. A zombie has one too."""
    fields = _stat(pid, proc)
    return int(fields[19]) if fields else None


def identify(pid: int, proc: Path = PROC) -> ProcessId | None:
    """The identity of a running process, or None."""
    ticks = start_ticks(pid, proc)
    return None if ticks is None else ProcessId(pid, ticks, boot_id(proc))


def runs(who: ProcessId, proc: Path = PROC) -> bool:
    """Whether exactly this process still runs; a zombie does not."""
    fields = _stat(who.pid, proc)
    return bool(fields) and int(fields[19]) == who.start_ticks and fields[0] not in "ZX" and boot_id(proc) == who.boot_id


def command(pid: int, proc: Path = PROC) -> str:
    """The process's name for a message: the command line's first words, else its short name, else empty."""
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
        shown = " ".join(w.decode(errors="replace") for w in words[:3] if w)
        return shown[:80] or (proc / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def open_pidfd(who: ProcessId) -> int | None:
    """A pidfd of exactly this process, or None when it is gone. The check comes after the open, so that a reused pid is seen."""
    try:
        fd = os.pidfd_open(who.pid)
    except OSError:
        return None
    if start_ticks(who.pid) == who.start_ticks and boot_id() == who.boot_id:
        return fd
    os.close(fd)
    return None


def with_environment(marker: str, proc: Path = PROC) -> tuple[int, ...]:
    """Pids of processes whose environment holds ``marker`` ("NAME=value"), of those that this user may read."""
    wanted = marker.encode()
    found = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return tuple(sorted(found))


def marked(pid: int, name: str, proc: Path = PROC) -> str:
    """The value of a variable in the process's environment, "" where it has none or hides it."""
    try:
        pairs = (proc / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((pair.decode(errors="replace").partition("=")[2] for pair in pairs if pair.startswith(f"{name}=".encode())), "")


def _stat(pid: int, proc: Path) -> list[str]:
    """Fields from the third (state) on; the second may hold spaces and parentheses."""
    try:
        return (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
