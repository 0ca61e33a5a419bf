"""What a dashboard shows, as data: queries over catalogued metrics, apart from how Grafana writes them down. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from metrics.catalog import Kind, Metric
from metrics.monitoring.promql import names

RATE = "$__rate_interval"
RED_BELOW_ZERO = ((None, "red"), (0.0, "green"))  # limits of a panel of headroom


class Look(enum.Enum):
    """How a panel draws."""

    LINES = "lines"
    STACKED = "stacked"
    STAT = "stat"
    TABLE = "table"
    STATES = "states"  # a timeline of 0 and 1, coloured


@dataclass(frozen=True, slots=True)
class Query:
    """One expression; ``legend`` is Grafana's format, e.g. ``{{node}}``."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """``unit`` is one of Grafana's ids. ``limits`` colour a value: (from, colour), the first from None."""

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    look: Look = Look.LINES
    width: int = 8
    limits: tuple[tuple[float | None, str], ...] = ()
    decimals: int | None = None
    least: float | None = None  # where the axis begins

    @property
    def description(self) -> str:
        """What it shows, ending with the names of the metrics."""
        found = sorted({name for query in self.queries for name in names(query.expression)})
        return f"{self.text} Metric{'s' if len(found) > 1 else ''}: {', '.join(found)}"


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. ``uid`` is part of its address, and never changes."""

    uid: str
    title: str
    text: str
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All of them."""
        return tuple(panel for row in self.rows for panel in row.panels)


def of(metric: Metric, **matchers: str) -> str:
    """The metric's series of the chosen job, nodes and models; a matcher's value may begin with ~ (matches) or ! (is not)."""
    return part(metric, "", **matchers)


def part(metric: Metric, suffix: str, **matchers: str) -> str:
    """The same of one part of a histogram: ``_bucket``, ``_sum`` or ``_count``."""
    given = [_matcher(name, value) for name, value in matchers.items()]
    chosen = [f'{name}=~"${name}"' for name in ("node", "model") if name in metric.labels and name not in matchers]
    selector = ", ".join(('job=~"$job"', *chosen, *given))
    return f"{metric.name}{suffix}{{{selector}}}"


def rate(metric: Metric, **matchers: str) -> str:
    """A counter's increase a second."""
    return f"rate({of(metric, **matchers)}[{RATE}])"


def quantile(share: float, metric: Metric) -> str:
    """A histogram's quantile over all that was seen in the window."""
    if metric.kind is not Kind.HISTOGRAM:
        raise ValueError(f"{metric.name} is no histogram")
    return f"histogram_quantile({share:g}, sum by (le, job) (rate({part(metric, '_bucket')}[{RATE}])))"


def mean(metric: Metric) -> str:
    """A histogram's mean over the window; 0 where nothing was counted."""
    return f"rate({part(metric, '_sum')}[{RATE}]) / clamp_min(rate({part(metric, '_count')}[{RATE}]), 1e-9)"


def _matcher(name: str, value: str) -> str:
    if value.startswith("~"):
        return f'{name}=~"{value[1:]}"'
    return f'{name}!="{value[1:]}"' if value.startswith("!") else f'{name}="{value}"'
