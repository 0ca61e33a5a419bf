"""The engine's watch over real sockets: what it posts of a gang that answers, but not as one that lives."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from supervisor.engine import progress
from supervisor.engine.line import Endpoint
from supervisor.engine.probes import endpoint
from supervisor.engine.progress import Patience
from supervisor.engine.readings import EngineReading
from supervisor.gang.board import Board
from supervisor.gang.engine_watch import IDLE_MOST_S, EngineWatch
from supervisor.machine import Event, Phase, Policy, State
from supervisor.machine.types import Stalled
from supervisor.status.health import ANSWER_S
from tests.testing.api import JSON, Api, Route, completion, serving
from tests.testing.waiting import until

PATIENCE_S = 30.0
IDLE = b'{"inflight": 0, "streams": {"decoding": 0, "prefilling": 0}, "completion_tokens_total": 1, "prompt_tokens_total": 1}'


def a_watch(where: Endpoint, **given: Any) -> EngineWatch:
    return EngineWatch(where, "m", 1, warm=True, deadline_s=2.0, **given)


@dataclass
class Watched:
    """A watch that runs: what it has posted, what it shows, and the server that it reads."""

    watch: EngineWatch
    posted: list[Event]
    board: Board
    api: Api


@contextmanager
def watching(
    patience: Patience, routes: dict[str, Route], phase: Phase = Phase.SERVING, period_s: float = 0.05
) -> Iterator[Watched]:
    """A watch of a gang in this phase over a server with these routes, until the block ends."""
    posted = list[Event]()
    board = Board(State(policy=Policy(world_size=2), phase=phase, launch=1), os.getpid())
    with serving(routes) as api:
        watch = a_watch(endpoint(api.url), patience=patience, period_s=period_s, board=board, post=posted.append)
        watch.start()
        try:
            yield Watched(watch, posted, board, api)
        finally:
            watch.stop()
            watch.join()


@pytest.mark.parametrize(
    ("period_s", "running", "pace_s"), [(1.0, 1, 1.0), (1.0, None, 1.0), (1.0, 0, 2.0), (4.0, 0, IDLE_MOST_S), (20.0, 0, 20.0)]
)
def test_an_idle_engine_is_read_half_as_often_and_never_so_seldom_that_it_counts_as_silent(
    period_s: float, running: int | None, pace_s: float
) -> None:
    board = Board(State(policy=Policy(world_size=2)), os.getpid())
    patience = Patience(stall_s=5.0, misses=2, idle_probe_s=60.0, prefill_tokens_per_s=1000.0, context_tokens=1024)
    where = endpoint("http://127.0.0.1:1")
    watch = a_watch(where, patience=patience, period_s=period_s, board=board, post=lambda _: None)
    watch._progress = progress.observe(progress.begin(0.0), EngineReading(running=running), 1.0, patience)[0]
    assert watch._pace_s == pace_s
    assert IDLE_MOST_S * 3 <= ANSWER_S


@pytest.mark.parametrize(
    ("status", "content"), [(200, "!" * 24), (500, ""), (200, None)], ids=["garbage", "an error", "no completion"]
)
def test_an_idle_gang_whose_replies_are_none_is_told_of(status: int, content: str | None) -> None:
    def chat(_body: object) -> tuple[int, str, bytes]:
        if content is None:
            return status, JSON, b"<html>"
        return completion(content, "length") if status == 200 else (status, JSON, b'{"error": {"message": "PeerDown"}}')

    patience = Patience(stall_s=5.0, misses=2, idle_probe_s=0.1, prefill_tokens_per_s=1000.0, context_tokens=1024)
    with watching(patience, {"/health": lambda _: (200, JSON, IDLE), "/v1/chat/completions": chat}) as one:
        until("a verdict", lambda: one.posted, PATIENCE_S)
    assert isinstance(one.posted[0], Stalled)
    assert "tiny generations" in one.posted[0].why


HANGS = b"""# TYPE tensorfold_requests_inflight gauge
tensorfold_requests_inflight 1
# TYPE tensorfold_completion_tokens_total counter
tensorfold_completion_tokens_total 7
"""


@pytest.mark.parametrize("answers", [True, False], ids=["a long decode", "a hang"])
def test_where_tokens_are_counted_at_the_end_a_tiny_generation_tells_a_long_decode_from_a_hang(answers: bool) -> None:
    asked, hanging = list[object](), threading.Event()

    def chat(body: object) -> tuple[int, str, bytes]:
        asked.append(body)
        if not answers:
            hanging.wait(PATIENCE_S)
        return completion("OK.")

    patience = Patience(stall_s=0.2, misses=2, idle_probe_s=0.3, prefill_tokens_per_s=1e6, context_tokens=1024)
    routes = {
        "/health": lambda _: (200, JSON, b'{"status": "ok"}'),
        "/metrics": lambda _: (200, "text/plain", HANGS),
        "/v1/chat/completions": chat,
    }
    with watching(patience, routes) as one:
        until("a hang that is found, or several answers", lambda: len(asked) > 3 if answers else one.posted)
        hanging.set()
    assert [type(event) for event in one.posted[:1]] == ([] if answers else [Stalled])


def test_a_gang_in_its_smoke_test_is_read_and_judged_and_not_asked_for_more() -> None:
    busy = IDLE.replace(b'"decoding": 0', b'"decoding": 1')
    patience = Patience(stall_s=0.5, misses=2, idle_probe_s=0.1, prefill_tokens_per_s=1e6, context_tokens=1024)
    seen = [IDLE] * 10
    with watching(patience, {"/health": lambda _: (200, JSON, seen.pop() if seen else busy)}, Phase.PROBING) as one:
        until("a verdict", lambda: one.posted, PATIENCE_S)
    assert {path for path, _, _ in one.api.asked} <= {"/health", "/metrics"}
    assert isinstance(one.posted[0], Stalled)
    assert "nothing has moved" in one.posted[0].why
    assert one.board.view().engine, "a gang that serves next has answered already"


def test_another_period_counts_at_once_and_the_end_waits_for_none() -> None:
    asked = list[object]()

    def health(request: object) -> tuple[int, str, bytes]:
        asked.append(request)
        return 200, JSON, IDLE

    patience = Patience(stall_s=5.0, misses=2, idle_probe_s=6000.0, prefill_tokens_per_s=1000.0, context_tokens=1024)
    with watching(patience, {"/health": health}, period_s=600.0) as one:
        until("the first look", lambda: asked)
        one.watch.retune(patience, period_s=0.05, deadline_s=2.0)
        until("looks by the new period", lambda: len(asked) > 3)
        one.watch.retune(patience, period_s=600.0, deadline_s=2.0)
        one.watch.stop()
        one.watch.join(PATIENCE_S)
        assert not one.watch._thread.is_alive()
