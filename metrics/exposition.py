"""Readings as Prometheus text or OpenMetrics: the one place that knows prometheus_client.

Each rendering uses a registry of its own, so nothing global (process or platform collectors) is shown, and no collector of ours
can raise within a scrape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from metrics.catalog import CATALOGUE, Kind, Metric
from metrics.readings import Distribution, Foreign, Reading

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def content_type(accept: str) -> str:
    """The form that a scraper's Accept header asks for: :data:`OPENMETRICS` or :data:`TEXT`."""
    from prometheus_client.exposition import choose_encoder

    return OPENMETRICS if choose_encoder(accept)[1].startswith("application/openmetrics-text") else TEXT


def render(readings: Sequence[Reading], form: str, foreign: Sequence[Foreign] = ()) -> bytes:
    """Every reading in the catalogue's order, then foreign families. ``form`` is :data:`TEXT` or :data:`OPENMETRICS`."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected((*_families(readings), *map(_foreign, foreign))))
    if form == OPENMETRICS:
        return cast("bytes", generate_openmetrics(registry))  # type: ignore[no-untyped-call]
    return generate_latest(registry)


@dataclass(frozen=True, eq=False)  # a registry keys its collectors by identity
class _Collected:
    families: tuple[Family, ...]

    def collect(self) -> Iterable[Family]:
        return self.families


def _families(readings: Sequence[Reading]) -> Iterator[Family]:
    by_metric: dict[str, list[Reading]] = {}
    for reading in readings:
        by_metric.setdefault(reading.metric.name, []).append(reading)
    for metric in CATALOGUE:
        if metric.name in by_metric:
            yield _family(metric, by_metric[metric.name])


def _family(metric: Metric, readings: Sequence[Reading]) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily

    if metric.kind is Kind.INFO:
        info = InfoMetricFamily(metric.family, metric.help)
        for reading in readings:
            info.add_metric((), dict(reading.labels))
        return info
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.family, metric.help, labels=metric.labels, unit=metric.unit)
        for reading in readings:
            value = cast("Distribution", reading.value)
            buckets = [(_bound(bound), count) for bound, count in value.buckets]
            histogram.add_metric(reading.label_values, buckets, sum_value=value.sum)
        return histogram
    make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = make(metric.family, metric.help, labels=metric.labels, unit=metric.unit)
    for reading in readings:
        family.add_metric(reading.label_values, cast("float", reading.value))
    return family


def _foreign(one: Foreign) -> Family:
    """As the format has it: a counter whose series lack ``_total`` has no type there."""
    from prometheus_client.core import Metric as Family

    named = all(name.endswith("_total") for name, _, _ in one.points)
    kind = one.kind if one.kind in {"gauge", "histogram", "summary"} or (one.kind == "counter" and named) else "unknown"
    family = Family(one.name.removesuffix("_total") if kind == "counter" else one.name, one.help, kind)
    for name, labels, value in one.points:
        family.add_sample(name, dict(labels), value)
    return family


def _bound(bound: float) -> str:
    from prometheus_client.utils import floatToGoString

    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]
