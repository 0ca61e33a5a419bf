"""Asking an endpoint for streams, alone or several at once, and what their answers come to."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from build.errors import CheckFailed, TwinfoldError, UsageError
from supervisor.bench.figures import Timing, timing
from supervisor.engine.line import Endpoint, ProbeFailed
from supervisor.engine.probes import question
from supervisor.engine.replies import read_reply
from supervisor.engine.streams import Streamed, stream


class TooLong(TwinfoldError):
    """The endpoint has no room for the prompt."""


class Ask(Protocol):
    """Ask for one stream; ``ready`` is called just before the request leaves."""

    def __call__(self, body: Mapping[str, Any], deadline_s: float, ready: Callable[[], object]) -> Streamed:
        """The whole answer; ``ProbeFailed`` where none came within the deadline."""


def asking(where: Endpoint) -> Ask:
    """Of a real endpoint."""
    return lambda body, deadline_s, ready: stream(where, body, deadline_s, ready)


def body(model: str, text: str, max_tokens: int) -> dict[str, Any]:
    """Greedy, without thinking: the same tokens each time it is asked."""
    return question(model, text, max_tokens, thinking=False)


def together(ask: Ask, bodies: Sequence[Mapping[str, Any]], deadline_s: float) -> tuple[Streamed, ...]:
    """Every answer, in order; the requests leave at the same moment. The first failure passes through.

    The caller can be interrupted: streams under way end with the process.
    """
    gate = threading.Barrier(len(bodies))
    found: dict[int, Streamed | Exception] = {}

    def one(place: int) -> None:
        try:
            found[place] = ask(bodies[place], deadline_s, lambda: gate.wait(deadline_s))
        except threading.BrokenBarrierError:
            return  # another one's connection failed: its error is the one to tell
        except Exception as error:  # told by the caller's thread
            found[place] = error
            gate.abort()

    threads = [threading.Thread(target=one, args=(place,), name=f"stream-{place}", daemon=True) for place in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for outcome in found.values():
        if isinstance(outcome, Exception):
            raise outcome
    answers = [found.get(place) for place in range(len(bodies))]
    if not all(isinstance(answer, Streamed) for answer in answers):
        raise ProbeFailed("timeout", "the streams did not all connect in time")
    return tuple(answer for answer in answers if isinstance(answer, Streamed))


def read(answer: Streamed, *, words: bool) -> Timing:
    """An answer's times and tokens. ``words``: a reply that is no text is refused: figures of a broken model are worth nothing.

    ``UsageError`` for a key that is not taken, :class:`TooLong` for a prompt without room, ``CheckFailed`` for the rest.
    """
    reply = read_reply(answer.status, answer.body, answer.content_type)
    if reply.kind == "unauthorised":
        raise UsageError(f"the endpoint does not take the API key ({reply.why}): api_key_file names the file with the right one")
    if reply.kind == "context_too_long":
        raise TooLong(reply.why)
    if reply.kind in {"engine_error", "bad_request"} or (words and reply.kind == "garbage"):
        raise CheckFailed(f"a request came to nothing: {reply.kind.replace('_', ' ')}: {reply.why}")
    digest = hashlib.sha256(f"{reply.reasoning}\0{reply.text}".encode()).hexdigest()[:16]
    found = timing(reply, answer.sent_s, answer.arrivals, answer.body, digest)
    if found is None:
        raise CheckFailed("the endpoint's streams carry no usage (stream_options.include_usage): their tokens cannot be counted")
    return found
