from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.engine.replies import collapsed, holds, read_reply, smoke_verdict
from tests.testing.cases import case

CASE = case("engine-replies")
STREAM = "text/event-stream; charset=utf-8"


def reply(number: int):
    name = f"input-{number}." + ("sse" if number == 6 else "json")
    return read_reply(400 if number == 5 else 200, CASE.raw(name), STREAM if number == 6 else "application/json")


def completion(content: str, finish: str = "stop", **message: object) -> bytes:
    body = {"choices": [{"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}]}
    return json.dumps(body).encode()


def stream(*chunks: object, done: bool = True) -> bytes:
    rows = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*rows, "data: [DONE]\n\n" if done else ""]).encode()


def delta(finish: str | None = None, **words: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": words, "finish_reason": finish}]}


@pytest.mark.parametrize("number", range(1, 7))
def test_replies_from_the_field_are_told_apart(number: int) -> None:
    want = CASE.expect[f"r{number}"]
    found = reply(number)
    assert (found.kind, found.healthy) == (want["class"], want["healthy"])
    assert found.why == want.get("why", found.why)
    assert found.healthy or want.get("whose_fault") != "client"
    assert found.text == want.get("text", found.text)


def test_the_smoke_test_fails_on_garbage_and_asks_again_after_a_spent_budget() -> None:
    assert smoke_verdict(reply(1), "42", last=False).passed is True
    assert smoke_verdict(reply(2), "42", last=False).passed is False
    spent = smoke_verdict(reply(3), "42", last=False)
    assert spent.passed is None
    assert "thinking off or more tokens" in spent.why
    assert smoke_verdict(reply(3), "42", last=True).passed is False
    assert smoke_verdict(reply(4), "42", last=False).passed is None
    assert smoke_verdict(reply(4), "42", last=True).passed is False


@pytest.mark.parametrize("number", [5, 6])
def test_a_too_long_prompt_is_never_an_answer_nor_an_ill_engine(number: int) -> None:
    found = reply(number)
    assert found.kind != "ok"
    assert found.healthy
    assert smoke_verdict(found, "42", last=False).passed is False


@pytest.mark.parametrize(
    ("text", "word", "there"), [("It is 42.", "42", True), ("1422", "42", False), ("RED!", "red", True), ("", "x", False)]
)
def test_the_expected_word_stands_by_itself(text: str, word: str, there: bool) -> None:
    assert holds(text, word) is there


@pytest.mark.parametrize("text", ["!" * 64, "ab" * 20, "! " * 20, "<s>" * 30, "\ufffd" * 12 + "abcdefgh"])
def test_collapsed_text_is_garbage(text: str) -> None:
    assert collapsed(text)
    assert read_reply(200, completion(text, "length")).kind == "garbage"


@pytest.mark.parametrize("text", ["!", "No!!!!", "Yes, it is. " * 20, "haha", "42", "—" * 3, ""])
def test_short_and_wordy_text_is_not(text: str) -> None:
    assert not collapsed(text)


def test_garbage_inside_thinking_counts_too() -> None:
    assert read_reply(200, completion("", "length", reasoning_content="!" * 100)).kind == "garbage"


def test_an_empty_answer_is_not_ok() -> None:
    assert read_reply(200, completion("  \n")).kind == "empty"
    assert read_reply(200, b'{"choices": []}').kind == "empty"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (500, b'{"error": {"message": "PeerDown"}}', "engine_error"),
        (500, b"Internal error", "engine_error"),
        (200, b"<html>", "engine_error"),
        (200, b"[]", "engine_error"),
        (400, b'{"error": {"message": "bad"}}', "bad_request"),
        (404, b'{"error": "unknown model"}', "bad_request"),
        (401, b'{"error": {"message": "bad key"}}', "unauthorised"),
    ],
)
def test_refusals_say_whose_fault_they_are(status: int, body: bytes, kind: str) -> None:
    found = read_reply(status, body)
    assert found.kind == kind
    assert found.why
    assert found.healthy is (kind != "engine_error")


def test_a_stream_is_put_together_with_its_usage_and_digest() -> None:
    tail = {
        "choices": [],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
        "tensorfold": {"token_sha": "ab12"},
    }
    body = stream(
        delta(role="assistant"), delta(reasoning_content="hm"), delta(content="4"), delta(content="2"), delta("stop"), tail
    )
    found = read_reply(200, body, STREAM)
    assert (found.kind, found.text, found.reasoning, found.finish_reason, found.token_sha) == ("ok", "42", "hm", "stop", "ab12")
    assert (found.usage.prompt, found.usage.completion, found.usage.cached) == (9, 3, 4)


def test_a_stream_that_breaks_off_is_no_answer() -> None:
    found = read_reply(200, stream(delta(content="4"), done=False), STREAM)
    assert (found.kind, found.text) == ("engine_error", "4")
    assert read_reply(200, stream(delta(content="4"), {"error": {"message": "PeerDown"}}), STREAM).kind == "engine_error"
    assert read_reply(200, b"data: {oops\n\ndata: [DONE]\n\n", STREAM).kind == "engine_error"


def test_tool_calls_are_read_whole_and_in_pieces() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    whole = read_reply(200, completion("", "tool_calls", tool_calls=[call]))
    pieces = [
        delta(tool_calls=[{"index": 0, "function": {"name": "get_weather", "arguments": '{"city": '}}]),
        delta("tool_calls", tool_calls=[{"index": 0, "function": {"arguments": '"Paris"}'}}]),
    ]
    streamed = read_reply(200, stream(*pieces), STREAM)
    assert whole.kind == streamed.kind == "ok"
    assert whole.tool_calls == streamed.tool_calls == (("get_weather", '{"city": "Paris"}'),)


@given(st.integers(100, 599), st.binary(max_size=200), st.sampled_from(["application/json", STREAM, ""]))
def test_any_answer_is_classified_without_an_error(status: int, body: bytes, content_type: str) -> None:
    found = read_reply(status, body, content_type)
    assert found.kind != "ok"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "message", "delta", "usage", "tool_calls", "error", "index"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_classified_without_an_error(value: object) -> None:
    read_reply(200, json.dumps(value).encode())
    read_reply(200, stream(value), STREAM)
