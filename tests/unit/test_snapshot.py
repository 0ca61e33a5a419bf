"""The running supervisor as readings and status."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.bundle import Bundle, Engine, StoreRef
from build.facts import Meminfo, Pressure
from metrics import catalog
from metrics.catalog import CATALOGUE, SNAPSHOT_AGE, Metric
from metrics.readings import Distribution, Snapshot
from supervisor.engine.promtext import parse
from supervisor.engine.readings import EngineReading
from supervisor.machine import Phase, Policy, Reason, State
from supervisor.memory.policy import GIB, Floor, FloorVerdict, Stage
from supervisor.status.snapshot import snapshot
from supervisor.status.tally import Tally
from supervisor.status.view import EngineView, LaunchEnd, NodeMemory, ProbeView, Serving, View

REF = StoreRef("0123-thing")
BUNDLE = Bundle(
    target="demo",
    variant="plain",
    served_name="twinfold-demo",
    world_size=2,
    window_tokens=65536,
    engine=Engine(REF, REF, REF, REF),
    model=REF,
    rank_caches=(REF, REF),
    rank_cache_bytes=(1, 1),
    kit=REF,
    token_map=REF,
    model_revision="r1",
)
HISTOGRAM = """# TYPE tensorfold:{name} histogram
tensorfold:{name}_bucket{{key="a",le="0.5"}} 1
tensorfold:{name}_bucket{{key="a",le="+Inf"}} 2
tensorfold:{name}_bucket{{key="b",le="0.5"}} 3
tensorfold:{name}_bucket{{key="b",le="+Inf"}} 3
tensorfold:{name}_sum{{key="a"}} 1.5
tensorfold:{name}_sum{{key="b"}} 0.5
tensorfold:{name}_count{{key="a"}} 2
tensorfold:{name}_count{{key="b"}} 3
"""
ENGINE_HISTOGRAMS = (
    "time_to_first_token_seconds",
    "request_time_per_output_token_seconds",
    "request_latency_seconds",
    "request_prefill_seconds",
    "request_decode_seconds",
)
READING = EngineReading(
    running=1,
    waiting=2,
    prefilling=1,
    prompt_tokens=100.0,
    generated_tokens=10.0,
    generated_tokens_live=50.0,
    cached_tokens=20.0,
    drafted_tokens=40.0,
    accepted_tokens=30.0,
    rounds=25.0,
    live=True,
    histograms=parse("".join(HISTOGRAM.format(name=name) for name in ENGINE_HISTOGRAMS)),
)


def a_view(now_s: float = 1000.0, **changes: Any) -> View:
    """A gang that serves, with everything known."""
    state = State(
        Policy(world_size=2), phase=Phase.SERVING, since_s=990.0, launch=1, up=frozenset({0, 1}), loaded=frozenset({0, 1})
    )
    plain = View(
        now_s=now_s,
        now_unix_s=1.7e9 + now_s,
        started_unix_s=1.7e9 + 900.0,
        pid=4321,
        state=state,
        launch_id="l1",
        serving=Serving(
            "demo", 7, "abcd-bundle", BUNDLE, "twinfold-demo", "http://127.0.0.1:8888/v1", 65536, "process", ("a", "b")
        ),
        phases=(("gating", 0.5), ("launching", 1.25)),
        engine=EngineView(up=True, at_s=now_s - 0.5, launch=1, reading=READING),
        progress_unix_s=1.7e9 + 999.0,
        memory=(node("a", now_s - 0.1, 8 * GIB), node("b", now_s - 0.2, 3 * GIB)),
        probes=(ProbeView("smoke", passed=True, took_s=0.25, at_s=995.0, passed_count=3, failed_count=1),),
        ends=(LaunchEnd("l0", "rank exit", "rank 1: signal 9", 1.7e9, ((0, "signal 9"), (1, "signal 9"))),),
    )
    return replace(plain, **changes)


def node(name: str, at_s: float, available_bytes: int) -> NodeMemory:
    meminfo = Meminfo(16 * GIB, 2 * GIB, available_bytes, 3 * GIB, 1 * GIB, 5 * GIB, 4 * GIB)
    verdict = FloorVerdict(Stage.OK, available_bytes - 4 * GIB, 0.0, None)
    return NodeMemory(
        name, at_s, meminfo, Pressure(12.5, 3_000_000, 5.0, 1_000_000), Floor(4 * GIB, 2 * GIB, 5, 0.5, 1), verdict, GIB
    )


def taken(*views: View) -> Snapshot:
    tally = Tally()
    for view in views:
        tally = tally.take(view)
    return snapshot(views[-1], tally)


def value(shown: Snapshot, metric: Metric, **labels: str) -> float | Distribution | None:
    found = [r.value for r in shown.readings if r.metric is metric and labels.items() <= r.labels.items()]
    assert len(found) <= 1
    return found[0] if found else None


def test_every_metric_of_the_catalogue_has_a_feeder() -> None:
    assert {reading.metric for reading in taken(a_view()).readings} | {SNAPSHOT_AGE} == set(CATALOGUE)


@pytest.mark.parametrize(
    ("metric", "labels", "expected"),
    [
        (catalog.GENERATED_TOKENS, {"model": "twinfold-demo"}, 50.0),
        (catalog.PROMPT_TOKENS, {}, 100.0),
        (catalog.CACHED_PROMPT_TOKENS, {}, 20.0),
        (catalog.REQUESTS_RUNNING, {}, 2.0),
        (catalog.REQUESTS_WAITING, {}, 2.0),
        (catalog.ENGINE_UP, {}, 1.0),
        (catalog.ENGINE_AGE, {}, 0.5),
        (catalog.HEADROOM, {"node": "a"}, 4.0 * GIB),
        (catalog.HEADROOM, {"node": "b"}, -1.0 * GIB),
        (catalog.MEMORY_FLOOR, {"node": "a", "stage": "soft"}, 4.0 * GIB),
        (catalog.MEMORY_FLOOR, {"node": "a", "stage": "hard"}, 2.0 * GIB),
        (catalog.MEMORY_FREE, {"node": "a"}, 2.0 * GIB),
        (catalog.PAGE_CACHE, {"node": "a"}, 4.0 * GIB),
        (catalog.SWAP_FREE, {"node": "a"}, 4.0 * GIB),
        (catalog.MEMORY_LOW_WATER, {"node": "b"}, 1.0 * GIB),
        (catalog.PRESSURE, {"node": "a", "kind": "some"}, 0.125),
        (catalog.PRESSURE_STALLED, {"node": "a", "kind": "full"}, 1.0),
        (catalog.GANG_STATE, {"state": "serving"}, 1.0),
        (catalog.GANG_STATE, {"state": "gave_up"}, 0.0),
        (catalog.LAUNCHES, {}, 1.0),
        (catalog.LAUNCH_PHASE, {"phase": "launching"}, 1.25),
        (catalog.LAST_PROGRESS, {}, 1.7e9 + 999.0),
        (catalog.PROBE_RESULTS, {"probe": "smoke", "result": "failed"}, 1.0),
        (catalog.PROBE_DURATION, {"probe": "smoke"}, 0.25),
        (catalog.CONTEXT, {}, 65536.0),
        (catalog.BUNDLE, {"generation": "7", "bundle": "abcd-bundle", "variant": "plain", "world_size": "2"}, 1.0),
    ],
    ids=lambda case: case.name if isinstance(case, Metric) else "",
)
def test_a_view_becomes_readings(metric: Metric, labels: dict[str, str], expected: float) -> None:
    assert value(taken(a_view()), metric, **labels) == pytest.approx(expected)


def test_the_gang_is_in_exactly_one_state() -> None:
    for phase in Phase:
        shown = taken(a_view(state=replace(a_view().state, phase=phase)))
        assert [r.labels["state"] for r in shown.readings if r.metric is catalog.GANG_STATE and r.value == 1] == [phase.value]


def test_restarts_start_at_zero_for_every_reason_and_keep_their_counts() -> None:
    counted = a_view(state=replace(a_view().state, restarts=((Reason.RANK_EXIT, 3),)))
    assert value(taken(a_view()), catalog.RESTARTS, reason="rank exit") == 0.0
    assert value(taken(counted), catalog.RESTARTS, reason="rank exit") == 3.0
    assert value(taken(counted), catalog.RESTARTS, reason="no progress") == 0.0


def test_a_rank_that_is_gone_is_down() -> None:
    shown = taken(a_view(state=replace(a_view().state, up=frozenset({0}))))
    assert value(shown, catalog.RANK_UP, rank="0", node="a") == 1.0
    assert value(shown, catalog.RANK_UP, rank="1", node="b") == 0.0


def test_tokens_go_on_from_where_they_were_after_a_restart() -> None:
    first = a_view()
    relaunched = a_view(
        1010.0,
        state=replace(first.state, launch=2),
        engine=EngineView(up=True, at_s=1009.0, launch=2, reading=replace(READING, generated_tokens_live=5.0)),
    )
    assert value(taken(first, relaunched), catalog.GENERATED_TOKENS) == 55.0


def views_of(totals: list[float], **reading: Any) -> list[View]:
    return [
        a_view(1000.0 + i, engine=EngineView(True, 1000.0 + i, 1, replace(READING, generated_tokens_live=total, **reading)))
        for i, total in enumerate(totals)
    ]


def test_the_decode_rate_comes_from_live_totals_even_where_the_engine_says_otherwise() -> None:
    shown = taken(*views_of([0.0, 10.0, 20.0, 30.0], decode_tokens_per_s=999.0))
    assert value(shown, catalog.DECODE_RATE) == pytest.approx(10.0)


def test_the_decode_rate_is_the_engines_own_where_totals_move_at_the_end_only() -> None:
    assert value(taken(*views_of([0.0, 0.0], live=False, decode_tokens_per_s=12.5)), catalog.DECODE_RATE) == 12.5


def test_a_hung_gang_decodes_nothing() -> None:
    assert value(taken(*views_of([50.0] * 12, decode_tokens_per_s=40.0)), catalog.DECODE_RATE) == 0.0


def test_what_the_engine_said_before_a_relaunch_is_no_figure_of_now() -> None:
    first, relaunching = a_view(), a_view(1001.0, state=replace(a_view().state, phase=Phase.LAUNCHING, launch=2))
    shown = taken(first, relaunching)
    assert value(shown, catalog.ENGINE_UP) == 0.0
    assert value(shown, catalog.REQUESTS_RUNNING) is None
    assert value(shown, catalog.DECODE_RATE) == 0.0
    assert value(shown, catalog.GENERATED_TOKENS) == 50.0


def test_headroom_that_shrinks_has_a_negative_slope() -> None:
    views = [a_view(1000.0 + i, memory=(node("a", 1000.0 + i, (10 - i) * GIB),)) for i in range(4)]
    assert value(taken(*views), catalog.HEADROOM_SLOPE, node="a") == pytest.approx(-GIB)


def test_histograms_pass_through_summed_over_their_label_sets() -> None:
    assert value(taken(a_view()), catalog.TIME_TO_FIRST_TOKEN) == Distribution(((0.5, 4.0), (float("inf"), 5.0)), 2.0)


@pytest.mark.parametrize(
    "broken",
    [
        '# TYPE tensorfold:time_to_first_token_seconds histogram\ntensorfold:time_to_first_token_seconds_bucket{le="x"} 1\n',
        '# TYPE tensorfold:time_to_first_token_seconds histogram\ntensorfold:time_to_first_token_seconds_bucket{le="1"} 1\n',
        "# TYPE tensorfold:time_to_first_token_seconds histogram\n",
        (
            '# TYPE tensorfold:time_to_first_token_seconds histogram\ntensorfold:time_to_first_token_seconds_bucket{le="1"} 9\n'
            'tensorfold:time_to_first_token_seconds_bucket{le="+Inf"} 1\n'
        ),
    ],
)
def test_a_histogram_that_is_none_is_left_out(broken: str) -> None:
    reading = replace(READING, histograms=parse(broken))
    assert value(taken(a_view(engine=EngineView(True, 1000.0, 1, reading))), catalog.TIME_TO_FIRST_TOKEN) is None


def test_what_is_not_known_is_left_out() -> None:
    bare = a_view(serving=None, engine=None, memory=(), probes=(), phases=(), progress_unix_s=None, ends=())
    shown = taken(bare)
    assert {r.metric for r in shown.readings} == {catalog.GANG_STATE, catalog.LAUNCHES, catalog.RESTARTS, catalog.ENGINE_UP}
    silent = taken(a_view(engine=EngineView(True, 1000.0, 1, EngineReading())))
    assert value(silent, catalog.GENERATED_TOKENS) is None
    assert value(silent, catalog.REQUESTS_RUNNING) is None


@pytest.mark.parametrize("phase", Phase)
def test_only_a_serving_gang_is_ready_and_any_other_says_why(phase: Phase) -> None:
    shown = taken(a_view(state=replace(a_view().state, phase=phase, reason=Reason.RANK_EXIT, detail="rank 1: signal 9")))
    assert shown.ready == (phase is Phase.SERVING)
    assert bool(shown.why) != shown.ready
    assert shown.live == (phase is not Phase.GAVE_UP)


def test_status_says_what_people_ask_for() -> None:
    told = json.loads(json.dumps(taken(a_view()).status))
    assert told["state"] == "serving"
    assert told["url"] == "http://127.0.0.1:8888/v1"
    assert told["ranks"] == [
        {"rank": 0, "node": "a", "up": True, "loaded": True},
        {"rank": 1, "node": "b", "up": True, "loaded": True},
    ]
    assert [memory["headroom_bytes"] for memory in told["memory"]] == [4 * GIB, -GIB]
    assert told["throughput"]["generated_tokens"] == 50
    assert told["ended_launches"][0]["exits"] == "rank 0: signal 9, rank 1: signal 9"


def test_a_newer_generation_shows_only_where_one_waits() -> None:
    assert "newer_generation" not in taken(a_view()).status
    assert taken(a_view(newer_generation=8)).status["newer_generation"] == 8


@given(st.builds(EngineReading, **{name: st.one_of(st.none(), st.floats()) for name in (
    "prompt_tokens", "generated_tokens", "generated_tokens_live", "cached_tokens", "drafted_tokens", "accepted_tokens", "rounds"
)}, running=st.one_of(st.none(), st.integers(0, 99)), live=st.booleans()), st.integers(1, 3))  # fmt: skip
def test_any_reading_of_the_engine_can_be_shown(reading: EngineReading, launch: int) -> None:
    from metrics.exposition import OPENMETRICS, TEXT, render

    shown = taken(a_view(), a_view(1001.0, engine=EngineView(True, 1001.0, launch, reading)))
    json.dumps(shown.status, allow_nan=False)
    assert render(shown.readings, TEXT)
    assert render(shown.readings, OPENMETRICS)
