from __future__ import annotations

import json
import struct
import zlib

import pytest

from build.errors import CheckFailed, UsageError
from supervisor.engine.probes import endpoint, smoke
from supervisor.engine.replies import read_reply
from supervisor.engine.validate import NAMES, Result, _png, as_json, as_text, checks, require, smoke_text, validate
from tests.testing.api import JSON, completion, serving, streamed

CHAT = "/v1/chat/completions"
TOO_LONG = {"error": {"message": "too long", "code": "context_length_exceeded"}}
CALL = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
WINDOW = 4096


def good_at_tools(body):
    if body["messages"][-1]["role"] == "tool":
        return completion("It is 18 degrees in Paris.")
    if body.get("stream"):
        pieces = ({"name": "get_weather", "arguments": '{"city": '}, {"arguments": '"Paris"}'})
        return streamed(*({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": piece}]}}]} for piece in pieces))
    return completion("", "tool_calls", tool_calls=[CALL])


def good(body):
    """An endpoint that does everything right, in the contract's forms."""
    text = body["messages"][0]["content"]
    usage = {"prompt_tokens": len(text) // 4, "completion_tokens": 2}
    if len(text) > WINDOW * 4:
        return streamed(TOO_LONG) if body.get("stream") else (400, JSON, json.dumps(TOO_LONG).encode())
    if "tools" in body:
        return good_at_tools(body)
    if body.get("stream"):
        return streamed({"choices": [{"index": 0, "delta": {"content": "42"}}]}, {"choices": [], "usage": usage})
    if isinstance(text, list):
        return completion("Red.")
    thinks = body["chat_template_kwargs"]["enable_thinking"]
    return completion("42", usage=usage, **({"reasoning_content": "six sevens"} if thinks else {}))


def routes(answer=good):
    models = json.dumps({"data": [{"id": "m", "context_length": WINDOW}]}).encode()
    return {CHAT: answer, "/v1/models": lambda _: (200, JSON, models)}


def test_a_good_endpoint_passes_every_check() -> None:
    with serving(routes()) as api:
        results = validate(endpoint(api.url), deadline_s=10)
    assert [r.name for r in results] == ["models", *NAMES]
    assert [r for r in results if not r.ok] == []
    require(results)


@pytest.mark.parametrize(
    ("bad", "wrong"),
    [
        ({"content": "!" * 64}, {"text", "thinking-on", "thinking-off", "image", "long-prompt"}),
        ({"content": "43"}, {"text", "thinking-on", "thinking-off", "image", "long-prompt"}),
        ({"content": "42 red", "reasoning_content": "hm"}, {"thinking-off"}),
        ({"content": "42 red"}, {"thinking-on"}),
    ],
)
def test_each_check_can_fail_for_its_own_reason(bad: dict[str, str], wrong: set[str]) -> None:
    def answer(body):
        spared = body.get("stream") or "tools" in body or len(body["messages"][0]["content"]) > WINDOW * 4
        if spared:
            return good(body)
        return completion(usage={"prompt_tokens": 512, "completion_tokens": 2}, **bad)  # type: ignore[arg-type]

    with serving(routes(answer)) as api:
        results = validate(endpoint(api.url), deadline_s=10)
    assert {r.name for r in results if not r.ok} == wrong
    with pytest.raises(CheckFailed, match=min(wrong)):
        require(results)


@pytest.mark.parametrize(
    ("name", "status", "body", "ok"),
    [
        ("tools", 200, completion("", "tool_calls", tool_calls=[CALL])[2], True),
        ("tools", 200, completion("It is sunny.")[2], False),
        ("tools", 200, completion("", tool_calls=[{"function": {"name": "get_weather", "arguments": "{Paris"}}])[2], False),
        ("tools", 200, completion("", tool_calls=[{"function": {"name": "rm", "arguments": '{"city": "Paris"}'}}])[2], False),
        ("tools-result", 200, completion("It is clear.")[2], True),
        ("tools-result", 200, completion("", "tool_calls", tool_calls=[CALL])[2], False),
        ("tools-result", 200, completion("")[2], False),
        ("too-long", 400, json.dumps(TOO_LONG).encode(), True),
        ("too-long", 400, b'{"error": {"message": "bad request"}}', False),
        ("too-long", 200, completion("42")[2], False),
        ("long-prompt", 200, completion("42", usage={"prompt_tokens": 12})[2], False),
        ("long-prompt", 200, completion("42")[2], False),
        ("image", 400, b'{"error": {"message": "no image input"}}', False),
    ],
)
def test_judgements_of_single_replies(name: str, status: int, body: bytes, ok: bool) -> None:
    check = next(c for c in checks("m", window=WINDOW * 8) if c.name == name)
    assert check.judge(read_reply(status, body)).ok is ok


def test_every_check_is_listed() -> None:
    assert tuple(check.name for check in checks("m", window=WINDOW)) == NAMES


def test_a_stream_needs_its_usage() -> None:
    check = next(c for c in checks("m", window=WINDOW) if c.name == "stream")
    status, content_type, body = streamed({"choices": [{"index": 0, "delta": {"content": "42"}}]})
    verdict = check.judge(read_reply(status, body, content_type))
    assert (verdict.ok, verdict.evidence) == (False, "the stream carries no usage")


def test_checks_can_be_left_out_by_name_and_a_wrong_name_is_refused() -> None:
    with serving(routes()) as api:
        results = validate(endpoint(api.url), skip=["tools", "image"], deadline_s=10)
        assert {"tools", "image"} & {r.name for r in results} == set()
        with pytest.raises(UsageError, match="no check tool: the checks are"):
            validate(endpoint(api.url), skip=["tool"])


def test_a_model_that_is_not_served_is_a_no() -> None:
    with serving(routes()) as api:
        results = validate(endpoint(api.url), "other", skip=NAMES)
    assert [(r.name, r.ok) for r in results] == [("models", False)]
    assert "served: m; asked for: other" in results[0].evidence


def test_an_endpoint_that_breaks_off_is_a_no_and_the_rest_goes_on() -> None:
    def answer(body):
        if body.get("stream"):
            raise ConnectionAbortedError
        return good(body)

    import socketserver

    quiet = socketserver.BaseServer.handle_error
    socketserver.BaseServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    try:
        with serving(routes(answer)) as api:
            results = validate(endpoint(api.url), deadline_s=10)
    finally:
        socketserver.BaseServer.handle_error = quiet  # type: ignore[method-assign]
    assert {r.name for r in results if not r.ok} == {"stream", "tools-stream", "too-long-stream"}


def test_results_are_told_to_people_and_programs() -> None:
    results = (Result("text", True, '"42"', 0.5), Result("tools", False, "no tool was called", 1.0))
    text = as_text(results)
    assert text.splitlines()[-1] == "1 of 2 checks hold; not: tools"
    assert "NO   tools" in text
    assert json.loads(as_json(results)) == {
        "ok": False,
        "checks": [
            {"name": "text", "ok": True, "evidence": '"42"', "took_s": 0.5},
            {"name": "tools", "ok": False, "evidence": "no tool was called", "took_s": 1.0},
        ],
    }


def test_a_smoke_test_is_told_in_one_line() -> None:
    with serving(routes()) as api:
        line = smoke_text(smoke(endpoint(api.url), "m", ("6 times 7?", "42"), deadline_s=10))
    assert line.startswith("yes  smoke")
    assert "\n" not in line


def test_the_image_is_a_red_png() -> None:
    png = _png(4, (255, 0, 0))
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, kinds, data = 8, [], b""
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        content = png[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", png, at + 8 + length)[0] == zlib.crc32(kind + content)
        kinds.append(kind)
        data = content if kind == b"IDAT" else data
        at += 12 + length
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]
    assert zlib.decompress(data) == (b"\x00" + b"\xff\x00\x00" * 4) * 4
