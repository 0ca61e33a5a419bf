"""The metrics server: hands out the last published snapshot, and has a new one made where that is older than a second.

What makes it takes what the supervisor knows already and asks nobody, so a scrape cannot hang on the gang. Bytes are rendered at
most once a second, whoever asks. Each connection has a thread of its own and a deadline, so a slow client holds up nobody.
"""

from __future__ import annotations

import errno
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from metrics import exposition
from metrics.catalog import SNAPSHOT_AGE
from metrics.history import History
from metrics.page import page, policy
from metrics.readings import Reading, Snapshot

FRESH_S = 1.0  # so old may be what is handed out
CONNECTION_S = 10.0  # Prometheus' own scrape time-out by default
CONNECTIONS = 64
LOOK_S = 5.0  # between looks for connections that are late; requests are taken at once
KNOCK_S = 1.0  # for the connection that wakes it at the end

Clock = Callable[[], float]


class CannotListen(OSError):
    """The address is taken or cannot be had; ``str(error)`` is one line for people, ``errno`` says which."""

    def __init__(self, number: int | None, line: str) -> None:
        super().__init__(number, line)
        self._line = line

    def __str__(self) -> str:
        return self._line


class Exporter:
    """Serves /metrics, /status.json and its schema, /history.json, /livez, /readyz and the status page at / on one address.

    ``port`` 0 takes a free one. A supervisor that has not published for ``stale_s`` is no longer live.
    """

    def __init__(self, host: str, port: int, *, stale_s: float = 30.0, clock: Clock = time.monotonic) -> None:
        self._address = (host, port)
        self._shown = _Shown(stale_s, clock)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port in use, which is known once started."""
        return self._server.server_address[1] if self._server else self._address[1]

    def start(self) -> None:
        """Listen and serve in a thread. Raises :class:`CannotListen`."""
        host, port = self._address
        try:
            self._server = _Server(self._address, self._shown)
        except OSError as error:
            raise CannotListen(error.errno, _refusal(host, port, error)) from None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(LOOK_S,), name="metrics", daemon=True)
        self._thread.start()

    def publish(self, snapshot: Snapshot) -> None:
        """Show this from now on."""
        self._shown.publish(snapshot)

    def renew_by(self, renew: Callable[[], object], outdated: Callable[[], bool] = lambda: False) -> None:
        """What publishes anew when somebody asks and the last snapshot is old, or ``outdated``. It must wait for nothing."""
        self._shown.renew, self._shown.outdated = renew, outdated

    def close(self) -> None:
        """Stop listening, drop every connection; may be called twice, or unstarted."""
        if self._server and self._thread:
            asked = threading.Thread(target=self._server.shutdown)
            asked.start()
            with suppress(OSError):  # a knock, so that it looks now
                socket.create_connection((self._address[0], self.port), KNOCK_S).close()
            asked.join()
            self._server.server_close()
            self._thread.join()
            self._server = self._thread = None


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"metrics port {host}:{port} is taken: stop what listens there, or set metrics_port to another"
    return f"metrics cannot listen on {host}:{port} ({error.strerror or error}): set metrics_host and metrics_port"


@dataclass(frozen=True, slots=True)
class _Rendered:
    body: bytes
    made_s: float


class _Shown:
    """The last snapshot, its age, and what was rendered of it."""

    def __init__(self, stale_s: float, clock: Clock) -> None:
        self._stale_s = stale_s
        self._clock = clock
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._snapshot: tuple[Snapshot, float] | None = None
        self._rendered: dict[str, _Rendered] = {}
        self.renew: Callable[[], object] = lambda: None
        self.outdated: Callable[[], bool] = lambda: False
        self.history = History()

    def publish(self, snapshot: Snapshot) -> None:
        with self._lock:
            self._snapshot = (snapshot, self._clock())
            self.history.add(snapshot)

    def last(self) -> tuple[Snapshot, float] | None:
        """The snapshot and its age in seconds."""
        with self._lock:
            return (self._snapshot[0], self._clock() - self._snapshot[1]) if self._snapshot else None

    def fresh(self) -> tuple[Snapshot, float] | None:
        """The same, published anew where it is older than a second, or known to be outdated. One asker has it made, the others
        wait for that.
        """
        with self._making:
            last = self.last()
            if last is not None and (last[1] >= FRESH_S or self.outdated()):
                self._renew()
        return self.last()

    def _renew(self) -> None:
        """A fault of ours is shown, and fails no scrape: the age of what is handed out then tells of it."""
        try:
            self.renew()
        except Exception:
            sys.excepthook(*sys.exc_info())

    def liveness(self) -> tuple[bool, str]:
        last = self.last()
        if last is None:
            return True, "starting"
        snapshot, age_s = last
        if age_s > self._stale_s:
            return False, f"the supervisor published nothing for {age_s:.0f} s"
        return snapshot.live, snapshot.why if not snapshot.live else ""

    def readiness(self) -> tuple[bool, str]:
        last = self.fresh()
        live, why = self.liveness()
        if not live or last is None:
            return False, why
        return last[0].ready, last[0].why if not last[0].ready else ""

    def body(self, form: str, make: Callable[[Snapshot, float], bytes]) -> bytes | None:
        """What ``make`` gives of a snapshot no older than a second, made once a second for all who ask; None before the first."""
        last = self.fresh()
        if last is None:
            return None
        with self._making:
            held = self._rendered.get(form)
            if held is None or self._clock() - held.made_s >= FRESH_S:
                held = self._rendered[form] = _Rendered(make(*last), self._clock())
        return held.body


def _metrics(form: str) -> Callable[[Snapshot, float], bytes]:
    return lambda snapshot, age_s: exposition.render((*snapshot.readings, Reading(SNAPSHOT_AGE, age_s)), form, snapshot.foreign)


def _status(snapshot: Snapshot, age_s: float) -> bytes:
    shown = {
        "taken_at_s": snapshot.taken_at_s,
        "age_s": round(age_s, 3),
        "live": snapshot.live,
        "ready": snapshot.ready,
        "why": snapshot.why,
    }
    return (json.dumps({**snapshot.status, **shown}, indent=1) + "\n").encode()


def _schema() -> bytes:
    return (Path(__file__).resolve().parent / "status.schema.json").read_bytes()


FIXED: dict[str, tuple[str, Callable[[], bytes]]] = {
    "/": ("text/html; charset=utf-8", page),
    "/status.schema.json": ("application/schema+json", _schema),
}


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "twinfold"
    sys_version = ""
    timeout = CONNECTION_S

    def do_GET(self) -> None:
        self._answer(send_body=True)

    def do_HEAD(self) -> None:
        self._answer(send_body=False)

    def _answer(self, *, send_body: bool) -> None:
        path = self.path.partition("?")[0]
        status, kind, body = self._reply(path)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", policy() if path == "/" else "default-src 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if send_body:
            self.wfile.write(body)

    def _reply(self, path: str) -> tuple[int, str, bytes]:
        shown = self.server.shown
        if path in ("/livez", "/readyz"):
            good, why = shown.liveness() if path == "/livez" else shown.readiness()
            return (200 if good else 503), "text/plain; charset=utf-8", f"{why or 'ok'}\n".encode()
        if path in FIXED:
            kind, fixed = FIXED[path]
            return 200, kind, fixed()
        if path == "/history.json":
            return 200, "application/json", shown.history.json()
        form, make = self._form(path)
        if make is None:
            return 404, "text/plain; charset=utf-8", b"not here: /, /metrics, /status.json, /history.json, /livez, /readyz\n"
        body = shown.body(form, make)
        return (503, "text/plain; charset=utf-8", b"starting\n") if body is None else (200, form, body)

    def _form(self, path: str) -> tuple[str, Callable[[Snapshot, float], bytes] | None]:
        if path == "/metrics":
            form = exposition.content_type(self.headers.get("Accept", ""))
            return form, _metrics(form)
        return ("application/json", _status) if path == "/status.json" else ("", None)

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not news."""


class _Server(ThreadingMixIn, HTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], shown: _Shown) -> None:
        self.shown = shown
        self._open: dict[socket.socket, float] = {}
        self._open_lock = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own asks a name server for the host's full name, which can take seconds
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]  # type: ignore[assignment]

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - socketserver names its arguments
        """Admit the connection while there is room."""
        with self._open_lock:
            if len(self._open) >= CONNECTIONS:
                return False
            self._open[request] = time.monotonic()
            return True

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Every few seconds: end connections over their deadline, such as a client that sends a byte now and then."""
        self._cut(time.monotonic() - CONNECTION_S)

    def server_close(self) -> None:
        super().server_close()
        self._cut(float("inf"))

    def _cut(self, begun_before_s: float) -> None:
        with self._open_lock:
            late = [request for request, begun_s in self._open.items() if begun_s < begun_before_s]
        for request in late:
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it has gone by itself

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves in the middle is not news either; anything else is a bug, and is shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
