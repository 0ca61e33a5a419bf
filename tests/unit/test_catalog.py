"""The catalogue keeps Prometheus' naming rules."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from metrics.catalog import CATALOGUE, PREFIX, Kind, Metric

SCRAPE_LABELS = {"job", "instance", "le", "quantile"}  # a scrape or the format itself adds these


def test_every_name_stands_once() -> None:
    assert [name for name, count in Counter(metric.name for metric in CATALOGUE).items() if count > 1] == []


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_a_metric_keeps_the_naming_rules(metric: Metric) -> None:
    assert re.fullmatch(PREFIX + r"[a-z0-9]+(_[a-z0-9]+)*", metric.name)
    assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
    assert (metric.kind is Kind.INFO) == metric.name.endswith("_info")
    assert metric.family.endswith("_" + metric.unit if metric.unit else "")
    assert all(re.fullmatch(r"[a-z][a-z_]*", label) for label in metric.labels)
    assert not SCRAPE_LABELS & set(metric.labels)


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_help_is_a_sentence(metric: Metric) -> None:
    assert metric.help.endswith(".")
    assert "\n" not in metric.help


@pytest.mark.parametrize("suffix", ["_bytes", "_seconds", "_ratio"])
def test_a_unit_in_a_name_is_declared(suffix: str) -> None:
    named = [metric for metric in CATALOGUE if metric.family.endswith(suffix)]
    assert named
    assert {metric.unit for metric in named} == {suffix[1:]}
