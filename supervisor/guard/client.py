"""One guard's stream: connect without waiting, read what is there, speak, connect again.

Sockets lie at ``<folder>/guard<rank>.sock``, mode 0600. A socket address holds 107 bytes and state folders may lie deep, so the
folder is opened first and the socket is reached through it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path

from supervisor.guard.wire import Line, parse

READ_BYTES = 64 << 10


class StreamEnded(Exception):
    """The guard closed the stream, or is gone."""


class GuardClient:
    """A connection to a guard. Not thread-safe: one watcher owns it."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._rest = b""

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def read(self) -> list[tuple[bytes, Line]]:
        """Every whole line that has come, as it stands and as it was read. ``StreamEnded`` at the end."""
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            raise StreamEnded from None
        if not data:
            raise StreamEnded
        *whole, self._rest = (self._rest + data).split(b"\n")
        read = ((line, parse(line)) for line in whole)
        return [(line, found) for line, found in read if found is not None]

    def say(self, **message: object) -> None:
        """One command. A guard that does not take it now (it is stopped) misses it."""
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """Leave; the guard goes on."""
        self._socket.close()


def connect(folder: Path, name: str) -> GuardClient | None:
    """A client of the guard that listens at ``<name>.sock`` there, or None where none does."""
    return connect_to(folder, f"{name}.sock")


def connect_to(folder: Path, file: str) -> GuardClient | None:
    """The same by the socket's whole name."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.setblocking(False)
            connection.connect(f"/proc/self/fd/{fd}/{file}")
        finally:
            os.close(fd)
    except OSError:
        connection.close()
        return None
    return GuardClient(connection)
