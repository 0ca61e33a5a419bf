from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.engine.promtext import Family, parse
from supervisor.engine.readings import EngineReading, families_tell_enough, health_tells_enough, read_engine, read_families

COLON_HEALTH = {
    "status": "ok",
    "model": "m",
    "model_ids": ["m"],
    "max_batch_size": 4,
    "warming": False,
    "memory": {"active": 1, "cache": 2, "peak": 3},
    "live": {"connections": 2, "waiting": 1, "decode_tokens_per_second": 24.5, "prefill_tokens_per_second": 0.0},
}
COLON_METRICS = r"""# HELP tensorfold:requests_total Requests by key and status.
# TYPE tensorfold:requests_total counter
tensorfold:requests_total{key="a\"b",status="200"} 5
tensorfold:requests_total{key="",status="500"} 1
# TYPE tensorfold:requests_running gauge
tensorfold:requests_running 2
tensorfold:requests_waiting 3
# TYPE tensorfold:generation_tokens_running gauge
tensorfold:generation_tokens_running 40
# TYPE tensorfold:prompt_tokens_total counter
tensorfold:prompt_tokens_total 100
tensorfold:generation_tokens_total 1000
tensorfold:kv_cache_usage_ratio{pool="a"} 0.25
tensorfold:kv_cache_usage_ratio{pool="b"} 0.75
tensorfold:mtp_drafted_total 50
tensorfold:mtp_accepted_total 30
tensorfold:decode_rounds_total 20
tensorfold:preemptions_total 7
# TYPE tensorfold:time_to_first_token_seconds histogram
tensorfold:time_to_first_token_seconds_bucket{le="0.5"} 1
tensorfold:time_to_first_token_seconds_bucket{le="+Inf"} 2
tensorfold:time_to_first_token_seconds_sum 1.5
tensorfold:time_to_first_token_seconds_count 2
"""
UNDERSCORE_HEALTH = {
    "ok": True,
    "mode": "serve",
    "uptime_s": 60.5,
    "inflight": 1,
    "oldest_s": 4.0,
    "idle_s": 0.0,
    "requests": 9,
    "errors": 1,
    "fatal": None,
    "stalled": [],
    "streams": {"decoding": 1, "prefilling": 1, "max": 4},
    "context_length": 65536,
    "prompt_tokens_total": 70,
    "completion_tokens_total": 333,
    "drafted_total": 12,
    "accepted_total": 8,
    "rounds_total": 6,
}
UNDERSCORE_METRICS = """# TYPE tensorfold_completion_tokens_total counter
tensorfold_completion_tokens_total{model="m"} 300
tensorfold_prompt_tokens_total{model="m"} 60
tensorfold_cached_tokens_total{model="m"} 16
tensorfold_requests_inflight{model="m"} 1
tensorfold_requests_stalled{model="m"} 0
tensorfold_engine_fatal{model="m"} 0
tensorfold_requests_rejected_total{model="m"} 2
tensorfold_decode_seconds_total{model="m"} 3.5
"""


def read(health: object, metrics: str | None) -> EngineReading:
    families = read_families(metrics.encode()) if metrics is not None else ()
    return read_engine(None if health is None else json.dumps(health).encode(), families)


def test_the_build_with_colons_is_read_with_its_live_tokens() -> None:
    got = read(COLON_HEALTH, COLON_METRICS)
    assert (got.running, got.waiting, got.prompt_tokens) == (2, 3, 100.0)
    assert (got.generated_tokens_live, got.live, got.busy) == (1040.0, True, True)
    assert (got.drafted_tokens, got.accepted_tokens, got.rounds, got.requests) == (50.0, 30.0, 20.0, 6.0)
    assert (got.decode_tokens_per_s, got.prefill_tokens_per_s, got.kv_cache_ratio) == (24.5, 0.0, 0.75)
    assert got.fatal is got.cached_tokens is None
    assert [family.name for family in got.histograms] == ["tensorfold:time_to_first_token_seconds"]
    assert [point.value for point in got.histograms[0].points] == [1, 2, 1.5, 2]
    assert {family.name.removeprefix("tensorfold:") for family in got.other} == {
        "preemptions_total",
        "requests_total",
        "kv_cache_usage_ratio",
    }


def test_the_build_with_underscores_is_read_with_its_live_totals_from_health() -> None:
    got = read(UNDERSCORE_HEALTH, UNDERSCORE_METRICS)
    assert (got.running, got.prefilling, got.prompt_tokens, got.cached_tokens) == (1, 1, 70.0, 16.0)
    assert (got.generated_tokens_live, got.live) == (333.0, True)
    assert (got.drafted_tokens, got.accepted_tokens, got.rounds, got.requests) == (12.0, 8.0, 6.0, 9.0)
    assert got.fatal is False
    assert {family.name for family in got.other} == {
        "tensorfold_requests_rejected_total",
        "tensorfold_decode_seconds_total",
        "tensorfold_engine_fatal",
        "tensorfold_requests_stalled",
    }


def test_families_of_some_seconds_ago_add_what_does_not_move_while_requests_run() -> None:
    assert health_tells_enough(json.dumps(UNDERSCORE_HEALTH).encode())
    assert not health_tells_enough(json.dumps(COLON_HEALTH).encode())
    assert not health_tells_enough(b'{"status":"ok"}')
    assert families_tell_enough(read_families(COLON_METRICS.encode()))
    assert not families_tell_enough(read_families(UNDERSCORE_METRICS.encode()))
    old = read_families(UNDERSCORE_METRICS.replace('inflight{model="m"} 1', 'inflight{model="m"} 4').encode())
    later = {**UNDERSCORE_HEALTH, "completion_tokens_total": 400, "inflight": 2, "streams": None}
    got = read_engine(json.dumps(later).encode(), old, old=True)
    assert (got.running, got.generated_tokens_live, got.prompt_tokens) == (2, 400.0, 70.0)
    assert (got.cached_tokens, got.fatal) == (16.0, False)
    assert "tensorfold_requests_stalled" in {family.name for family in got.other}


def test_without_live_totals_the_reading_says_that_it_moves_at_the_end_only() -> None:
    got = read({"status": "ok"}, UNDERSCORE_METRICS)
    assert (got.generated_tokens_live, got.live) == (300.0, False)


def test_what_is_not_said_is_none_and_never_zero() -> None:
    assert read({"status": "ok"}, None) == read(None, None) == EngineReading()
    assert EngineReading().busy is None


@pytest.mark.parametrize(("fatal", "is_fatal"), [("CUDA error", True), (None, False), ("", False), (True, True), (0, False)])
def test_a_fatal_fault_is_read_as_flag_or_text(fatal: object, is_fatal: bool) -> None:
    assert read({"fatal": fatal}, None).fatal is is_fatal
    assert read({}, "tensorfold_engine_fatal 1").fatal is True


def test_prometheus_text_keeps_names_labels_and_order() -> None:
    families = parse(COLON_METRICS)
    assert families[0].name == "tensorfold:requests_total"
    assert (families[0].type, families[0].help) == ("counter", "Requests by key and status.")
    assert [dict(point.labels) for point in families[0].points] == [{"key": 'a"b', "status": "200"}, {"key": "", "status": "500"}]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("a 1", 1.0),
        ("a{} 1e3 1700000000000", 1000.0),
        ('a{b="x,y}",c="\\n"} 2', 2.0),
        ("a +Inf", float("inf")),
        ("  ", None),
        ("a", None),
    ],
)
def test_sample_lines_are_read_or_left_out(line: str, value: float | None) -> None:
    points = [point.value for family in parse(line) for point in family.points]
    assert points == ([] if value is None else [value])


def test_the_reader_agrees_with_the_reference_parser() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    reference = {
        (s.name, tuple(sorted(s.labels.items())), s.value)
        for family in text_string_to_metric_families(COLON_METRICS)
        for s in family.samples
    }
    ours = {(p.name, tuple(sorted(p.labels.items())), p.value) for family in parse(COLON_METRICS) for p in family.points}
    assert ours == reference


@given(st.text(max_size=120), st.binary(max_size=120))
def test_junk_is_read_as_if_it_were_not_there(text: str, junk: bytes) -> None:
    assert all(isinstance(family, Family) for family in parse(text))
    read_engine(junk, read_families(junk))


@given(
    st.dictionaries(
        st.sampled_from(sorted({**COLON_HEALTH, **UNDERSCORE_HEALTH})),
        st.none() | st.booleans() | st.text() | st.lists(st.integers()) | st.floats(),
    )
)
def test_any_health_object_is_read_without_an_error(health: dict[str, object]) -> None:
    read_engine(json.dumps(health).encode())
