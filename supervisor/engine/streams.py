"""A streamed chat completion with the time at which each of its events came in."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.engine.line import BODY_LIMIT, Endpoint, Line, ProbeFailed

PATH = "/v1/chat/completions"
READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Streamed:
    """One whole streamed answer. Times are seconds of ``clock``: ``sent_s`` when the request began to leave over an open
    connection, ``arrivals`` when how many bytes of the body were there in all.
    """

    status: int
    content_type: str
    body: bytes
    sent_s: float
    arrivals: tuple[tuple[float, int], ...]


def stream(
    where: Endpoint,
    body: Mapping[str, Any],
    deadline_s: float,
    ready: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Streamed:
    """Ask for a stream and read it to its end; ``ready`` is called over the open connection, just before the request leaves.

    Nothing is parsed meanwhile, so that reading costs the least of a machine that may also serve.
    """
    content = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    pieces: list[bytes] = []
    arrivals: list[tuple[float, int]] = []
    end_s, size = time.monotonic() + deadline_s, 0
    with Line(where) as line:
        line.open(PATH, end_s)
        ready()
        sent_s = clock()
        with line.answering("POST", PATH, content, end_s, keep=False) as response:
            while size <= BODY_LIMIT and (piece := response.read1(READ_BYTES)):
                size += len(piece)
                pieces.append(piece)
                arrivals.append((clock(), size))
            status, content_type = response.status, response.getheader("Content-Type", "")
    if size > BODY_LIMIT:
        raise ProbeFailed("cut", f"{where.base_url}: the answer to {PATH} is over {BODY_LIMIT >> 20} MiB")
    return Streamed(status, content_type, b"".join(pieces), sent_s, tuple(arrivals))
