"""Measured figures: what they do to a plan, how they are kept, and how they are taken of a launch that runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.errors import Refused
from build.units import GIB
from supervisor.gang.takings import BUNDLES, Meter, Takings
from supervisor.memory.measured import CONTEXTS, LAUNCHES, Took, contexts, from_json, kept, settled, taken_over
from supervisor.memory.plan import NodePlan, PlansAt, choose_context
from supervisor.memory.report import Asked, as_text, report

WINDOW = 1 << 20
FLOOR = 4 * GIB
PUBLISHED = NodePlan("head", 116 * GIB, 98 * GIB, 10_000, 2 * GIB, origin="published of dsv41")
SHAPE = "4 streams"


def took(
    loaded: float, full: float, filled: float = 1.0, *, context: int = WINDOW, launch: str = "a", node: str = "head"
) -> Took:
    sizes = (int(loaded * GIB), int(full * GIB), int(full * GIB) + 1)
    return Took(launch, node, context, SHAPE, *sizes, filled, 0, float(sum(launch.encode())))


def at(*known: Took, plan: NodePlan = PUBLISHED) -> PlansAt:
    return lambda context: (plan if context is None else taken_over(plan, known, context, SHAPE),)


@pytest.mark.parametrize("full", [104.0, 111.5])
def test_a_gang_whose_contexts_were_full_is_planned_by_what_it_took_be_it_more_or_less(full: float) -> None:
    plan = taken_over(PUBLISHED, [took(101, full)], WINDOW, SHAPE)
    assert plan.need_bytes(WINDOW) / GIB == pytest.approx(full, abs=0.01)
    assert plan.measured
    assert "measured here in 1 launch" in plan.origin
    assert "100% full" in plan.origin


def test_contexts_that_were_never_filled_are_planned_as_before() -> None:
    idle = taken_over(PUBLISHED, [took(101, 101, filled=0.0)], WINDOW, SHAPE)
    assert idle.need_bytes(WINDOW) == pytest.approx(101 * GIB + WINDOW * PUBLISHED.bytes_per_token, abs=WINDOW)
    half = taken_over(PUBLISHED, [took(101, 103, filled=0.5)], WINDOW, SHAPE)
    assert half.need_bytes(WINDOW) == pytest.approx(103 * GIB + WINDOW * PUBLISHED.bytes_per_token / 2, abs=WINDOW)


@pytest.mark.parametrize("other", [{"context": 8192}, {"node": "worker"}])
def test_figures_of_another_context_or_node_say_nothing(other: dict[str, object]) -> None:
    known = dataclasses.replace(took(200, 200), **{"context_tokens" if k == "context" else k: v for k, v in other.items()})  # type: ignore[arg-type]
    assert taken_over(PUBLISHED, [known], WINDOW, SHAPE) == PUBLISHED
    assert taken_over(PUBLISHED, [took(200, 200)], WINDOW, "2 streams") == PUBLISHED


def test_of_several_launches_the_middle_one_counts_and_less_full_ones_do_not() -> None:
    known = [took(101, 104, launch="a"), took(101, 130, launch="b"), took(101, 105, launch="c"), took(50, 50, 0.1, launch="d")]
    assert taken_over(PUBLISHED, known, WINDOW, SHAPE).need_bytes(WINDOW) / GIB == pytest.approx(105, abs=0.01)


def test_a_context_that_was_measured_not_to_fit_is_refused_with_the_largest_that_does() -> None:
    with pytest.raises(Refused, match=r"largest that fits is (\d+)") as refused:
        choose_context(WINDOW, at(took(101, 114)), FLOOR, WINDOW)
    largest = int(str(refused.value).rpartition(" ")[2])
    assert 0 < largest < WINDOW
    assert choose_context(largest, at(took(101, 114)), FLOOR, WINDOW) == largest


def test_auto_takes_what_was_measured_over_the_figures_both_ways() -> None:
    assert choose_context("auto", at(), FLOOR, WINDOW) == WINDOW
    assert choose_context("auto", at(took(101, 114)), FLOOR, WINDOW, (WINDOW,)) < WINDOW
    tight = dataclasses.replace(PUBLISHED, available_bytes=110 * GIB)
    assert choose_context("auto", at(plan=tight), FLOOR, WINDOW) < WINDOW
    assert choose_context("auto", at(took(101, 104), plan=tight), FLOOR, WINDOW, (WINDOW,)) == WINDOW


@given(
    st.lists(
        st.tuples(st.floats(1, 120), st.floats(1, 120), st.floats(0, 1), st.sampled_from([8192, 65536, WINDOW])), max_size=8
    ),
    st.floats(0, 130),
)
def test_whatever_was_measured_auto_never_promises_what_is_not_there(
    figures: list[tuple[float, float, float, int]], available: float
) -> None:
    plan = dataclasses.replace(PUBLISHED, available_bytes=int(available * GIB))
    known = [took(lo, full, fill, context=where, launch=str(n)) for n, (lo, full, fill, where) in enumerate(figures)]
    try:
        chosen = choose_context("auto", at(*known, plan=plan), FLOOR, WINDOW, contexts(known, SHAPE))
    except Refused:
        return
    (promised,) = at(*known, plan=plan)(chosen)
    assert promised.need_bytes(chosen) + FLOOR <= plan.available_bytes


def test_the_plan_says_where_its_figures_come_from() -> None:
    asked = Asked(WINDOW, WINDOW, FLOOR, 4.0, (("context", str(WINDOW), "default"),))
    assert "head, by published of dsv41:" in as_text(report(asked, at()))
    text = as_text(report(asked, at(took(101, 104))))
    assert "head, by measured here in 1 launch at this context" in text
    assert "most that was seen taken" in text


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), max_size=120))
def test_what_is_kept_is_bounded_and_each_launch_is_there_once(launches: list[tuple[int, int]]) -> None:
    known: tuple[Took, ...] = ()
    for moment, (launch, context) in enumerate(launches):
        new = Took(f"launch-{launch}", "head", context * 1024, SHAPE, GIB, GIB, GIB, 0.5, 0, float(moment))
        known = kept(known, new)
        assert known[-1] == new
    assert len({(one.launch_id, one.node) for one in known}) == len(known) <= CONTEXTS * LAUNCHES
    assert all(sum(one.key == other.key for other in known) <= LAUNCHES for one in known)


def test_files_are_private_bounded_and_whole(tmp_path: Path) -> None:
    takings = Takings(tmp_path)
    for number in range(BUNDLES + 4):
        takings.keep(f"bundle{number}", took(101, 104, launch=str(number)))
    files = sorted((tmp_path / "memory").iterdir())
    assert len(files) == BUNDLES
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert (tmp_path / "memory").stat().st_mode & 0o777 == 0o700
    assert takings.of(f"bundle{BUNDLES + 3}") == (took(101, 104, launch=str(BUNDLES + 3)),)


@pytest.mark.parametrize("content", ["", "{", "[]", '[{"node": 3}]', '{"a": 1}', "[null]", '"text"'])
def test_a_file_that_is_none_of_ours_says_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "b.json").write_text(content)
    assert Takings(tmp_path).of("b") == ()


def test_what_a_supervisor_measures_counts_for_launches_once_another_one_begins(tmp_path: Path) -> None:
    takings = Takings(tmp_path)
    takings.settle()
    takings.keep("b", took(101, 104))
    assert settled(takings.of("b")) == ()
    takings.settle()
    takings.keep("b", took(101, 104, launch="b"))
    assert [one.launch_id for one in settled(takings.of("b"))] == ["a"]


def test_what_is_kept_is_read_back() -> None:
    known = (took(101, 104, 0.25), took(101, 104, launch="b"))
    assert from_json(json.loads(json.dumps([dataclasses.asdict(one) for one in known]))) == known


def test_a_meter_takes_the_fullest_time_and_leaves_out_a_short_dip_of_somebody_elses() -> None:
    meter = Meter({"head": 100})
    for at_s, available in ((0.0, 90), (0.2, 70), (0.7, 60), (1.2, 60)):
        meter.sample("head", available, at_s)
    meter.fill(0.9, 0.5)  # a request beside the smoke test
    assert meter.took("head") is None, "it does not serve yet"
    meter.loaded()
    meter.sample("head", 58, 2.0)
    meter.fill(0.5, 3.0)
    meter.sample("head", 58, 2.9)  # told late
    for at_s in (3.0, 3.5, 4.0):
        meter.sample("head", 40, at_s)
    for tenth in range(1, 8):  # memory that moves is told of more often, and counts for no more
        meter.sample("head", 5, 4.0 + tenth / 10)
    meter.sample("head", 40, 5.0)
    assert meter.took("head") == (40, 60, 95, 0.5)
    meter.fill(0.1, 6.0)
    meter.sample("head", 55, 6.0)
    meter.end(7.0)
    meter.sample("head", 99, 7.1)
    meter.sample("elsewhere", 1, 6.0)
    assert meter.took("head") == (40, 60, 95, 0.5)
