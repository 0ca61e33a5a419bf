from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.engine.contract import parity
from supervisor.engine.facts import (
    Access,
    Done,
    Fact,
    Followed,
    FollowRefused,
    MemoryLine,
    RankLoaded,
    Ready,
    RequestEnded,
    RequestRefused,
    StartFailure,
    StreamError,
    connectable,
)
from supervisor.engine.log import LINE_LIMIT, LogReader, logged, read_line
from tests.testing.cases import case

F = TypeVar("F")
STARTS = case("engine-start-logs")


def facts(name: str) -> tuple[Fact, ...]:
    reader = LogReader()
    return (*reader.feed(STARTS.raw(name)), *reader.finish())


def of(kind: type[F], said: tuple[Fact, ...]) -> tuple[F, ...]:
    return tuple(fact for fact in said if isinstance(fact, kind))


def test_a_start_that_serves_is_ready_with_all_its_figures() -> None:
    want = STARTS.expect["ready"]
    said = facts("input-ready.log")
    (ready,), (memory,) = of(Ready, said), of(MemoryLine, said)
    assert (ready.name, ready.port, ready.host) == (want["name"], want["port"], want["listens_on"])
    assert (ready.context_tokens, ready.drafts, ready.loaded_s) == (want["context"], want["drafts"], want["loaded_s"])
    assert ready.probe_url == want["probe_url"]
    assert {name: getattr(memory, name) for name in want["memory"]} == want["memory"]
    assert (memory.device, memory.shared, memory.stream_gib) == ("NVIDIA GB10", True, 0.0)
    assert of(StartFailure, said) == ()


def test_the_followers_load_time_is_read() -> None:
    loaded = [fact for fact in facts("input-ready-rank1.log") if isinstance(fact, RankLoaded)]
    assert [(fact.rank, fact.loaded_s) for fact in loaded] == [(1, STARTS.expect["ready"]["rank1_loaded_s"])]


def test_weights_loaded_without_the_serving_line_is_waiting_and_not_ready() -> None:
    said = facts("input-waiting.log")
    assert len(of(MemoryLine, said)) == 1
    assert of(Ready, said) == of(StartFailure, said) == ()


def test_a_refusal_for_memory_is_read_with_what_would_fit_and_is_not_repeated() -> None:
    want = STARTS.expect["refused"]
    (failure,) = of(StartFailure, facts("input-refused.log"))
    assert (failure.kind, failure.asked, failure.left_gib) == (want["class"], want["asked"], want["left_gib"])
    assert (failure.floor_gib, failure.fits_streams, failure.restart) == (
        want["floor_gib"],
        want["fits_streams"],
        want["restart"],
    )


def test_a_missing_model_path_is_not_repeated() -> None:
    (failure,) = of(StartFailure, facts("input-nopath.log"))
    assert (failure.kind, failure.restart) == (STARTS.expect["nopath"]["class"], False)


@pytest.mark.parametrize(
    ("line", "kind", "restart"),
    [
        ("error: NoRankCache", "rank_cache_bad", False),
        ("error: SeveralRankCaches", "rank_cache_bad", False),
        ("tensorfold: BadRankCache: /cache", "rank_cache_bad", False),
        ("error: ShortRopeTable", "rope_table_short", False),
        ("error.BadArgument", "bad_arguments", False),
        ("tf-dsv41-lanes: error.BadArgument: --poll: 1", "bad_arguments", False),
        ("error: AddressInUse", "port_taken", True),
        ("error: ConnectFailed", "peer_not_found", True),
    ],
)
def test_the_engines_own_errors_are_told_apart(line: str, kind: str, restart: bool) -> None:
    failure = read_line(line)
    assert isinstance(failure, StartFailure)
    assert (failure.kind, failure.restart) == (kind, restart)


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ('{"rank": 1, "follow": "PeerDown"}', Followed(1, "PeerDown")),
        ('{"rank": 1, "followed": true}', Followed(1)),
        ('{"follow_refused": "ERR"}', FollowRefused("ERR")),
        ('{"rank": 3, "loaded_s": 2, "pool": 8, "drafts": false, "arena_used": 4}', RankLoaded(3, 2.0, 8, False, 4)),
        ("[tensorfold] refused chatcmpl-1: too long: 9", RequestRefused("chatcmpl-1", "too long: 9")),
        (
            "[tensorfold] ended chatcmpl-1 reason=client-left prompt=3 tokens=1 after=0.1s",
            RequestEnded("chatcmpl-1", "client-left"),
        ),
        (
            "[tensorfold] ended chatcmpl-1 reason=error (peer gone (rank 1)) prompt=3 tokens=1 after=2s",
            RequestEnded("chatcmpl-1", "error", "peer gone (rank 1)"),
        ),
        ("[tensorfold] stream error: BrokenPipe", StreamError("BrokenPipe")),
        ('127.0.0.1 "POST /v1/chat/completions HTTP/1.1" 200 -', Access("127.0.0.1", "POST", "/v1/chat/completions", 200)),
    ],
)
def test_lines_of_a_serving_gang_become_facts(line: str, fact: object) -> None:
    assert read_line(line) == fact


def test_a_finished_reply_is_read_with_its_drafts() -> None:
    line = "[tensorfold] done chatcmpl-7 prompt=21 cached=16 thinking=off tokens=2 sha=ab12 finish=stop rounds=1 accepted=3/5"
    done = read_line(line)
    assert isinstance(done, Done)
    assert (done.id, done.prompt_tokens, done.cached_tokens, done.tokens, done.finish) == ("chatcmpl-7", 21, 16, 2, "stop")
    assert (done.rounds, done.accepted, done.drafted, done.fields["sha"]) == (1, 3, 5, "ab12")
    faster = read_line(line + " tok/s=24.1 ttft=0.5 prefill=900.0")
    assert isinstance(faster, Done)
    assert faster.fields["tok/s"] == "24.1"


@pytest.mark.parametrize(
    "line", ["", "{", "[]", "{}", '{"rank": "one"}', "hello", "a user wrote: [tensorfold] serving X at http://h:1/v1"]
)
def test_other_lines_are_no_facts(line: str) -> None:
    assert read_line(line) is None


@given(st.lists(st.integers(min_value=1, max_value=40), max_size=60))
def test_a_log_cut_anywhere_gives_the_same_facts(cuts: list[int]) -> None:
    whole = STARTS.raw("input-ready.log") + STARTS.raw("input-ready-rank1.log") + "日本\n".encode()
    reader = LogReader()
    found = []
    at = 0
    for length in cuts:
        found += reader.feed(whole[at : at + length])
        at += length
    found += reader.feed(whole[at:])
    assert [type(fact) for fact in found] == [MemoryLine, Ready, RankLoaded]
    assert found[1:2] == [fact for fact in facts("input-ready.log") if isinstance(fact, Ready)]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(junk: bytes) -> None:
    reader = LogReader()
    reader.feed(junk)
    reader.finish()


def test_a_line_without_end_takes_bounded_memory_and_the_next_one_is_read() -> None:
    reader = LogReader()
    for _ in range(8):
        reader.feed(b"x" * LINE_LIMIT)
    assert len(reader._rest) <= LINE_LIMIT
    assert reader.feed(b'\n{"rank": 1, "followed": true}\n') == (Followed(1),)


def test_what_ranks_log_is_compared_with_what_was_asked() -> None:
    rank0, rank1 = logged(0, facts("input-ready.log")), logged(1, facts("input-ready-rank1.log"))
    assert parity(1048576, True, (rank0,)) == ()
    assert [str(d) for d in parity(1048576, True, (rank0, rank1))] == ["rank 1 has pool 262144, the gang was asked for 1048576"]
    assert [d.what for d in parity(1048576, False, (rank0,))] == ["drafts"]
    assert [d.what for d in parity(65536, True, (rank0,))] == ["context"]


@pytest.mark.parametrize(
    ("host", "ask"),
    [("0.0.0.0", "127.0.0.1"), ("[::]", "[::1]"), ("::", "[::1]"), ("192.0.2.1", "192.0.2.1"), ("spark-a", "spark-a")],
)
def test_a_wildcard_address_is_never_asked(host: str, ask: str) -> None:
    assert connectable(host) == ask
