"""Readings as Prometheus text or OpenMetrics.

Written here and not by prometheus_client, whose OpenMetrics takes tens of milliseconds of the interpreter for two nodes: that
long every scrape would wait. The formats are prometheus.io's "Exposition formats", text version 0.0.4, and OpenMetrics 1.0.0;
tests read every family back with prometheus_client's parsers and promtool. Nothing global is ever shown.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from metrics.catalog import CATALOGUE, Kind, Metric
from metrics.readings import Distribution, Foreign, Reading

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_TYPED = frozenset({"gauge", "histogram", "summary"})


def content_type(accept: str) -> str:
    """The form that a scraper's Accept header asks for: :data:`OPENMETRICS` or :data:`TEXT`."""
    from prometheus_client.exposition import choose_encoder

    return OPENMETRICS if choose_encoder(accept)[1].startswith("application/openmetrics-text") else TEXT


def render(readings: Sequence[Reading], form: str, foreign: Sequence[Foreign] = ()) -> bytes:
    """Every reading in the catalogue's order, then foreign families. ``form`` is :data:`TEXT` or :data:`OPENMETRICS`."""
    by_metric: dict[str, list[Reading]] = {}
    for reading in readings:
        by_metric.setdefault(reading.metric.name, []).append(reading)
    lines: list[str] = []
    for metric in CATALOGUE:
        if metric.name in by_metric:
            lines += _head(metric, form)
            for reading in by_metric[metric.name]:
                lines += _samples(reading)
    for one in foreign:
        lines += _foreign(one, form)
    if form == OPENMETRICS:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode() if lines else b""


@functools.cache
def _head(metric: Metric, form: str) -> tuple[str, ...]:
    if form == OPENMETRICS:
        unit = (f"# UNIT {metric.family} {metric.unit}",) if metric.unit else ()
        return (f"# HELP {metric.family} {_escaped(metric.help)}", f"# TYPE {metric.family} {metric.kind.value}", *unit)
    kind = "gauge" if metric.kind is Kind.INFO else metric.kind.value  # the older format knows no info
    return (f"# HELP {metric.name} {_plain(metric.help)}", f"# TYPE {metric.name} {kind}")


def _samples(reading: Reading) -> Iterator[str]:
    name, labels = reading.metric.name, reading.labels
    if reading.metric.kind is not Kind.HISTOGRAM:
        yield _line(name, labels, cast("float", reading.value))
        return
    value = cast("Distribution", reading.value)
    for bound, count in value.buckets:
        yield _line(name + "_bucket", {**labels, "le": _number(bound)}, count)
    yield _line(name + "_count", labels, value.buckets[-1][1])
    yield _line(name + "_sum", labels, value.sum)


def _foreign(one: Foreign, form: str) -> list[str]:
    """As the format has it: a counter whose series lack ``_total`` has no type there."""
    named = all(name.endswith("_total") for name, _, _ in one.points)
    kind = one.kind if one.kind in _TYPED or (one.kind == "counter" and named) else "untyped"
    name = one.name
    if form == OPENMETRICS:
        name, kind = (name.removesuffix("_total"), kind) if kind == "counter" else (name, kind.replace("untyped", "unknown"))
    elif kind == "counter" and not name.endswith("_total"):
        name += "_total"
    text = _escaped(one.help) if form == OPENMETRICS else _plain(one.help)
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *(_line(*point) for point in one.points)]


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    if not labels:
        return f"{name} {_number(value)}"
    pairs = ",".join([f'{key}="{_escaped(labels[key])}"' for key in sorted(labels)])
    return f"{name}{{{pairs}}} {_number(value)}"


def _number(value: float) -> str:
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return "NaN"
    if value in {float("inf"), float("-inf")}:
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def _plain(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _escaped(text: str) -> str:
    return _plain(text).replace('"', r"\"")
