"""A socket in front of a daemon that changes words of what is asked of it, as a hand that edits a container would."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def edited(path: Path, daemon: Path, word: bytes, other: bytes) -> Iterator[None]:
    """Listen on ``path``, pass all on to ``daemon``, with ``other`` in place of ``word``; both are of one length."""
    assert len(word) == len(other)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(16)
        threading.Thread(target=_serve, args=(listener, daemon, word, other), daemon=True).start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            path.unlink()


def _serve(listener: socket.socket, daemon: Path, word: bytes, other: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(daemon))
            threading.Thread(target=_pump, args=(client, server, word, other), daemon=True).start()
            threading.Thread(target=_pump, args=(server, client, b"", b""), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, word: bytes, other: bytes) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            sink.sendall(piece.replace(word, other) if word else piece)
    for one in (source, sink):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
