"""The matrix as a page: counts, the middle and the 99th percentile of each kind. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bench.soak.fault import Fault
from bench.soak.trial import Outcome

HEAD = (
    "| fault | the launch | trials | held | ended as | no rank left, s (middle / p99) | serving again, s (middle / p99) |\n"
    "|---|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Where and how the trials were made."""

    clients: int
    cores: int


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all do not exceed (the nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def table(outcomes: Sequence[Outcome]) -> str:
    """A row a kind, in the order of their first trial."""
    kinds: dict[str, list[Outcome]] = {}
    for one in outcomes:
        kinds.setdefault(one.fault.name, []).append(one)
    return HEAD + "".join(_row(found[0].fault, found) for found in kinds.values())


def summary(outcomes: Sequence[Outcome], at: Circumstances) -> str:
    """One line over all."""
    held = sum(not one.complaints for one in outcomes)
    kinds = len({one.fault.name for one in outcomes})
    seeds = ", ".join(map(str, sorted({one.seed for one in outcomes})))
    loads = [one.load for one in outcomes] or [0.0]
    return (
        f"{len(outcomes)} trials of {kinds} kinds, {held} held; seeds {seeds}; {at.clients} streaming clients,"
        f" {at.cores} cores at loads of {min(loads):.1f} to {max(loads):.1f}."
    )


def _row(fault: Fault, found: Sequence[Outcome]) -> str:
    reasons = Counter(one.reason or "serves on" for one in found)
    ended = ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
    held = sum(not one.complaints for one in found)
    safe = _figures([one.safe_s for one in found])
    serving = _figures([one.serving_s for one in found])
    return f"| {fault.name} | {fault.expect.value} | {len(found)} | {held} | {ended} | {safe} | {serving} |\n"


def _figures(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.2f} / {percentile(known, 0.99):.2f}" if known else ""
