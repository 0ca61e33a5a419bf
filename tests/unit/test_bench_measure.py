"""A bench against endpoints over real sockets: good ones, and each way in which one can be bad."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import fastjsonschema
import pytest

from build.errors import CheckFailed, TwinfoldError, UsageError
from build.locks.published import Published
from supervisor.bench.asking import asking, together
from supervisor.bench.measure import Bench
from supervisor.bench.plan import Decode, Options, Prefill, plan
from supervisor.bench.readings import Measured
from supervisor.bench.report import Subject, report
from supervisor.bench.table import as_text
from supervisor.engine.line import ProbeFailed
from supervisor.engine.probes import endpoint
from supervisor.engine.streams import Streamed
from tests.testing.api import JSON, Api, serving, streamed
from tests.testing.checkout import CHECKOUT

CHAT = "/v1/chat/completions"
CONTEXT = 64 * 1024
OPTIONS = Options(2, runs=2, reply_tokens=8, lengths=(1024, 4096), limit_s=60)
SCHEMA = json.loads((CHECKOUT / "supervisor/bench/report.schema.json").read_text())


def usage(body: dict[str, Any], tokens: int = 3, cached: int = 0) -> dict[str, Any]:
    prompt = len(body["messages"][0]["content"]) // 4 + 5
    return {"prompt_tokens": prompt, "completion_tokens": tokens, "prompt_tokens_details": {"cached_tokens": cached}}


def good(body: dict[str, Any], sha: str = "", **own: object) -> tuple[int, str, bytes]:
    text = body["messages"][0]["content"]
    tail = {"choices": [], "usage": usage(body), "tensorfold": {"token_sha": sha or f"{hash(text):x}", **own}}
    words = [{"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]} for word in ("so ", "it ", "is")]
    role = {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]}
    finish = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return streamed(role, *words, finish, tail)


def measure(answer: Callable[[dict[str, Any]], tuple[int, str, bytes]], options: Options = OPTIONS) -> tuple[Measured, Api]:
    with serving({CHAT: answer}) as api:
        made = plan(options, CONTEXT)
        return Bench(asking(endpoint(api.url)), "m", made, "mark", say=lambda _: None).run(), api


def told(measured: Measured, before: dict[str, Any] | None = None, **gang: object) -> dict[str, Any]:
    subject = Subject("http://h/v1", "m", CONTEXT, gang, 0, 1.0)
    theirs = Published("the guide", "Zig", "2.9 bpw", {("prose", 1): (74.9, 74.9)}, {1024: (2000.0, 2180.0)})
    found = report(subject, plan(OPTIONS, CONTEXT), measured, [theirs], before)
    fastjsonschema.compile(SCHEMA)(json.loads(json.dumps(found)))
    return found


def test_a_good_endpoint_gives_every_figure() -> None:
    measured, api = measure(good)
    assert (measured.ended, measured.why, measured.different) == ("complete", "", ())
    assert {str(step): len(runs) for step, runs in measured.readings.items()} == {
        "prose, 1 stream": 2, "prose, 2 streams": 2, "code, 1 stream": 2, "code, 2 streams": 2,
        "prefill of 1024 tokens": 2, "prefill of 4096 tokens": 2,
    }  # fmt: skip
    for step, tokens in ((Prefill(1024), 1024), (Prefill(4096), 4096)):
        assert all(abs(one.prompt_tokens - tokens) < 20 for (one,) in measured.readings[step])
    bodies = [body for path, _, body in api.asked if path == CHAT]
    assert all(body["temperature"] == 0 and body["stream_options"] == {"include_usage": True} for body in bodies)


def test_no_timed_prompt_was_asked_before() -> None:
    _, api = measure(good)
    asked = [body["messages"][0]["content"] for _, _, body in api.asked]
    timed = [text for text in asked if text.startswith("[mark")]
    assert len({text[:40] for text in timed}) == len(timed) == 3 + 2 * (4 * 2 + 2)


def test_the_table_names_figures_of_both_and_what_was_left_out() -> None:
    measured, _ = measure(good)
    text = as_text(told(measured))
    row = next(line for line in text.splitlines() if line.startswith("prose, 1 stream")).split()
    assert row[-1] == "74.9"
    assert "2000-2180" in text
    assert "[1] the guide: Zig, 2.9 bpw" in text
    assert "same tokens: 4 prompts alone and 2 at once, and again at the end (by token_sha)" in text
    assert "validate" not in text


def test_the_variant_is_told_that_published_figures_are_not_its_own() -> None:
    measured, _ = measure(good)
    gang = {"target": "t", "generation": 1, "bundle": "b", "variant": "ablit", "launch_id": "x"}
    found = told(measured, **gang)
    assert "figures measured on the original checkpoint do not validate it" in as_text(found)
    assert found["published_validates"] is False


def test_a_reply_that_differs_beside_others_is_named() -> None:
    lock, calls = threading.Lock(), {"n": 0}

    def answer(body: dict[str, Any]) -> tuple[int, str, bytes]:
        text = body["messages"][0]["content"]
        with lock:
            calls["n"] += text.startswith("Tell the history")
            return good(body, sha="other" if text.startswith("Tell the history") and calls["n"] > 1 else "")

    measured, _ = measure(answer)
    assert measured.different == ("prose-2",)
    assert "NOT the same tokens" in as_text(told(measured))


def test_an_endpoint_without_token_sha_is_compared_by_text() -> None:
    def answer(body: dict[str, Any]) -> tuple[int, str, bytes]:
        return streamed({"choices": [{"index": 0, "delta": {"content": "well"}}]}, {"choices": [], "usage": usage(body)})

    measured, _ = measure(answer)
    assert (measured.ended, measured.by, measured.different) == ("complete", "text", ())
    assert "(by their text: the endpoint says no token_sha)" in as_text(told(measured))


def test_tokens_are_compared_with_a_recorded_bench_of_the_same_bundle() -> None:
    measured, _ = measure(good)
    before = told(measured)
    assert told(measured, before)["same_tokens"]["same_as_before"] is True
    before["same_tokens"]["prompts"][0]["alone"] = "another"
    after = told(measured, before)
    assert after["same_tokens"]["different_from_before"] == ["prose-1"]
    assert "NOT the same tokens as in the bench that was recorded before: prose-1" in as_text(after)
    before["same_tokens"]["reply_tokens"] = 9999
    assert told(measured, before)["same_tokens"]["same_as_before"] is None


def test_a_prompt_that_is_refused_as_too_long_is_left_out_and_the_rest_goes_on() -> None:
    def answer(body: dict[str, Any]) -> tuple[int, str, bytes]:
        if len(body["messages"][0]["content"]) > 10_000:
            return streamed({"error": {"message": "no room", "code": "context_length_exceeded"}})
        return good(body)

    measured, _ = measure(answer)
    assert measured.ended == "complete"
    assert [(str(one.step), one.why) for one in measured.left_out] == [("prefill of 4096 tokens", "refused as too long: no room")]
    assert Prefill(1024) in measured.readings


@pytest.mark.parametrize(
    ("answer", "kind", "line"),
    [
        ((401, JSON, b'{"error": {"message": "bad key"}}'), UsageError, "does not take the API key"),
        ((500, JSON, b'{"error": {"message": "peer down"}}'), CheckFailed, "engine error: peer down"),
        (streamed({"error": {"message": "peer down"}}), CheckFailed, "engine error: peer down"),
        (streamed({"choices": [{"index": 0, "delta": {"content": "a"}}]}), CheckFailed, "carry no usage"),
    ],
)
def test_a_bad_endpoint_ends_the_bench_with_its_reason(
    answer: tuple[int, str, bytes], kind: type[TwinfoldError], line: str
) -> None:
    measured, _ = measure(lambda _: answer)
    assert measured.ended == "failed"
    assert isinstance(measured.error, kind)
    assert line in str(measured.error)
    assert "nothing was measured" in as_text(told(measured))


def test_garbage_is_no_reply_to_measure() -> None:
    def answer(body: dict[str, Any]) -> tuple[int, str, bytes]:
        tail = {"choices": [], "usage": usage(body, 32)}
        return streamed({"choices": [{"index": 0, "delta": {"content": "!" * 32}}]}, tail)

    measured, _ = measure(answer)
    assert "garbage: one character repeated" in measured.why


def test_what_was_measured_stays_when_the_engine_dies() -> None:
    def answer(body: dict[str, Any]) -> tuple[int, str, bytes]:
        dead = body["messages"][0]["content"].startswith("[mark.1.")
        return (500, JSON, b'{"error": {"message": "peer down"}}') if dead else good(body)

    measured, _ = measure(answer)
    assert measured.ended == "failed"
    assert len(measured.readings[Decode("prose", 1)]) == 1
    assert "ended early: a request came to nothing: engine error: peer down" in as_text(told(measured))


def test_an_interrupt_keeps_what_was_measured() -> None:
    with serving({CHAT: good}) as api:
        ask = asking(endpoint(api.url))

        def say(line: str) -> None:
            if line.startswith("run 2"):
                raise KeyboardInterrupt

        measured = Bench(ask, "m", plan(OPTIONS, CONTEXT), "mark", say=say).run()
    assert (measured.ended, measured.error) == ("interrupted", None)
    assert len(measured.readings) == 6


class Slow:
    """An endpoint without sockets, and a clock on which a character of a prompt takes a millisecond."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def ask(self, body: Mapping[str, Any], _deadline_s: float, ready: Callable[[], object]) -> Streamed:
        ready()
        sent_s = self.now_s
        self.now_s += len(body["messages"][0]["content"]) / 1000
        status, content_type, content = good(dict(body))
        return Streamed(status, content_type, content, sent_s, ((self.now_s, len(content)),))


@pytest.mark.parametrize(
    ("limit_s", "runs", "why"),
    [
        (19.0, (2, 0), "the time limit of 19 s came"),  # a prompt four times as long is expected to take more than is left
        (44.0, (2, 1), "the time limit of 44 s came: run 2 of 2 and on"),
        (84.0, (2, 2), ""),
    ],
)
def test_nothing_begins_that_would_not_end_within_the_limit(limit_s: float, runs: tuple[int, int], why: str) -> None:
    slow = Slow()
    options = Options(1, runs=2, reply_tokens=8, lengths=(1024, 4096), limit_s=limit_s)
    measured = Bench(slow.ask, "m", plan(options, CONTEXT), "mark", say=lambda _: None, clock=slow.clock).run()
    assert measured.ended == "complete"
    assert tuple(len(measured.readings.get(Prefill(tokens), ())) for tokens in (1024, 4096)) == runs
    assert {one.step: one.why for one in measured.left_out}.get(Prefill(4096), "") == why
    assert measured.took_s <= limit_s


def test_one_refused_connection_ends_all_streams_of_a_group(unused_port: int) -> None:
    ask = asking(endpoint(f"http://127.0.0.1:{unused_port}"))
    with pytest.raises(ProbeFailed, match="nothing listens there"):
        together(ask, [{}, {}, {}], 20)


@pytest.fixture
def unused_port() -> Iterator[int]:
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
