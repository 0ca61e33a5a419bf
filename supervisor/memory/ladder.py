"""The ladder of contexts: a rung down on an eviction, up by a person or after a quiet time. Pure; the clock is the caller's.

Rungs are absolute, so that a gang finds the same ones after a restart: the powers of two, and three quarters of each. A gang
that fell under its floor at 655360 tokens comes back at 524288.
"""

from __future__ import annotations

from dataclasses import dataclass

QUIET_DOUBLES = 4  # the quiet time grows with each eviction, to at most 2^4 times what was asked for


@dataclass(frozen=True, slots=True)
class Ladder:
    """``cap_tokens`` bounds the next launch's context; None where no eviction does. ``moved_s`` is when a rung was last changed.

    ``top_tokens`` is what was served before the first eviction; ``evictions`` counts them since a person last chose.
    """

    cap_tokens: int | None = None
    top_tokens: int = 0
    evictions: int = 0
    moved_s: float = 0.0

    def bounded(self, asked: int | str, window_tokens: int) -> int | str:
        """What the next launch may ask for at most. "auto" stays so: its bound is the window that the plan is given."""
        if self.cap_tokens is None or isinstance(asked, str):
            return asked
        return min(asked, self.window(window_tokens))

    def window(self, window_tokens: int) -> int:
        """The largest context that may be chosen."""
        return window_tokens if self.cap_tokens is None else min(self.cap_tokens, window_tokens)


def steps_down(ladder: Ladder) -> int:
    """How many rungs the ladder is below its top."""
    cap = ladder.cap_tokens
    return 0 if cap is None else sum(cap <= rung < ladder.top_tokens for rung in _rungs(ladder.top_tokens))


def rung_below(context_tokens: int, least_tokens: int) -> int:
    """The next smaller rung; the least context where there is none above it."""
    lower = [rung for rung in _rungs(context_tokens) if least_tokens <= rung < context_tokens]
    return max(lower) if lower else min(least_tokens, context_tokens)


def rung_above(context_tokens: int) -> int:
    """The next larger rung."""
    return min(rung for rung in _rungs(4 * context_tokens) if rung > context_tokens)


def evicted(ladder: Ladder, served_tokens: int, least_tokens: int, now_s: float) -> Ladder:
    """Memory ran short at ``served_tokens``."""
    top = max(ladder.top_tokens, served_tokens)
    return Ladder(rung_below(served_tokens, least_tokens), top, ladder.evictions + 1, now_s)


def may_climb(ladder: Ladder, quiet_s: float, served_since_s: float, now_s: float) -> bool:
    """Whether a quiet time has passed, on the ladder and in serving. 0 seconds of quiet: never, a person decides."""
    if ladder.cap_tokens is None or quiet_s <= 0:
        return False
    wanted_s = quiet_s * 2.0 ** min(max(ladder.evictions - 1, 0), QUIET_DOUBLES)
    return now_s - max(ladder.moved_s, served_since_s) >= wanted_s


def climbed(ladder: Ladder, now_s: float) -> Ladder:
    """One rung up; whole again where that reaches the top. The count of evictions stays: another fall waits longer."""
    assert ladder.cap_tokens is not None
    above = rung_above(ladder.cap_tokens)
    return Ladder(None if above >= ladder.top_tokens else above, ladder.top_tokens, ladder.evictions, now_s)


def _rungs(below_tokens: int) -> list[int]:
    """Every rung from 1024 to the first beyond a bound."""
    found, power = [1024], 2048
    while found[-1] <= below_tokens:
        found += [power * 3 // 4, power]
        power *= 2
    return found
