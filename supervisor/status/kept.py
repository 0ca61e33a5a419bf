"""The engine's own families as they are shown: nothing it says is lost, and no counter goes back. Pure.

An engine's counters start anew with each launch, and a series that it had before may be missing until something happens. So
counters and histograms are summed over launches series by series, and a series once seen is kept; gauges are as last told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from supervisor.engine.promtext import Family, Point
from supervisor.status.counters import Total

SERIES = 2000  # kept of one family at most: labels of an engine that runs wild must not fill memory
GROWING = frozenset({"counter", "histogram"})
Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Kept:
    """One family over all launches. ``totals`` has the series of a counter or histogram in order of appearance; ``shown`` is the
    family with the values to show.
    """

    family: Family
    launch: int
    totals: Mapping[Key, Total] = field(default_factory=lambda: MappingProxyType({}))
    shown: Family = field(init=False)  # made once: it is asked for more often than the engine says anything new

    def __post_init__(self) -> None:
        object.__setattr__(self, "shown", self._shown() if self.grows else self.family)

    @property
    def grows(self) -> bool:
        """Its values only ever grow; else they are figures of one moment of ``launch``."""
        return self.family.type in GROWING

    def _shown(self) -> Family:
        points = tuple(Point(name, MappingProxyType(dict(labels)), total.value) for (name, labels), total in self.totals.items())
        return replace(self.family, points=points)


def keep(kept: Mapping[str, Kept], families: Iterable[Family], launch: int) -> Mapping[str, Kept]:
    """With what the engine said in a launch."""
    after = dict(kept)
    for family in families:
        before = after.get(family.name)
        if before is None or before.family.type != family.type:
            before = Kept(family, launch)
        totals = _advanced(before.totals, family.points, launch) if before.grows else before.totals
        after[family.name] = Kept(family, launch, totals)
    return MappingProxyType(after)


def _advanced(before: Mapping[Key, Total], points: Iterable[Point], launch: int) -> Mapping[Key, Total]:
    totals = dict(before)
    for point in points:
        key = (point.name, tuple(sorted(point.labels.items())))
        if key in totals or len(totals) < SERIES:
            totals[key] = totals.get(key, Total()).advance(launch, point.value)
    return MappingProxyType(totals)
