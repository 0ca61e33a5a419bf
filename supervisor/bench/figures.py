"""From arrival times to figures: what one reply took, and how readings are summed up. Pure.

The first token of a reply is the first event that carries text, reasoning or a tool call; the role's event, which an engine sends
before it looks at the prompt, is none. Tokens are those that the endpoint's own usage counts: with speculative decoding an event
carries several.
"""

from __future__ import annotations

import math
import re
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from supervisor.engine.replies import Reply, carries_tokens

BOUNDARY = re.compile(rb"\r?\n\r?\n")


@dataclass(frozen=True, slots=True)
class Timing:
    """One reply. Seconds of one clock: the request left (``sent_s``), events with tokens came, the last byte came.

    ``text_sha`` and ``token_sha`` say what was replied; ``prefill_s`` is the engine's own word.
    """

    sent_s: float
    chunks_s: tuple[float, ...]
    ended_s: float
    prompt_tokens: int
    cached_tokens: int
    reply_tokens: int
    finish: str = ""
    token_sha: str = ""
    text_sha: str = ""
    prefill_s: float | None = None
    accepted_ratio: float | None = None

    @property
    def first_s(self) -> float:
        """When the first token came; of a reply whose only token has no text, its end."""
        return self.chunks_s[0] if self.chunks_s else self.ended_s

    @property
    def last_s(self) -> float:
        """When the last event with tokens came."""
        return self.chunks_s[-1] if self.chunks_s else self.ended_s

    @property
    def ttft_s(self) -> float:
        """Time to the first token."""
        return self.first_s - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None for a reply of one event."""
        several = len(self.chunks_s) > 1 and self.reply_tokens > 1
        return (self.last_s - self.first_s) / (self.reply_tokens - 1) if several else None

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """Between an event with tokens and the next: what a reader of the stream sees as latency between tokens."""
        return tuple(after - before for before, after in zip(self.chunks_s, self.chunks_s[1:], strict=False))


@dataclass(frozen=True, slots=True)
class Spread:
    """Readings of one figure: the middle one, the ends, and how many there were."""

    median: float
    lowest: float
    highest: float
    count: int


def chunk_times(body: bytes, arrivals: Sequence[tuple[float, int]]) -> tuple[float, ...]:
    """When each event with tokens was there whole; ``arrivals`` are times and the bytes there in all by then."""
    sizes = [size for _, size in arrivals]
    times: list[float] = []
    began = 0
    for end in (found.end() for found in BOUNDARY.finditer(body)):
        event, began = body[began:end].decode("utf-8", "replace"), end
        data = "\n".join(line[5:].strip() for line in event.splitlines() if line.startswith("data:"))
        if data and data != "[DONE]" and carries_tokens(data):
            times.append(arrivals[min(bisect_left(sizes, end), len(arrivals) - 1)][0])
    return tuple(times)


def timing(reply: Reply, sent_s: float, arrivals: Sequence[tuple[float, int]], body: bytes, text_sha: str) -> Timing | None:
    """One reply's times; None where its stream carries no usage, so that nobody knows how many tokens it had."""
    used = reply.usage
    if used.prompt is None or used.completion is None or not arrivals:
        return None
    return Timing(
        sent_s,
        chunk_times(body, arrivals),
        arrivals[-1][0],
        used.prompt,
        used.cached or 0,
        used.completion,
        reply.finish_reason,
        reply.token_sha,
        text_sha,
        reply.prefill_s,
        reply.accepted_ratio,
    )


def decode_rate(group: Sequence[Timing]) -> float | None:
    """Tokens/s of all streams of a group together: each one's tokens after its first, from the first token to the last of all."""
    took_s = max(one.last_s for one in group) - min(one.first_s for one in group)
    tokens = sum(max(0, one.reply_tokens - 1) for one in group)
    return tokens / took_s if took_s > 0 and tokens else None


def one_by_one_rate(turns: Sequence[Timing]) -> float | None:
    """Tokens/s of replies that came one after the other, without the pauses between them."""
    took_s = sum(one.last_s - one.first_s for one in turns)
    tokens = sum(max(0, one.reply_tokens - 1) for one in turns)
    return tokens / took_s if took_s > 0 and tokens else None


def prefill_rate(one: Timing) -> float | None:
    """Prompt tokens/s up to the first token; what the engine had in its cache does not count."""
    tokens = one.prompt_tokens - one.cached_tokens
    return tokens / one.ttft_s if one.ttft_s > 0 and tokens > 0 else None


def spread(readings: Iterable[float | None]) -> Spread | None:
    """Of what was read; None where nothing was."""
    found = sorted(value for value in readings if value is not None)
    return Spread(statistics.median(found), found[0], found[-1], len(found)) if found else None


def percentile(readings: Iterable[float], percent: float) -> float | None:
    """Between the two nearest readings, in proportion; None where there are none."""
    found = sorted(readings)
    if not found:
        return None
    at = (len(found) - 1) * percent / 100
    below = math.floor(at)
    above = min(below + 1, len(found) - 1)
    return min(found[below] + (found[above] - found[below]) * (at - below), found[above])
