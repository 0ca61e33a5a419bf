"""Asking a running engine over HTTP, with one deadline for the whole of each request.

The engine can accept a connection and never answer, or send a byte now and then, so a time-out per read is not enough: at
the deadline the socket is shut down, whatever it is doing.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from build.errors import TwinfoldError, UsageError
from supervisor.engine.readings import EngineReading, read_engine
from supervisor.engine.replies import Reply, SmokeVerdict, read_reply, smoke_verdict

BODY_LIMIT = 64 << 20  # an answer beyond this is cut off as none
SMOKE_TOKENS = 64
MORE_TOKENS = 512


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


@dataclass(frozen=True, slots=True)
class SmokeResult:
    """How the smoke test ended: the verdict, the last reply, and how often was asked."""

    verdict: SmokeVerdict
    reply: Reply | None
    asks: int
    took_s: float

    @property
    def passed(self) -> bool:
        """The answer was right."""
        return self.verdict.passed is True


def endpoint(url: str, api_key: str = "") -> Endpoint:
    """An endpoint from what a person writes: with or without ``/v1`` and a closing slash. ``UsageError`` for no http URL."""
    bare = url.rstrip("/").removesuffix("/v1")
    try:
        parts = urlsplit(bare)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"{url} is no address of an API: write it like http://127.0.0.1:8888/v1")
    return Endpoint(bare + "/v1", api_key)


def read_api_key(file: Path | None) -> str:
    """The first line of a key file, or "" for no file. ``UsageError`` where it cannot be read or is empty."""
    if file is None:
        return ""
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"api_key_file = {file} cannot be read: {getattr(error, 'strerror', None) or 'not plain ASCII'}"
        ) from None
    key = lines[0].strip() if lines else ""
    if not key:
        raise UsageError(f"api_key_file = {file} is empty: its first line is the key")
    return key


def get(where: Endpoint, path: str, deadline_s: float) -> Answer:
    """GET a path of the server that the endpoint is on, e.g. ``/health``."""
    return _request(where, "GET", path, None, deadline_s)


def get_health(where: Endpoint, deadline_s: float) -> Answer:
    """The engine's own word on itself; 200 does not mean that the ranks work."""
    return get(where, "/health", deadline_s)


def get_metrics(where: Endpoint, deadline_s: float) -> Answer:
    """The engine's Prometheus text."""
    return get(where, "/metrics", deadline_s)


def get_models(where: Endpoint, deadline_s: float) -> tuple[str, ...]:
    """Ids of the served models; none where the answer is no list of models."""
    answer = get(where, "/v1/models", deadline_s)
    try:
        rows = json.loads(answer.body)["data"]
        return tuple(str(row["id"]) for row in rows) if answer.status == 200 else ()
    except (ValueError, KeyError, TypeError):
        return ()


def read(where: Endpoint, deadline_s: float) -> EngineReading:
    """Both of the engine's own readings as one. ``ProbeFailed`` where ``/health`` gives no answer; no metrics is no failure."""
    began = time.monotonic()
    health = get_health(where, deadline_s)
    left_s = deadline_s - (time.monotonic() - began)
    try:
        metrics = get_metrics(where, max(left_s, 0.05))
    except ProbeFailed:
        return read_engine(health.body, None)
    return read_engine(health.body, metrics.body if metrics.status == 200 else None)


def chat(where: Endpoint, body: Mapping[str, Any], deadline_s: float) -> tuple[Reply, Answer]:
    """One chat completion, whole or streamed; a stream is read to its end before it is judged."""
    answer = _request(where, "POST", "/v1/chat/completions", json.dumps(body).encode(), deadline_s)
    return read_reply(answer.status, answer.body, answer.content_type), answer


def question(model: str, text: str, max_tokens: int, *, thinking: bool | None = False) -> dict[str, Any]:
    """The body of one short question at temperature 0. ``thinking`` None leaves it to the server."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    if thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": thinking}
    return body


def tiny_generation(where: Endpoint, model: str, deadline_s: float) -> Reply:
    """One token from every rank: the proof of life of an idle gang."""
    return chat(where, question(model, "Say OK.", 1), deadline_s)[0]


def smoke(where: Endpoint, model: str, asked: tuple[str, str], *, asks: int = 3, deadline_s: float = 120.0) -> SmokeResult:
    """Ask the smoke question until its answer decides, at most ``asks`` times; ``asked`` is the question and its word.

    Thinking is off and the temperature 0; a second time there are more tokens, as a spent budget wants. ``ProbeFailed``
    passes through: who does not answer has not failed the question.
    """
    began = time.monotonic()
    reply, verdict, count = None, SmokeVerdict(False, "it was not asked"), 0
    while count < asks:
        count += 1
        reply, _ = chat(where, question(model, asked[0], SMOKE_TOKENS if count == 1 else MORE_TOKENS), deadline_s)
        verdict = smoke_verdict(reply, asked[1], last=count == asks)
        if verdict.passed is not None:
            break
    return SmokeResult(verdict, reply, count, time.monotonic() - began)


@contextlib.contextmanager
def connected(where: Endpoint, path: str, deadline_s: float) -> Iterator[http.client.HTTPConnection]:
    """An open connection for one exchange about ``path``; ``ProbeFailed`` where it breaks, or is not over by the deadline."""
    parts = urlsplit(where.base_url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=deadline_s)
    began = time.monotonic()
    cutter = _Cutter(connection, deadline_s)
    try:
        connection.connect()
        cutter.start()
        yield connection
    except (OSError, http.client.HTTPException) as error:
        raise _failed(where, path, error, cutter.cut or time.monotonic() - began >= deadline_s, deadline_s) from None
    finally:
        cutter.cancel()
        connection.close()
    if cutter.cut:
        raise _failed(where, path, None, True, deadline_s)


def send(connection: http.client.HTTPConnection, where: Endpoint, method: str, path: str, body: bytes | None) -> None:
    """Send one request, with the endpoint's key where it has one."""
    headers = {"Content-Type": "application/json", "Connection": "close"}
    if where.api_key:
        headers["Authorization"] = f"Bearer {where.api_key}"
    connection.request(method, urlsplit(where.base_url).path.removesuffix("/v1") + path, body, headers)


def _request(where: Endpoint, method: str, path: str, body: bytes | None, deadline_s: float) -> Answer:
    began = time.monotonic()
    with connected(where, path, deadline_s) as connection:
        send(connection, where, method, path, body)
        response = connection.getresponse()
        content = response.read(BODY_LIMIT + 1)
        whole = response.isclosed() and len(content) <= BODY_LIMIT
        answer = Answer(response.status, response.getheader("Content-Type", ""), content, time.monotonic() - began)
    if not whole:
        raise ProbeFailed("cut", f"{where.base_url}: the answer to {path} is over {BODY_LIMIT >> 20} MiB")
    return answer


def _failed(where: Endpoint, path: str, error: Exception | None, late: bool, deadline_s: float) -> ProbeFailed:
    if late:
        return ProbeFailed("timeout", f"{where.base_url}: no whole answer to {path} within {deadline_s:g} s")
    if isinstance(error, (ConnectionRefusedError, socket.gaierror)) or (isinstance(error, OSError) and error.errno in {101, 113}):
        return ProbeFailed("unreachable", f"{where.base_url}: nothing listens there ({error})")
    return ProbeFailed("cut", f"{where.base_url}: the answer to {path} broke off ({error or 'no reason given'})")


class _Cutter:
    """Shuts a connection's socket down at its deadline, so that no read of it can last longer."""

    def __init__(self, connection: http.client.HTTPConnection, deadline_s: float) -> None:
        self.cut = False
        self._connection = connection
        self._timer = threading.Timer(deadline_s, self._shut)
        self._timer.daemon = True

    def start(self) -> None:
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def _shut(self) -> None:
        self.cut = True
        sock = self._connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # closed in the meantime
