"""The running supervisor as readings and status."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import fastjsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.bundle import Bundle, Engine, StoreRef
from build.facts import Meminfo, Pressure, gpus
from build.units import GIB
from metrics import catalog
from metrics.catalog import CATALOGUE, SNAPSHOT_AGE, Metric
from metrics.readings import Distribution, Foreign, Snapshot
from supervisor.engine.promtext import parse
from supervisor.engine.readings import EngineReading
from supervisor.hardware.facts import EngramDisk, Hardware, Port
from supervisor.machine import Phase, Policy, Reason, State
from supervisor.memory.policy import Floor, FloorVerdict, Stage
from supervisor.status.snapshot import snapshot
from supervisor.status.tally import Tally
from supervisor.status.view import (
    Built,
    BuiltArtefact,
    EngineView,
    Eviction,
    LaunchEnd,
    NodeGuard,
    NodeHardware,
    NodeMemory,
    ProbeView,
    Serving,
    View,
)
from tests.testing.checkout import CHECKOUT

REF = StoreRef("0123-thing")
BUNDLE = Bundle(
    target="demo",
    variant="plain",
    served_name="twinfold-demo",
    world_size=2,
    window_tokens=65536,
    prefill_tokens_per_s=20_000,
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
    generated_tokens_live=50.0,
    cached_tokens=20.0,
    drafted_tokens=40.0,
    accepted_tokens=30.0,
    rounds=25.0,
    kv_cache_ratio=0.5,
    live=True,
    histograms=parse("".join(HISTOGRAM.format(name=name) for name in ENGINE_HISTOGRAMS)),
)


GPU = gpus(
    "index, clocks.current.sm [MHz], clocks.max.sm [MHz], power.draw [W], temperature.gpu, utilization.gpu [%],"
    " memory.total [MiB], memory.used [MiB], clocks_throttle_reasons.active\n"
    "0, 2190 MHz, 3003 MHz, 80.5 W, 61, 97 %, 1024 MiB, 512 MiB, 0x0000000000000004\n"
)
HARDWARE = Hardware(
    gpus=GPU,
    gpu_failed=False,
    ports=(Port("rocep1s0f1", True, 9000, 25e9, 1000, 2000, 3, gid_index=3),),
    disk_size_bytes=1000,
    disk_free_bytes=400,
    engram=EngramDisk("nvme0n1p2", on_network=False, reads=11, read_bytes=45056),
    stalls=(("io", Pressure(1.0, 2_000_000, 0.5, 500_000)),),
)

IDLE = EngineView(up=True, at_s=999.5, launch=1, reading=replace(READING, running=0, waiting=0, prefilling=0))


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
            "demo",
            7,
            "abcd-bundle",
            BUNDLE,
            "twinfold-demo",
            "http://127.0.0.1:8888/v1",
            65536,
            "process",
            ("a", "b"),
            planned=(("a", 3 * GIB), ("b", 3 * GIB)),
            context_bytes_per_token=1 << 20,
        ),
        phases=(("gating", 0.5), ("launching", 1.25)),
        engine=EngineView(up=True, at_s=now_s - 0.5, launch=1, reading=READING),
        progress_unix_s=1.7e9 + 999.0,
        memory=(node("a", now_s - 0.1, 8 * GIB), node("b", now_s - 0.2, 3 * GIB)),
        probes=(ProbeView("smoke", passed=True, took_s=0.25, at_s=995.0, passed_count=3, failed_count=1),),
        guards=(NodeGuard("a", up=True, at_s=now_s - 0.25, lease_age_s=1.5),),
        hardware=(NodeHardware("a", True, now_s - 2.0, HARDWARE),),
        evictions=(Eviction("a", "hard", 2),),
        ladder_rung=1,
        built=Built((BuiltArtefact("engine", 12.5, 4096),), 1.7e9),
        stepped_s=now_s - 1.0,
        ends=(LaunchEnd("l0", "rank exit", "rank 1: signal 9", 1.7e9, ((0, "signal 9"), (1, "signal 9"))),),
    )
    return replace(plain, **changes)


def node(name: str, at_s: float, available_bytes: int) -> NodeMemory:
    meminfo = Meminfo(16 * GIB, 2 * GIB, available_bytes, 3 * GIB, 1 * GIB, 5 * GIB, 4 * GIB)
    verdict = FloorVerdict(Stage.OK, 0.0)
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
        (catalog.KV_CACHE, {}, 0.5),
        (catalog.STARTED, {}, 1.7e9 + 900.0),
        (catalog.LADDER_RUNG, {}, 1.0),
        (catalog.NEWER_GENERATION, {}, 0.0),
        (catalog.MEMORY_PLANNED, {"node": "b"}, 3.0 * GIB),
        (catalog.CONTEXT_LEFT, {"node": "a"}, 4096.0),
        (catalog.CONTEXT_LEFT, {"node": "b"}, 0.0),
        (catalog.EVICTIONS, {"node": "a", "stage": "hard"}, 2.0),
        (catalog.EVICTIONS, {"node": "b", "stage": "soft"}, 0.0),
        (catalog.GUARD_UP, {"node": "a"}, 1.0),
        (catalog.GUARD_AGE, {"node": "a"}, 0.25),
        (catalog.LEASE_AGE, {"node": "a"}, 1.5),
        (catalog.HARDWARE_UP, {"node": "a"}, 1.0),
        (catalog.HARDWARE_AGE, {"node": "a"}, 2.0),
        (catalog.GPU_CLOCK, {"node": "a", "device": "0"}, 2190e6),
        (catalog.GPU_BUSY, {}, 0.97),
        (catalog.GPU_THROTTLED, {"reason": "power cap"}, 1.0),
        (catalog.GPU_THROTTLED, {"reason": "hardware thermal"}, 0.0),
        (catalog.GPU_MEMORY_USED, {}, 512.0 * (1 << 20)),
        (catalog.LINK_UP, {"device": "rocep1s0f1"}, 1.0),
        (catalog.LINK_MTU, {}, 9000.0),
        (catalog.LINK_RETRANSMITS, {}, 3.0),
        (catalog.LINK_GID_INDEX, {}, 3.0),
        (catalog.ENGRAM_READS, {"device": "nvme0n1p2"}, 11.0),
        (catalog.ENGRAM_READ_BYTES, {}, 45056.0),
        (catalog.ENGRAM_ON_NETWORK, {"node": "a"}, 0.0),
        (catalog.DISK_FREE, {"node": "a"}, 400.0),
        (catalog.STALLED, {"resource": "io", "kind": "some"}, 2.0),
        (catalog.ARTEFACT_BUILD, {"artefact": "engine"}, 12.5),
        (catalog.STORE_VERIFIED, {}, 1.7e9),
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


def test_parity_is_told_once_it_was_judged() -> None:
    def told(phase: Phase, reason: Reason | None) -> list[float]:
        shown = taken(a_view(state=replace(a_view().state, phase=phase, reason=reason)))
        return [one.value for one in shown.readings if one.metric is catalog.SETTINGS_PARITY and isinstance(one.value, float)]

    assert told(Phase.SERVING, None) == [1.0]
    assert told(Phase.PAUSING, Reason.PARITY) == [0.0]
    assert told(Phase.LAUNCHING, None) == told(Phase.PAUSING, Reason.RANK_EXIT) == []


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
    bare = View(now_s=1000.0, now_unix_s=1.7e9, started_unix_s=1.7e9, pid=1, state=a_view().state, launch_id="l1", serving=None)
    shown = taken(bare)
    assert {r.metric for r in shown.readings} == {
        catalog.GANG_STATE,
        catalog.STARTED,
        catalog.READY,
        catalog.LADDER_RUNG,
        catalog.SETTINGS_PARITY,
        catalog.SETTINGS_REFUSED,
        catalog.SETTINGS_WAITING,
        catalog.STATE_FOLDER_LOST,
        catalog.LAUNCHES,
        catalog.RESTARTS,
        catalog.ENGINE_UP,
    }
    silent = taken(a_view(engine=EngineView(True, 1000.0, 1, EngineReading())))
    assert value(silent, catalog.GENERATED_TOKENS) is None
    assert value(silent, catalog.REQUESTS_RUNNING) is None


GOOD = (node("a", 999.9, 8 * GIB), node("b", 999.8, 6 * GIB))


@pytest.mark.parametrize("phase", Phase)
def test_only_a_serving_gang_is_ready_and_any_other_says_why(phase: Phase) -> None:
    state = replace(a_view().state, phase=phase, reason=Reason.RANK_EXIT, detail="rank 1: signal 9")
    shown = taken(a_view(memory=GOOD, state=state))
    assert shown.ready == (phase is Phase.SERVING)
    assert bool(shown.why) != shown.ready
    assert shown.live == (phase is not Phase.GAVE_UP)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"state": replace(a_view().state, up=frozenset({0}))}, "1 of 2 ranks are up"),
        ({"engine": None}, "the engine has not answered yet"),
        ({"engine": EngineView(False, 980.0, 1, READING)}, "the engine has not answered for 20 s"),
        ({"engine": IDLE, "progress_unix_s": 1.7e9 + 800.0}, "no work and no probe was seen done for 200 s"),
        ({"memory": (GOOD[0], node("b", 999.8, 3 * GIB))}, "b is below its memory floor"),
        ({"memory": (GOOD[0], node("b", 990.0, 6 * GIB))}, "b's memory was last read 10 s ago"),
    ],
)
def test_a_serving_gang_that_would_not_answer_is_live_and_not_ready(changes: dict[str, Any], why: str) -> None:
    shown = taken(a_view(**{"memory": GOOD, **changes}))
    assert (shown.live, shown.ready, shown.why) == (True, False, why)
    assert value(shown, catalog.READY) == 0.0


def test_a_gang_at_work_is_ready_however_long_its_prompt_takes() -> None:
    shown = taken(a_view(memory=GOOD, progress_unix_s=1.7e9))
    assert (shown.ready, shown.why, value(shown, catalog.READY)) == (True, "", 1.0)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"stepped_s": 970.0}, "the supervisor's loop has not turned for 30 s"),
        ({"memory": (node("a", 960.0, 8 * GIB),)}, "no node's memory could be read for 40 s"),
    ],
)
def test_a_supervisor_that_stands_still_is_not_live(changes: dict[str, Any], why: str) -> None:
    shown = taken(a_view(**changes))
    assert (shown.live, shown.ready, shown.why) == (False, False, why)


def families(text: str, **reading: Any) -> EngineReading:
    found = parse(text)
    return replace(
        READING,
        histograms=tuple(f for f in found if f.type == "histogram"),
        other=tuple(f for f in found if f.type != "histogram"),
        **reading,
    )


def test_families_without_a_name_of_ours_pass_through_and_their_counters_never_go_back() -> None:
    before = families(
        "# HELP tensorfold:requests_total Requests.\n# TYPE tensorfold:requests_total counter\n"
        'tensorfold:requests_total{status="200"} 5\ntensorfold:requests_total{status="400"} 1\n'
        "# TYPE tensorfold:odd gauge\ntensorfold:odd 7\n"
    )
    after = families(
        "# HELP tensorfold:requests_total Requests.\n"
        '# TYPE tensorfold:requests_total counter\ntensorfold:requests_total{status="200"} 2\n'
        "# TYPE tensorfold:odd gauge\ntensorfold:odd 3\n"
    )
    first = a_view(engine=EngineView(True, 999.0, 1, before))
    second = a_view(1010.0, state=replace(a_view().state, launch=2), engine=EngineView(True, 1009.0, 2, after))
    assert taken(first, second).foreign == (
        Foreign(
            "tensorfold_requests_total",
            "counter",
            "Requests.",
            (
                ("tensorfold_requests_total", {"status": "200"}, 7.0),
                ("tensorfold_requests_total", {"status": "400"}, 1.0),
            ),
        ),
        Foreign("tensorfold_odd", "gauge", "From the engine, as it came.", (("tensorfold_odd", {}, 3.0),)),
    )


def test_histograms_never_go_back_over_a_restart() -> None:
    first = a_view()
    again = replace(READING, histograms=READING.histograms[:1])
    second = a_view(1010.0, state=replace(first.state, launch=2), engine=EngineView(True, 1009.0, 2, again))
    assert value(taken(first, second), catalog.TIME_TO_FIRST_TOKEN) == Distribution(((0.5, 8.0), (float("inf"), 10.0)), 4.0)
    assert value(taken(first, second), catalog.REQUEST_DECODE) == Distribution(((0.5, 4.0), (float("inf"), 5.0)), 2.0)


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


def test_the_status_keeps_to_its_schema() -> None:
    schema = fastjsonschema.compile(json.loads((CHECKOUT / "metrics/status.schema.json").read_text()))
    views = [a_view(), a_view(newer_generation=8), *(a_view(state=replace(a_view().state, phase=phase)) for phase in Phase)]
    views.append(View(now_s=1.0, now_unix_s=1.0, started_unix_s=0.0, pid=1, state=a_view().state, launch_id="", serving=None))
    for view in views:
        schema(json.loads(json.dumps(taken(view).status)))


def test_every_key_of_the_status_is_in_its_schema() -> None:
    schema = json.loads((CHECKOUT / "metrics/status.schema.json").read_text())
    told = taken(a_view(newer_generation=8)).status
    assert set(told) <= set(schema["properties"])
    for key in ("ranks", "memory", "probes", "hardware", "ended_launches", "restarts", "evictions"):
        assert all(set(one) == set(schema["properties"][key]["items"]["properties"]) for one in told[key]), key
    assert set(told["throughput"]) == set(schema["properties"]["throughput"]["properties"])


def test_a_newer_generation_shows_only_where_one_waits() -> None:
    assert "newer_generation" not in taken(a_view()).status
    assert taken(a_view(newer_generation=8)).status["newer_generation"] == 8


@given(st.builds(EngineReading, **{name: st.one_of(st.none(), st.floats()) for name in (
    "prompt_tokens", "generated_tokens_live", "cached_tokens", "drafted_tokens", "accepted_tokens", "rounds"
)}, running=st.one_of(st.none(), st.integers(0, 99)), live=st.booleans()), st.integers(1, 3))  # fmt: skip
def test_any_reading_of_the_engine_can_be_shown(reading: EngineReading, launch: int) -> None:
    from metrics.exposition import OPENMETRICS, TEXT, render

    shown = taken(a_view(), a_view(1001.0, engine=EngineView(True, 1001.0, launch, reading)))
    json.dumps(shown.status, allow_nan=False)
    assert render(shown.readings, TEXT)
    assert render(shown.readings, OPENMETRICS)
