"""Which metrics and labels a PromQL expression names, checked against the catalogue. Pure.

Not a parser of the whole language (promtool has that): it tells metric names from functions, keywords, labels and durations,
which is enough to refuse a query of something that nobody exports.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from metrics.catalog import CATALOGUE, Kind, Metric

# Series that Prometheus itself adds for each target.
OF_PROMETHEUS = frozenset({"up", "scrape_duration_seconds", "scrape_samples_scraped"})
OF_A_TARGET = frozenset({"job", "instance"})
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_DURATION = re.compile(r"\[[^\]]*\]")
_LABEL_LIST = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)?\s*\{([^}]*)\}")
_WORD = re.compile(r"(?<![\w:.])[a-zA-Z_:][\w:]*+(?!\s*\()")
_FUNCTION = re.compile(r"[a-zA-Z_]\w*\s*\(")
_KEYWORDS = frozenset({"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "group_left", "group_right"})
_SUFFIXES = ("_bucket", "_sum", "_count")


class Unknown(ValueError):
    """A query names what the catalogue does not have."""


def names(expression: str) -> frozenset[str]:
    """The metric names of an expression."""
    return frozenset(name for name, _ in _selectors(expression))


def known(recorded: Iterable[str] = ()) -> Mapping[str, Metric | None]:
    """Every series name that may be queried, with its metric; None for recorded ones and Prometheus' own."""
    found: dict[str, Metric | None] = dict.fromkeys((*OF_PROMETHEUS, *recorded))
    for metric in CATALOGUE:
        suffixes = _SUFFIXES if metric.kind is Kind.HISTOGRAM else ("",)
        found |= {metric.name + suffix: metric for suffix in suffixes}
    return found


def check(expression: str, where: str, recorded: Iterable[str] = ()) -> None:
    """Raise :class:`Unknown` for a metric, or a label of one, that the catalogue lacks. ``where`` names the query."""
    series = known(recorded)
    for name, labels in _selectors(expression):
        if name not in series:
            raise Unknown(f"{where} names {name}, which the catalogue does not have: metrics/catalog.py lists what is exported")
        metric = series[name]
        strange = labels - OF_A_TARGET - {"le"} - set(metric.labels if metric else labels)
        if metric and strange:
            raise Unknown(f"{where} asks {name} for {', '.join(sorted(strange))}: its labels are {', '.join(metric.labels)}")


def _selectors(expression: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Each metric that is named, with the labels that its matchers name."""
    plain = _DURATION.sub("", _STRING.sub('""', expression))
    plain = _LABEL_LIST.sub(" ", plain)
    for name, matchers in _SELECTOR.findall(plain):
        if name:
            yield name, frozenset(re.findall(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)", matchers))
    for word in _WORD.finditer(_FUNCTION.sub(" (", _SELECTOR.sub(" ", plain))):
        if word[0] not in _KEYWORDS:
            yield word[0], frozenset()
