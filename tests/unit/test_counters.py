"""Totals over restarts, and rates."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.status.counters import Rate, Total

raws = st.one_of(st.none(), st.floats(), st.floats(min_value=0, max_value=1e9))
readings = st.lists(st.tuples(st.integers(min_value=1, max_value=5), raws))


@given(readings)
def test_a_total_never_goes_back(steps: list[tuple[int, float | None]]) -> None:
    total = Total()
    for launch, raw in steps:
        later = total.advance(launch, raw)
        assert later.value >= total.value
        total = later


@given(st.lists(st.lists(st.integers(min_value=0, max_value=10**9), min_size=1), min_size=1))
def test_a_total_is_the_sum_of_each_launch_at_its_highest(launches: list[list[int]]) -> None:
    total = Total()
    for number, values in enumerate(launches, 1):
        for value in sorted(values):
            total = total.advance(number, value)
    assert total.value == sum(max(values) for values in launches)


def test_a_dip_within_a_launch_is_not_counted_twice() -> None:
    total = Total()
    for raw in (100.0, 60.0, 104.0):
        total = total.advance(1, raw)
    assert total.value == 104.0


def test_a_late_reading_of_an_earlier_launch_changes_nothing() -> None:
    total = Total().advance(1, 10.0).advance(2, 3.0)
    assert total.advance(1, 50.0) == total


@pytest.mark.parametrize("raw", [None, math.nan, math.inf, -1.0])
def test_a_reading_that_is_no_total_changes_nothing(raw: float | None) -> None:
    total = Total().advance(1, 10.0)
    assert total.advance(1, raw) == total
    assert total.advance(2, raw) == total


def _observed(window_s: float, *points: tuple[float, float]) -> Rate:
    rate = Rate(window_s)
    for at_s, value in points:
        rate = rate.observe(at_s, value)
    return rate


def test_a_rate_is_the_slope_over_the_window() -> None:
    rate = _observed(5.0, *((float(second), 20.0 * second) for second in range(60)))
    assert rate.per_second(59.0) == pytest.approx(20.0)
    assert len(rate.points) <= 7


def test_a_rate_forgets_what_lies_before_the_window() -> None:
    rate = _observed(5.0, (0.0, 0.0), (1.0, 1000.0), (10.0, 1000.0), (14.0, 1000.0), (20.0, 1000.0))
    assert rate.per_second(20.0) == 0.0


def test_a_reader_slower_than_the_window_still_has_a_rate() -> None:
    assert _observed(5.0, (0.0, 0.0), (8.0, 80.0)).per_second(8.0) == 10.0


@pytest.mark.parametrize(
    ("rate", "now_s"), [(Rate(), 1.0), (_observed(5.0, (1.0, 7.0)), 1.0), (_observed(5.0, (0.0, 0.0), (1.0, 9.0)), 7.0)]
)
def test_nothing_to_compare_or_nothing_recent_is_no_rate(rate: Rate, now_s: float) -> None:
    assert rate.per_second(now_s) == 0.0


def test_a_rate_falls_as_well() -> None:
    assert _observed(5.0, (0.0, 100.0), (2.0, 40.0)).per_second(2.0) == -30.0


@given(st.lists(st.tuples(st.floats(min_value=0, max_value=1e6), st.floats(min_value=0, max_value=1e12))))
def test_points_stay_in_order_whatever_order_they_come_in(points: list[tuple[float, float]]) -> None:
    rate = _observed(5.0, *points)
    times = [at_s for at_s, _ in rate.points]
    assert times == sorted(set(times))
