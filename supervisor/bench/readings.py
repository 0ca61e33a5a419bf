"""What a bench has read so far. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from build.errors import TwinfoldError
from supervisor.bench.figures import Timing
from supervisor.bench.plan import LeftOut, Step

COMPLETE, INTERRUPTED, FAILED = "complete", "interrupted", "failed"


@dataclass(frozen=True, slots=True)
class Compared:
    """One prompt's reply alone, beside the others, and beside them again at the end: digests, "" for what was not asked."""

    name: str
    alone: str
    together: str = ""
    later: str = ""

    @property
    def same(self) -> bool:
        """Whatever was asked gave the same."""
        return len({self.alone, self.together, self.later} - {""}) <= 1


@dataclass(slots=True)
class Measured:
    """What has been measured so far. ``by`` says what ``compared`` rests on: the engine's token_sha, or the text.

    A reading of a decode step is the replies of one run, of a prefill step one reply.
    """

    readings: dict[Step, list[tuple[Timing, ...]]] = field(default_factory=dict)
    compared: list[Compared] = field(default_factory=list)
    by: str = "token_sha"
    left_out: list[LeftOut] = field(default_factory=list)
    ended: str = INTERRUPTED
    why: str = ""
    error: TwinfoldError | None = None
    took_s: float = 0.0

    @property
    def different(self) -> tuple[str, ...]:
        """Prompts whose reply beside others, or after all else, was not that of the prompt alone."""
        return tuple(one.name for one in self.compared if not one.same)
