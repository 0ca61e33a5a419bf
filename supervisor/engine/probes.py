"""Asking a running engine over HTTP, with one deadline for the whole of each request."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from build.errors import UsageError
from supervisor.engine.line import Answer, Endpoint, Line, ProbeFailed
from supervisor.engine.promtext import Family
from supervisor.engine.readings import EngineReading, families_tell_enough, health_tells_enough, read_engine, read_families
from supervisor.engine.replies import Reply, SmokeVerdict, read_reply, smoke_verdict

OTHER_EVERY_S = 5.0
LEAST_S = 0.05  # for the second of two questions
SMOKE_TOKENS = 64
PROBE_TOKENS = 24
MORE_TOKENS = 512


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
    if not _usable(bare):
        raise UsageError(f"{url!r} is no address of an API: write it like http://127.0.0.1:8888/v1")
    return Endpoint(bare + "/v1", api_key)


def _usable(url: str) -> bool:
    """Whether a host can be looked up and a request line written from it."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        good = parts.scheme in {"http", "https"} and bool(host) and (parts.port or 1) > 0
        parts.path.encode("ascii")
    except ValueError:  # UnicodeError is one: a label of the host that is empty or too long
        return False
    return good and not set(url) & set("?# ") and url.isprintable()


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
    with Reader(where) as reader:
        return reader.read(deadline_s)


class Reader:
    """Reads one engine again and again over one connection.

    Where one of its two answers tells of all that moves while requests run (which one depends on the build), the other is asked
    for only every ``OTHER_EVERY_S``.
    """

    def __init__(self, where: Endpoint, clock: Callable[[], float] = time.monotonic) -> None:
        self._line, self._clock = Line(where), clock
        self._health, self._metrics = b"", b""
        self._health_s = self._metrics_s = float("-inf")
        self._health_enough = self._metrics_enough = False  # judged where they have changed
        self._families: Sequence[Family] = ()
        self._read: tuple[bytes, Sequence[Family], bool] = (b"", (), False)
        self._reading = EngineReading()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def read(self, deadline_s: float) -> EngineReading:
        """As :func:`read`."""
        began_s = self._clock()
        recent_s = began_s - OTHER_EVERY_S
        if self._health_enough or self._health_s <= recent_s or not self._metrics_enough:
            self._read_health(deadline_s)
        if not self._health_enough or self._metrics_s <= recent_s:
            self._read_metrics(deadline_s - (self._clock() - began_s))
            if not self._families and self._health_s < began_s:
                self._read_health(deadline_s - (self._clock() - began_s))
        return self._as_reading(old=self._metrics_s < began_s)

    def _as_reading(self, *, old: bool) -> EngineReading:
        """An idle engine says the same again and again."""
        heard = (self._health, self._families, old)
        if heard != self._read:
            self._read, self._reading = heard, read_engine(self._health, self._families, old=old)
        return self._reading

    def _read_health(self, left_s: float) -> None:
        told = self._line.get("/health", max(left_s, LEAST_S)).body
        if told != self._health:
            self._health, self._health_enough = told, health_tells_enough(told)
        self._health_s = self._clock()

    def _read_metrics(self, left_s: float) -> None:
        """One that says nothing here may still say how it is."""
        try:
            answer = self._line.get("/metrics", max(left_s, LEAST_S))
        except ProbeFailed:
            answer = None
        told = answer.body if answer and answer.status == 200 else b""
        if told != self._metrics:
            self._metrics, self._families = told, read_families(told)
            self._metrics_enough = families_tell_enough(self._families)
        self._metrics_s = self._clock() if told else float("-inf")


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
    """A few tokens from every rank: the proof of life of an idle gang, and enough to tell a reply from garbage."""
    return chat(where, question(model, "Say OK.", PROBE_TOKENS), deadline_s)[0]


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


def _request(where: Endpoint, method: str, path: str, body: bytes | None, deadline_s: float) -> Answer:
    with Line(where) as line:
        return line.request(method, path, body, deadline_s, keep=False)
