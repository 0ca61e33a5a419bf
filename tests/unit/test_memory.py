from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from build.errors import Refused
from build.units import GIB
from supervisor.memory.plan import CONTEXT_STEP, NodePlan, PlansAt, choose_context
from supervisor.memory.policy import (
    Floor,
    FloorVerdict,
    FloorWatch,
    Gate,
    GateState,
    GateWatch,
    Sample,
    Stage,
    gate_need_bytes,
    sustained_fall,
    watch_floor,
    watch_gate,
)
from supervisor.settings import Memory
from tests.testing.cases import case

COLLAPSE = case("memory-collapse-series")
FLOOR = Floor(4 * GIB, 2 * GIB, grace_s=5.0, horizon_s=0.5, stale_s=1.0)


def series() -> list[Sample]:
    rows = [line.split("\t") for line in COLLAPSE.text("input.tsv").splitlines()[1:]]
    return [Sample(float(at), int(available) * 1024, int(free) * 1024) for at, available, free, _ in rows]


def judge(floor: Floor, samples: list[Sample], late_s: float = 0.0) -> list[FloorVerdict]:
    watch, verdicts = FloorWatch(), []
    for sample in samples:
        watch, verdict = watch_floor(floor, watch, sample, sample.at_s + late_s)
        verdicts.append(verdict)
    return verdicts


def steady(available_gib: float, seconds: float, start_s: float = 0.0, fall_gib_s: float = 0.0) -> list[Sample]:
    times = [start_s + step / 10 for step in range(int(seconds * 10) + 1)]
    return [Sample(at, int((available_gib - (at - start_s) * fall_gib_s) * GIB), 0) for at in times]


def test_a_collapse_is_answered_before_the_freeze_and_not_while_it_is_flat() -> None:
    floor_bytes = int(COLLAPSE.given["floor_gib"] * GIB)
    defaults = Memory()
    floor = Floor(floor_bytes, floor_bytes // 2, defaults.floor_grace_s, defaults.slope_horizon_s, defaults.sample_stale_s)
    samples = series()
    verdicts = judge(floor, samples)
    asked = next(s.at_s for s, v in zip(samples, verdicts, strict=True) if v.stage.kills or v.stage.stops)
    assert asked <= COLLAPSE.expect["stop_asked_for_no_later_than_s"]
    assert asked >= COLLAPSE.expect["no_stop_before_s"]
    assert next(s.at_s for s in samples if s.available_bytes < floor_bytes) == COLLAPSE.expect["first_sample_below_floor_s"]


def test_the_answer_to_a_collapse_does_not_wait_for_swap() -> None:
    assert {line.split("\t")[3] for line in COLLAPSE.text("input.tsv").splitlines()[1:]} == {"16777212"}


def test_a_slow_poll_would_never_see_that_collapse() -> None:
    for period, seen in ((2, "seen_by_a_2_s_poll_gib"), (1, "seen_by_a_1_s_poll_gib")):
        polled = [s for s in series() if s.at_s % period == 0]
        assert [round(s.available_bytes / GIB, 1) for s in polled] == COLLAPSE.expect[seen]
    from build.settings import Sources, load

    with pytest.raises(Exception, match=r"0\.02 to 0\.5"):
        load([Memory], Sources(None, {}, {"sample_period_s": 1.0}))


def test_the_soft_floor_gives_a_grace_period_and_forgets_a_breach_that_ended() -> None:
    samples = [*steady(3.5, 4.0), *steady(8.0, 0.1, 4.1), *steady(3.5, 4.9, 4.3)]
    verdicts = judge(FLOOR, samples)
    assert {v.stage for v in verdicts} == {Stage.GRACE, Stage.OK}
    assert judge(FLOOR, steady(3.5, 5.2))[-1].stage is Stage.SOFT


def test_the_hard_floor_is_answered_by_its_first_sample() -> None:
    assert judge(FLOOR, [Sample(0.0, 2 * GIB - 1, 0)])[0].stage is Stage.HARD
    assert judge(FLOOR, [Sample(0.0, 2 * GIB, 0)])[0].stage is Stage.GRACE


def test_one_big_allocation_is_no_slope() -> None:
    samples = [*steady(7.0, 1.0), *steady(4.1, 1.0, 1.1)]
    assert {v.stage for v in judge(FLOOR, samples)} == {Stage.OK}


def test_under_the_floor_and_still_falling_ends_the_grace_early() -> None:
    samples = steady(4.2, 4.0, fall_gib_s=0.5)
    told = zip(samples, judge(FLOOR, samples), strict=True)
    sample, first = next((s, v) for s, v in told if v.stage not in {Stage.OK, Stage.GRACE})
    assert first.stage is Stage.SOFT  # in order, while there is time: not a kill
    assert sample.available_bytes < FLOOR.floor_bytes


def test_stages_stop_or_kill_or_wait() -> None:
    assert [s for s in Stage if s.stops] == [Stage.SOFT]
    assert [s for s in Stage if s.kills] == [Stage.HARD, Stage.SLOPE]


def test_samples_that_are_far_apart_give_no_slope() -> None:
    assert sustained_fall((Sample(0, 9 * GIB, 0), Sample(5, 6 * GIB, 0), Sample(10, 3 * GIB, 0))) == 0.0


gib = st.floats(0, 64)
steps = st.lists(st.tuples(st.floats(0.02, 0.8), gib), min_size=1, max_size=60)


def walk(pairs: list[tuple[float, float]]) -> list[Sample]:
    at, samples = 100.0, []
    for step, available in pairs:
        at += step
        samples.append(Sample(at, int(available * GIB), int(available * GIB / 2)))
    return samples


def breached_since(floor: Floor, samples: list[Sample]) -> list[float | None]:
    """By each sample, since when the floor is breached: from its first low sample until it has held for ``clear_s``."""
    since: float | None = None
    held: float | None = None
    found = []
    for sample in samples:
        if sample.available_bytes < floor.floor_bytes:
            since, held = (sample.at_s if since is None else since), None
        else:
            held = sample.at_s if held is None else held
            since = None if sample.at_s - held >= floor.clear_s else since
        found.append(since)
    return found


@given(steps, st.floats(1.001, 100))
def test_a_stale_sample_never_acts(pairs: list[tuple[float, float]], age: float) -> None:
    watch = FloorWatch()
    for sample in walk(pairs):
        after, verdict = watch_floor(FLOOR, watch, sample, sample.at_s + age)
        assert verdict.stage is Stage.STALE
        assert after == watch


@given(steps)
def test_no_breach_stays_unanswered_longer_than_its_grace(pairs: list[tuple[float, float]]) -> None:
    samples = walk(pairs)
    for sample, verdict, since in zip(samples, judge(FLOOR, samples), breached_since(FLOOR, samples), strict=True):
        acts = verdict.stage.kills or verdict.stage.stops
        if sample.available_bytes < FLOOR.hard_floor_bytes:
            assert verdict.stage is Stage.HARD
        if since is not None and sample.at_s - since >= FLOOR.grace_s:
            assert acts


CLEARING = Floor(4 * GIB, 2 * GIB, grace_s=5.0, horizon_s=0.0, stale_s=1.0, clear_s=1.0)


@given(st.lists(st.sampled_from([3.5, 4.5]), min_size=70, max_size=120))
def test_memory_that_swings_around_the_floor_is_answered_within_the_grace(levels: list[float]) -> None:
    """A breach ends only where the floor held for ``clear_s``; in one, the first low sample after the grace stops the gang."""
    samples = [Sample(at / 10, int(level * GIB), 0) for at, level in enumerate(levels)]
    for sample, verdict, since in zip(samples, judge(CLEARING, samples), breached_since(CLEARING, samples), strict=True):
        if sample.available_bytes < CLEARING.floor_bytes:
            assert since is not None
            assert verdict.stage is (Stage.SOFT if sample.at_s - since >= CLEARING.grace_s else Stage.GRACE)
        else:
            assert verdict.stage is Stage.OK


@given(steps)
@example([(0.5, 5.0), (0.09375, 4.0), *[(0.5, 0.0)] * 11])
def test_an_orderly_stop_is_never_asked_for_before_the_grace_is_over(
    pairs: list[tuple[float, float]],
) -> None:
    """A breach begins with its first low sample, whatever that calls for: one that falls fast is stopped without a grace."""
    floor = Floor(4 * GIB, 0, grace_s=5.0, horizon_s=0.0, stale_s=1.0, clear_s=1.0)
    samples = walk(pairs)
    for sample, verdict, since in zip(samples, judge(floor, samples), breached_since(floor, samples), strict=True):
        if verdict.stage is Stage.SOFT and verdict.falling_bytes_per_s == 0:
            assert since is not None
            assert sample.at_s - since >= floor.grace_s


@given(st.floats(4.0, 64.0), st.floats(0.0, 0.2))
def test_memory_that_stays_above_the_floor_is_left_alone(available: float, wobble: float) -> None:
    samples = [Sample(at / 10, int((available + wobble * (at % 2)) * GIB), 0) for at in range(50)]
    assert {v.stage for v in judge(FLOOR, samples)} == {Stage.OK}


GATE = Gate(need_bytes=8 * GIB, stable_s=0.5, wait_s=10.0, stale_s=1.0)


def through(gate: Gate, samples: list[Sample | None], period_s: float = 0.1) -> list[GateState]:
    watch, states = GateWatch(0.0), []
    for at, sample in enumerate(samples):
        watch, verdict = watch_gate(gate, watch, sample, sample.at_s if sample else at * period_s)
        states.append(verdict.state)
    return states


def test_the_gate_opens_after_a_stable_while() -> None:
    states = through(GATE, list(steady(8.0, 0.6)))
    assert states[:5] == [GateState.WAITING] * 5
    assert states[-1] is GateState.OPEN


def test_a_dip_starts_the_stable_while_anew() -> None:
    samples = [*steady(9.0, 0.4), *steady(7.0, 0.0, 0.5), *steady(9.0, 0.4, 0.6)]
    assert GateState.OPEN not in through(GATE, list(samples))


def test_the_gate_refuses_after_its_wait_and_says_what_is_short() -> None:
    watch = GateWatch(0.0)
    watch, verdict = watch_gate(GATE, watch, Sample(1.0, 5 * GIB, 0), 1.0)
    assert (verdict.state, verdict.short_bytes) == (GateState.WAITING, 3 * GIB)
    watch, verdict = watch_gate(GATE, watch, Sample(10.0, 5 * GIB, 0), 10.0)
    assert verdict.state is GateState.REFUSED
    assert watch_gate(GATE, watch, None, 11.0)[1].state is GateState.REFUSED


def test_where_the_gpu_shares_memory_page_cache_does_not_count() -> None:
    cached = [Sample(at / 10, 20 * GIB, 2 * GIB) for at in range(20)]
    assert GateState.OPEN in through(GATE, list(cached))
    on_free = Gate(8 * GIB, 0.5, 10.0, 1.0, on_free=True)
    assert GateState.OPEN not in through(on_free, list(cached))


@given(steps, st.booleans())
def test_nothing_starts_below_the_gate_nor_on_stale_samples(pairs: list[tuple[float, float]], on_free: bool) -> None:
    gate, watch = replace(GATE, on_free=on_free), GateWatch(100.0)
    held: list[Sample] = []
    for sample in walk(pairs):
        watch, verdict = watch_gate(gate, watch, sample, sample.at_s)
        fits = (sample.free_bytes if on_free else sample.available_bytes) >= gate.need_bytes
        held = [*held, sample] if fits else []
        if verdict.state is GateState.OPEN:
            assert fits
            assert sample.at_s - held[0].at_s >= gate.stable_s
        stale, late = watch_gate(gate, watch, sample, sample.at_s + 1.5)
        assert late.state is not GateState.OPEN
        assert stale.held_since_s is None


@given(steps)
def test_the_gate_decides_in_bounded_time(pairs: list[tuple[float, float]]) -> None:
    watch = GateWatch(100.0)
    for sample in walk(pairs * 8):
        watch, verdict = watch_gate(GATE, watch, sample, sample.at_s)
        if sample.at_s - 100.0 > GATE.wait_s + 2 * GATE.stable_s + GATE.stale_s:
            assert verdict.state is not GateState.WAITING
            break


@given(st.lists(st.tuples(st.integers(1, 80), st.sampled_from([1.0, 3.0, 3.9, 4.1, 8.0, 12.0])), min_size=2, max_size=12))
def test_a_gang_never_comes_and_goes_faster_than_its_hysteresis(levels: list[tuple[int, float]]) -> None:
    """Gate and floor in a row over whatever memory does: a start has a stable while before it, an orderly stop its grace."""
    samples = [(length, level) for length, level in levels for _ in range(length)]
    gate, floor = replace(GATE, wait_s=1e9), replace(CLEARING, horizon_s=0.5)
    waiting, serving = GateWatch(0.0), FloorWatch()
    up, moved_s, was_under = False, 0.0, False
    for at, (_, level) in enumerate(samples):
        sample = Sample(at / 10, int(level * GIB), int(level * GIB))
        if up:
            serving, verdict = watch_floor(floor, serving, sample, sample.at_s)
            was_under = was_under or sample.available_bytes < floor.floor_bytes
            if verdict.stage.kills or verdict.stage.stops:
                assert was_under or verdict.stage is Stage.SLOPE
                if verdict.stage is Stage.SOFT and verdict.falling_bytes_per_s == 0:
                    assert sample.at_s - moved_s >= floor.grace_s
                up, moved_s, waiting = False, sample.at_s, GateWatch(sample.at_s)
        else:
            waiting, opened = watch_gate(gate, waiting, sample, sample.at_s)
            if opened.state is GateState.OPEN:
                assert sample.at_s - moved_s >= gate.stable_s
                up, moved_s, serving, was_under = True, sample.at_s, FloorWatch(), False


def test_a_users_gate_counts_where_it_asks_for_more() -> None:
    assert gate_need_bytes(90, 4) == 94
    assert gate_need_bytes(90, 4, 108) == 108
    assert gate_need_bytes(90, 4, 50) == 94


def test_the_floor_of_the_settings_is_in_bytes_with_half_as_the_hard_one() -> None:
    assert (Memory().floor_bytes, Memory().hard_floor_bytes) == (4 * GIB, 2 * GIB)
    assert Memory(launch_gate_gib=108.0).launch_gate_bytes == 108 * GIB


def plan(available_gib: float, weights_gib: float = 98.7) -> NodePlan:
    return NodePlan("spark-a", int(available_gib * GIB), int(weights_gib * GIB), 930)


def at(*plans: NodePlan) -> PlansAt:
    """The same plans at every context: nothing was measured."""
    return lambda _context: plans


def test_auto_takes_the_largest_context_that_leaves_the_floor_on_every_node() -> None:
    roomy, tight = plan(115.7), plan(103.2)
    assert choose_context("auto", at(roomy), 4 * GIB, 1 << 20) == 1 << 20
    chosen = choose_context("auto", at(roomy, tight), 4 * GIB, 1 << 20)
    assert chosen % CONTEXT_STEP == 0
    assert tight.need_bytes(chosen) + 4 * GIB <= tight.available_bytes < tight.need_bytes(chosen + CONTEXT_STEP) + 4 * GIB


def test_a_context_that_does_not_fit_is_refused_with_the_largest_that_does() -> None:
    tight = plan(103.2)
    largest = tight.largest_context(4 * GIB, 1 << 20)
    with pytest.raises(Refused, match=f"largest that fits is {largest}"):
        choose_context(1 << 20, at(tight), 4 * GIB, 1 << 20)
    assert choose_context(largest, at(tight), 4 * GIB, 1 << 20) == largest


def test_weights_that_do_not_fit_are_refused_with_node_and_figures() -> None:
    with pytest.raises(Refused, match=r"spark-a has 93\.0 GiB available"):
        choose_context("auto", at(plan(93.0)), 4 * GIB, 1 << 20)
    with pytest.raises(Refused, match="window is 65536"):
        choose_context(65537, at(plan(115.7)), 4 * GIB, 65536)


@given(gib, st.floats(0, 8), st.integers(0, 4096), st.integers(1024, 1 << 20))
def test_the_plan_never_promises_what_is_not_there(available: float, weights: float, per_token: int, window: int) -> None:
    node = NodePlan("n", int(available * GIB), int(weights * GIB), per_token)
    largest = node.largest_context(GIB, window)
    assert 0 <= largest <= window
    assert largest == 0 or node.need_bytes(largest) + GIB <= node.available_bytes
