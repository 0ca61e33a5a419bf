"""The control socket: ``run/control.sock``, mode 0600, one JSON object a line in each direction.

A request is one line, ``{"do": "status" | "stop" | "handover" | "restart" | "logs", …}``. ``{}`` acknowledges it at once, so
that a supervisor that is stuck is told from one that has nothing to say yet. Answers are lines; the last one holds ``exit``, the
exit code that the asking command leaves with, and ``error`` where there is something to say.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from build.errors import TwinfoldError

NAME = "control.sock"
REQUEST_BYTES = 1 << 20
CONNECT_S = 5.0
BREATH_S = 0.2

Answers = Iterator[Mapping[str, Any]]
Handler = Callable[[Mapping[str, Any]], Answers]


class ControlServer:
    """Answers requests, each connection in a thread of its own. ``handlers`` are generators of answers, by ``do``."""

    def __init__(self, run_dir: Path, handlers: Mapping[str, Handler]) -> None:
        self._run_dir, self._handlers = run_dir, handlers
        self._socket: socket.socket | None = None
        self._threads: set[threading.Thread] = set()

    def start(self) -> None:
        """Listen. The caller holds the folder's supervisor lock, so an old socket is nobody's."""
        (self._run_dir / NAME).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        with _short_path(self._run_dir) as path:
            before = os.umask(0o177)
            try:
                listening.bind(path)
            finally:
                os.umask(before)
        listening.listen(16)
        self._socket = listening
        threading.Thread(target=self._accept, args=(listening,), name="control", daemon=True).start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Stop listening; answers under way get a moment to end."""
        if self._socket:
            listening, self._socket = self._socket, None
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
            with contextlib.suppress(OSError):  # of a folder that may not be written to any more; the next supervisor replaces it
                (self._run_dir / NAME).unlink(missing_ok=True)
        deadline = time.monotonic() + timeout_s
        for thread in list(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                if self._socket is not listening:
                    return
                time.sleep(BREATH_S)  # out of descriptors for now: the socket itself is sound
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="control-answer", daemon=True)
            self._threads = {t for t in self._threads if t.is_alive()} | {thread}
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(CONNECT_S)
        with connection, contextlib.suppress(OSError), connection.makefile("rwb") as stream:
            line = stream.readline(REQUEST_BYTES)
            connection.settimeout(None)  # a reader may rest for as long as it likes: a pager does
            stream.write(b"{}\n")
            stream.flush()
            for answer in self._answers(line):
                stream.write(json.dumps(answer).encode() + b"\n")
                stream.flush()

    def _answers(self, line: bytes) -> Answers:
        try:
            request = json.loads(line)
            handler = self._handlers[request["do"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            yield {"exit": 2, "error": f"no such request: one of {', '.join(self._handlers)} in a JSON line was expected"}
            return
        try:
            yield from handler(request)
        except TwinfoldError as error:
            yield {"exit": error.exit_code, "error": str(error)}
        except (ValueError, TypeError, AttributeError) as error:
            yield {"exit": 2, "error": f"the request's fields are not as they should be: {error}"}


def ask(run_dir: Path, request: Mapping[str, Any]) -> Answers | None:
    """The answers of the supervisor that serves from this folder, as they come; None where none listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(CONNECT_S)
        with _short_path(run_dir) as path:
            connection.connect(path)
        connection.sendall(json.dumps(request).encode() + b"\n")
        if not connection.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError
        connection.settimeout(None)
    except TimeoutError:
        connection.close()
        raise TwinfoldError(
            f"the supervisor of {run_dir.parent} does not answer, it is stopped or stuck: its pid is in {run_dir}/supervisor.lock"
        ) from None
    except OSError:
        connection.close()
        return None
    return _lines(connection)


def last(answers: Answers) -> Mapping[str, Any]:
    """The answer that ends a request."""
    found = list(answers)
    if not found or "exit" not in found[-1]:
        raise TwinfoldError("the supervisor ended before it answered")
    return found[-1]


def _lines(connection: socket.socket) -> Answers:
    with connection, connection.makefile("rb") as stream:
        for line in stream:
            if answer := json.loads(line):  # all but the acknowledgement
                yield answer


@contextlib.contextmanager
def _short_path(run_dir: Path) -> Iterator[str]:
    """The socket's path by way of an open folder: a socket address holds 107 bytes, and state folders may lie deep."""
    fd = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{NAME}"
    finally:
        os.close(fd)
