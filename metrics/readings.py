"""What the supervisor publishes and the exporter serves: readings of catalogued metrics, and a status for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from metrics.catalog import Kind, Metric


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram's value: ``buckets`` are (upper bound, cumulative count), ascending, the last bound infinite."""

    buckets: tuple[tuple[float, float], ...]
    sum: float

    def __post_init__(self) -> None:
        bounds = [bound for bound, _ in self.buckets]
        counts = [count for _, count in self.buckets]
        if not bounds or bounds[-1] != float("inf") or bounds != sorted(set(bounds)) or counts != sorted(counts):
            raise ValueError(f"buckets must ascend and end at infinity: {self.buckets}")


@dataclass(frozen=True, slots=True)
class Reading:
    """One sample, in the metric's unit. ``value`` is a :class:`Distribution` for a histogram, and 1 for an info."""

    metric: Metric
    value: float | Distribution
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if set(self.labels) != set(self.metric.labels):
            raise ValueError(f"{self.metric.name} has the labels {self.metric.labels}, not {tuple(self.labels)}")
        if isinstance(self.value, Distribution) != (self.metric.kind is Kind.HISTOGRAM):
            raise ValueError(f"{self.metric.name} is a {self.metric.kind.value}: a {type(self.value).__name__} does not fit")

    @property
    def label_values(self) -> tuple[str, ...]:
        """The labels' values in the catalogue's order."""
        return tuple(self.labels[name] for name in self.metric.labels)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A family of someone else's, passed through: ``points`` are (name, labels, value), each series once.

    ``kind`` is the word of the text format ("counter", "gauge", "histogram", "summary"), anything else is untyped.
    """

    name: str
    kind: str
    help: str
    points: tuple[tuple[str, Mapping[str, str], float], ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is shown at one moment.

    ``taken_at_s`` is Unix time. ``status`` becomes /status.json and the status page: JSON values only. ``live`` says whether the
    supervisor works, ``ready`` whether the gang serves; ``why`` says in a few words why it does not, or "".
    """

    taken_at_s: float
    readings: tuple[Reading, ...]
    status: Mapping[str, Any]
    live: bool
    ready: bool
    why: str = ""
    foreign: tuple[Foreign, ...] = ()

    def __post_init__(self) -> None:
        seen = Counter((reading.metric.name, reading.label_values) for reading in self.readings)
        double = [key for key, count in seen.items() if count > 1]
        if double:
            raise ValueError(f"read twice in one snapshot: {double}")
