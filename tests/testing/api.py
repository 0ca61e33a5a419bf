"""A small API server with scripted answers, over real sockets, for what asks engines."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Route = Callable[[dict[str, Any]], tuple[int, str, bytes]]
JSON, SSE = "application/json", "text/event-stream"


def completion(
    content: str, finish: str = "stop", usage: dict[str, Any] | None = None, **message: object
) -> tuple[int, str, bytes]:
    """A whole chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return 200, JSON, json.dumps({"model": "m", "choices": [choice], "usage": usage or {}}).encode()


def streamed(*chunks: object) -> tuple[int, str, bytes]:
    """A streamed answer of these events."""
    return 200, SSE, ("".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n").encode()


@dataclass
class Api:
    """A running server: where it is, and what it was asked (path, headers, body)."""

    url: str
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)


@contextlib.contextmanager
def serving(routes: dict[str, Route]) -> Iterator[Api]:
    """Serve the routes by path on a free port of loopback until the block ends."""
    api = Api("")

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(raw) if raw else {}
            api.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status, content_type, content = routes.get(
                self.path, lambda _: (404, JSON, b'{"error": {"message": "unknown path"}}')
            )(body)
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer  # noqa: N815 - the base class calls these names

        def log_message(self, *_: object) -> None:
            """Nothing: tests read what was asked from the Api."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def raw_server(behave: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """Accept connections and hand each to ``behave`` with an event that is set at the end; yields the API's address."""
    ended = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def one(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            behave(connection, ended)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threads.append(threading.Thread(target=one, args=(connection,), daemon=True))
                threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for thread in threads:
            thread.join()
