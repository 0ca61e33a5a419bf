"""Totals and rates out of what the engine and the nodes report. Pure: times and launches come with each value.

An engine's totals start anew with each launch; what is shown must not, or every restart would look like a burst or a loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

WINDOW_S = 5.0


@dataclass(frozen=True, slots=True)
class Total:
    """A counter that never goes back: ``before`` is the sum of earlier launches, ``raw`` the highest total of this one.

    Within a launch a lower raw total is held, not added: a live total is a sum that the engine does not read in one
    moment (finished requests and running ones), so it dips when a request ends, and comes back.
    """

    before: float = 0.0
    launch: int = 0
    raw: float = 0.0

    @property
    def value(self) -> float:
        """What to show."""
        return self.before + self.raw

    def advance(self, launch: int, raw: float | None) -> Total:
        """With a later reading. One that is absent, no number, or of an earlier launch changes nothing."""
        if raw is None or not math.isfinite(raw) or raw < 0 or launch < self.launch:
            return self
        if launch > self.launch:
            return Total(self.value, launch, raw)
        return replace(self, raw=max(self.raw, raw))


@dataclass(frozen=True, slots=True)
class Rate:
    """The change a second of a value over the last ``window_s``: ``points`` are (monotonic seconds, value), oldest first."""

    window_s: float = WINDOW_S
    points: tuple[tuple[float, float], ...] = ()

    def observe(self, at_s: float, value: float) -> Rate:
        """With one more point. One point at or beyond the window's far edge stays, so that a slow reader has a rate too."""
        if self.points and at_s <= self.points[-1][0]:
            return self
        inside = [index for index, (then_s, _) in enumerate(self.points) if then_s > at_s - self.window_s]
        first = max(0, (inside[0] if inside else len(self.points)) - 1)
        return replace(self, points=(*self.points[first:], (at_s, value)))

    def per_second(self, now_s: float) -> float:
        """The rate at ``now_s``; 0 where there is nothing to compare, or nothing recent."""
        if len(self.points) < 2 or now_s - self.points[-1][0] > self.window_s:
            return 0.0
        (first_s, first), (last_s, last) = self.points[0], self.points[-1]
        return (last - first) / (last_s - first_s)
