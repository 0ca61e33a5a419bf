"""From arrival times to figures."""

from __future__ import annotations

import itertools
import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.bench import figures
from supervisor.bench.figures import Timing, chunk_times, decode_rate, one_by_one_rate, percentile, prefill_rate, spread, timing
from supervisor.engine.replies import read_reply

FINITE = st.floats(0, 1e6)


def sse(*chunks: object) -> list[bytes]:
    return [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks] + [b"data: [DONE]\n\n"]


def delta(**fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 6, "prompt_tokens_details": {"cached_tokens": 4}}}


def reply(sent_s: float, chunks_s: tuple[float, ...], tokens: int, **more: object) -> Timing:
    return Timing(sent_s, chunks_s, chunks_s[-1] if chunks_s else sent_s + 1, 100, 0, tokens, **more)  # type: ignore[arg-type]


def test_the_first_token_is_the_first_event_with_text_and_not_the_role() -> None:
    events = sse(delta(role="assistant"), delta(content="a"), delta(content="bc"), delta(), USAGE)
    size, arrivals = 0, []
    for at, event in enumerate(events):
        size += len(event)
        arrivals.append((float(at), size))
    body = b"".join(events)
    got = timing(read_reply(200, body, "text/event-stream"), -0.5, arrivals, body, "x")
    assert got is not None
    assert got.chunks_s == (1.0, 2.0)
    assert (got.ttft_s, got.prompt_tokens, got.cached_tokens, got.reply_tokens) == (1.5, 10, 4, 6)
    assert got.tpot_s == pytest.approx(0.2)
    assert got.gaps_s == (1.0,)


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
def test_thoughts_are_tokens_too(field: str) -> None:
    body = b"".join(sse(delta(role="assistant"), delta(**{field: "a"})))
    assert chunk_times(body, [(1.0, len(body))]) == (1.0,)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 12))
def test_events_are_timed_by_the_piece_that_completed_them(cuts: list[int], count: int) -> None:
    body = b"".join(sse(*(delta(content="é" * n) for n in range(1, count + 1))))
    ends = [e for e in itertools.accumulate(cuts) if e < len(body)] + [len(body)]
    arrivals = [(float(at), end) for at, end in enumerate(ends)]
    times = chunk_times(body, arrivals)
    assert len(times) == count
    done = 0
    for time_s, event in zip(times, sse(*(delta(content="é" * n) for n in range(1, count + 1))), strict=False):
        done += len(event)
        assert ends[int(time_s)] >= done
        assert int(time_s) == 0 or ends[int(time_s) - 1] < done


def test_a_stream_without_usage_has_no_tokens_to_count() -> None:
    body = b"".join(sse(delta(content="a")))
    assert timing(read_reply(200, body, "text/event-stream"), 0.0, [(1.0, len(body))], body, "x") is None


def test_a_reply_whose_only_token_has_no_text_is_timed_by_its_end() -> None:
    one = Timing(1.0, (), 3.0, 100, 0, 1)
    assert (one.ttft_s, one.tpot_s, one.gaps_s) == (2.0, None, ())
    assert prefill_rate(one) == 50.0


def test_streams_together_count_from_the_first_token_to_the_last_of_all() -> None:
    group = [reply(0, (1.0, 2.0), 11), reply(0, (1.5, 3.0), 11)]
    assert decode_rate(group) == 20 / 2.0
    assert one_by_one_rate(group) == 20 / 2.5


def test_what_cannot_be_divided_is_no_figure() -> None:
    assert decode_rate([reply(0, (1.0,), 5)]) is None
    assert one_by_one_rate([reply(0, (1.0, 2.0), 1)]) is None
    assert prefill_rate(Timing(0.0, (1.0,), 1.0, 100, 100, 1)) is None
    assert spread([None, None]) is None


def test_cached_tokens_do_not_count_as_prefilled() -> None:
    assert prefill_rate(Timing(0.0, (2.0,), 2.0, 1000, 600, 1)) == 200.0


@given(st.lists(FINITE, min_size=1, max_size=50))
def test_a_spread_is_of_the_readings(readings: list[float]) -> None:
    got = spread([*readings, None])
    assert got is not None
    assert (got.median, got.count) == (statistics.median(readings), len(readings))
    assert got.lowest == min(readings) <= got.median <= max(readings) == got.highest


@given(st.lists(FINITE, min_size=1, max_size=50), st.floats(0, 100), st.floats(0, 100))
def test_percentiles_lie_within_and_grow(readings: list[float], low: float, high: float) -> None:
    low, high = sorted((low, high))
    below, above = percentile(readings, low), percentile(readings, high)
    assert below is not None
    assert above is not None
    assert min(readings) <= below <= above * (1 + 1e-12) + 1e-12
    assert above <= max(readings)
    assert percentile(readings, 100) == max(readings)


def test_no_readings_have_no_percentile() -> None:
    assert percentile([], 50) is None
    assert figures.percentile([3.0], 99) == 3.0
