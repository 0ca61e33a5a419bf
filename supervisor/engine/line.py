"""One connection to an engine's HTTP server, kept from request to request where the server keeps it.

The engine can accept a connection and never answer, or send a byte now and then, so a time-out per read is not enough: each
read may last only as long as is left until the deadline.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from build.errors import TwinfoldError

BODY_LIMIT = 64 << 20  # an answer beyond this is cut off as none
LEAST_S = 0.001  # 0 would not wait at all
UNREACHABLE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH})


class ProbeFailed(TwinfoldError):
    """No whole answer came: ``kind`` is unreachable, timeout or cut."""

    def __init__(self, kind: str, line: str) -> None:
        super().__init__(line)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an API is: ``base_url`` ends in ``/v1``; ``api_key`` is "" where none is asked for."""

    base_url: str
    api_key: str = ""

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r})"  # a key is never shown


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer and how long it took."""

    status: int
    content_type: str
    body: bytes
    took_s: float


class Line:
    """Requests one after another to one endpoint. Not thread-safe: one watcher owns it."""

    def __init__(self, where: Endpoint) -> None:
        self._where = where
        parts = urlsplit(where.base_url)
        self._prefix = parts.path.removesuffix("/v1")
        kind = _SecureConnection if parts.scheme == "https" else _Connection
        # without a port http.client takes the end of an IPv6 address for one
        self._connection = kind(parts.hostname or "", parts.port or kind.default_port)
        self._headers = {"Content-Type": "application/json"}
        if where.api_key:
            self._headers["Authorization"] = f"Bearer {where.api_key}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, path: str, deadline_s: float) -> Answer:
        """GET a path of the server that the endpoint is on, e.g. ``/health``. ``ProbeFailed`` where no whole answer comes."""
        return self.request("GET", path, None, deadline_s)

    def request(self, method: str, path: str, body: bytes | None, deadline_s: float, *, keep: bool = True) -> Answer:
        """One request, answered whole within the deadline. A connection that the server has closed meanwhile is opened anew."""
        end_s, used = time.monotonic() + deadline_s, self._connection.sock is not None
        try:
            return self._once(method, path, body, end_s, keep=keep)
        except ProbeFailed as failed:
            self.close()
            if not used or failed.kind != "cut" or method != "GET":
                raise
            return self._once(method, path, body, end_s, keep=keep)

    def open(self, path: str, end_s: float) -> None:
        """Connect, where it is not connected yet, to ask about ``path``; all must be over at ``end_s`` (monotonic)."""
        with self._told(path, end_s):
            self._connection.until(end_s)
            if self._connection.sock is None:
                self._connection.connect()

    @contextlib.contextmanager
    def answering(
        self, method: str, path: str, body: bytes | None, end_s: float, *, keep: bool = True
    ) -> Iterator[http.client.HTTPResponse]:
        """Ask, and give the answer as it comes. ``ProbeFailed`` where it breaks, or is not over at ``end_s`` (monotonic)."""
        headers = self._headers if keep else {**self._headers, "Connection": "close"}
        with self._told(path, end_s):
            self._connection.until(end_s)
            self._connection.request(method, self._prefix + path, body, headers)
            response = self._connection.getresponse()
            yield response
        if response.will_close or not response.isclosed():
            self.close()

    def close(self) -> None:
        """Let the connection go."""
        self._connection.close()

    @contextlib.contextmanager
    def _told(self, path: str, end_s: float) -> Iterator[None]:
        began_s = time.monotonic()
        try:
            yield
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a chunk of a negative size
            self.close()
            raise _failed(self._where, path, error, time.monotonic() >= end_s, round(end_s - began_s, 1)) from None

    def _once(self, method: str, path: str, body: bytes | None, end_s: float, *, keep: bool) -> Answer:
        began_s = time.monotonic()
        with self.answering(method, path, body, end_s, keep=keep) as response:
            content = response.read(BODY_LIMIT + 1)
            to_the_end = response.length is None and not response.chunked  # only the connection's end tells where it is over
            whole = (response.isclosed() or to_the_end) and len(content) <= BODY_LIMIT
            answer = Answer(response.status, response.getheader("Content-Type", ""), content, time.monotonic() - began_s)
        if not whole:
            how = f"is over {BODY_LIMIT >> 20} MiB" if len(content) > BODY_LIMIT else "broke off"
            raise ProbeFailed("cut", f"{self._where.base_url}: the answer to {path} {how}")
        return answer


def _failed(where: Endpoint, path: str, error: Exception, late: bool, deadline_s: float) -> ProbeFailed:
    if late or isinstance(error, TimeoutError):
        return ProbeFailed("timeout", f"{where.base_url}: no whole answer to {path} within {deadline_s:g} s")
    if isinstance(error, (ConnectionRefusedError, socket.gaierror)) or getattr(error, "errno", None) in UNREACHABLE:
        return ProbeFailed("unreachable", f"{where.base_url}: nothing listens there ({error})")
    return ProbeFailed("cut", f"{where.base_url}: the answer to {path} broke off ({str(error) or 'no reason given'})")


class _Bounded:
    """A socket none of whose waits goes beyond ``end_s`` (monotonic)."""

    end_s = float("inf")

    def recv_into(self, *given: Any, **named: Any) -> int:
        """Wait no longer than is left. ``TimeoutError`` where nothing is."""
        _bound(self, self.end_s)
        received: int = super().recv_into(*given, **named)  # type: ignore[misc]
        return received

    def sendall(self, *given: Any, **named: Any) -> None:
        """The same."""
        _bound(self, self.end_s)
        super().sendall(*given, **named)  # type: ignore[misc]


class _Socket(_Bounded, socket.socket):
    pass


class _SecureSocket(_Bounded, ssl.SSLSocket):
    pass


def _bound(sock: Any, end_s: float) -> None:
    left_s = end_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    sock.settimeout(left_s)


class _Until:
    """What both kinds of connections have of a deadline."""

    sock: Any
    timeout: Any
    _end_s = float("inf")

    def until(self, end_s: float) -> None:
        """What is done from now on must be over by then."""
        self._end_s, self.timeout = end_s, max(LEAST_S, end_s - time.monotonic())
        if isinstance(self.sock, _Bounded):
            self.sock.end_s = end_s


class _Connection(_Until, http.client.HTTPConnection):
    """HTTP over sockets that keep a deadline."""

    def connect(self) -> None:
        super().connect()
        plain = self.sock
        self.sock = _Socket(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self.sock.end_s = self._end_s


class _SecureConnection(_Until, http.client.HTTPSConnection):
    """HTTPS over sockets that keep a deadline."""

    def __init__(self, host: str, port: int | None) -> None:
        context = ssl.create_default_context()
        context.sslsocket_class = _SecureSocket
        super().__init__(host, port, context=context)

    def connect(self) -> None:
        super().connect()
        self.until(self._end_s)
