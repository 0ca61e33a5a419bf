"""What a bench measures: prompts and streams, prefill lengths that fit, in which order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.bench.prompts import KINDS

K = 1024
LENGTHS = (8 * K, 16 * K, 32 * K, 64 * K, 128 * K, 256 * K)  # the published figures speak of 8K to 256K
QUICK_LENGTHS = (8 * K, 32 * K)
FIT = 0.97  # of the context: a prompt's length is aimed at, and met within a few tokens in a hundred
SMALLEST = 256


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured. ``streams``: decoded together; ``limit_s``: nothing begins that would not end within it."""

    streams: int
    runs: int = 3
    reply_tokens: int = 384
    lengths: tuple[int, ...] = LENGTHS
    limit_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class Decode:
    """So many replies to prompts of a kind at once. With one stream every prompt has its turn, one after the other."""

    kind: str
    streams: int

    def __str__(self) -> str:
        return f"{self.kind}, {self.streams} stream{'s' * (self.streams > 1)}"


@dataclass(frozen=True, slots=True)
class Prefill:
    """One prompt of about so many tokens, by itself, and one token of a reply."""

    tokens: int

    def __str__(self) -> str:
        return f"prefill of {self.tokens} tokens"


Step = Decode | Prefill


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A step that was not measured, or less often than wanted, and why."""

    step: Step
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of each run, in order; every step is measured once before any is measured again."""

    options: Options
    steps: tuple[Step, ...]
    left_out: tuple[LeftOut, ...]


def plan(options: Options, context_tokens: int | None) -> Plan:
    """What is measured where ``context_tokens`` are served. The longest prompt that fits stands in for those that do not.

    None is a context that nobody tells: every length is tried, and the endpoint refuses what it has no room for.
    """
    most = max(options.lengths) if context_tokens is None else int(context_tokens * FIT) - 1
    fit = [length for length in options.lengths if length <= most]
    rest = [length for length in options.lengths if length > most]
    stands_in = _rounded(most)
    added = [stands_in] if rest and stands_in >= SMALLEST and stands_in not in fit else []
    why = f"does not fit the context of {context_tokens} tokens"
    streams = dict.fromkeys((1, options.streams))
    decode = [Decode(kind, count) for kind in KINDS for count in streams]
    prefill = [Prefill(length) for length in (*fit, *added)]
    return Plan(options, (*decode, *prefill), tuple(LeftOut(Prefill(length), why) for length in rest))


def _rounded(tokens: int) -> int:
    """Down to a whole K, or to a multiple of 64 where there is no K."""
    return tokens // K * K if tokens >= K else tokens // 64 * 64


@dataclass(frozen=True, slots=True)
class Ruler:
    """How long texts are in tokens: ``tokens_each`` of a character, beside ``around`` tokens of the chat's form."""

    tokens_each: float
    around: float

    def characters(self, tokens: int) -> int:
        """Of a prompt of about so many tokens."""
        return max(1, round((tokens - self.around) / self.tokens_each))

    def met(self, characters: int, tokens: int) -> Ruler:
        """With what a longer text came to."""
        return Ruler(max(tokens - self.around, 1.0) / characters, self.around)


def ruler(readings: Sequence[tuple[int, int]]) -> Ruler:
    """From two texts' characters and tokens, the shorter first."""
    (few, small), (many, large) = readings
    each = max((large - small) / (many - few), 1e-3)
    return Ruler(each, max(0.0, small - each * few))
