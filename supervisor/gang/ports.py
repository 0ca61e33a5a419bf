"""Whether a TCP port is free, and who has it when not: ``/proc/net/tcp`` and the processes' descriptors.

Format of the table: proc_net_tcp(5); state 0A is LISTEN. A process of another user hides its descriptors.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from pathlib import Path

from build.machine import PROC
from supervisor.runners import procid
from supervisor.runners.docker_owner import container_of
from supervisor.runners.protocol import MARKER

_LISTEN = "0A"


def taken(host: str, port: int) -> bool:
    """Whether nobody can listen on the address now. Connections that are only closing (TIME_WAIT) do not count."""
    family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def owner(port: int, proc: Path = PROC) -> str:
    """Who listens on the port: ``pid 12 (nginx -g …)``, or what can be said where that is hidden."""
    inodes = _listening(port, proc)
    for pid in _pids(proc) if inodes else ():
        if _sockets(pid, proc) & inodes:
            container, rank = container_of(pid, proc), procid.marked(pid, MARKER, proc)
            where = f" in container {container}" if container else ""
            return f"pid {pid} ({procid.command(pid, proc)}){where}" + (f", {_told(rank)}" if rank else "")
    return "a process of another user" if inodes else "an unknown process"


def _told(mark: str) -> str:
    launch, _, rank = mark.rpartition("/")
    return f"rank {rank} of launch {launch}"


def _listening(port: int, proc: Path) -> frozenset[str]:
    found = set()
    for table in ("net/tcp", "net/tcp6"):
        try:
            rows = (proc / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in map(str.split, rows):
            if row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{row[9]}]")
    return frozenset(found)


def _pids(proc: Path) -> tuple[int, ...]:
    return tuple(sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()))


def _sockets(pid: int, proc: Path) -> frozenset[str]:
    found = set()
    try:
        for fd in (proc / str(pid) / "fd").iterdir():
            found.add(str(fd.readlink()))
    except OSError:
        pass
    return frozenset(found)
