from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from build.errors import UsageError
from supervisor.engine.line import Endpoint, Line, ProbeFailed
from supervisor.engine.probes import (
    MORE_TOKENS,
    PROBE_TOKENS,
    Reader,
    chat,
    endpoint,
    get_health,
    get_models,
    question,
    read,
    read_api_key,
    smoke,
    tiny_generation,
)
from tests.testing.api import JSON, completion, raw_server, serving, streamed

CHAT = "/v1/chat/completions"
ASKED = ("What is 6 times 7?", "42")
PATIENCE_S = 10.0  # ten times what a probe of these tests may take


def silent(connection: socket.socket, ended: threading.Event) -> None:
    ended.wait(60)


def drip(connection: socket.socket, ended: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not ended.wait(0.05):
        connection.sendall(b"X-A: b\r\n" if connection else b"")


def drip_body(connection: socket.socket, ended: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not ended.wait(0.05):
        connection.sendall(b"x")


def torn(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")


def until_the_end(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + b"all of it " * 1000)


def test_a_body_whose_length_only_the_connections_end_tells_is_whole() -> None:
    with raw_server(until_the_end) as url, Line(endpoint(url)) as line:
        for _ in range(2):  # and the next request has a connection of its own
            assert line.get("/health", PATIENCE_S).body == b"all of it " * 1000


def no_http(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(65536)
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


@pytest.mark.parametrize("behave", [silent, drip, drip_body], ids=["silent", "drips headers", "drips a body"])
def test_no_server_holds_a_caller_past_its_deadline(behave) -> None:
    with raw_server(behave) as url:
        began = time.monotonic()
        with pytest.raises(ProbeFailed) as caught:
            get_health(endpoint(url), 0.5)
        assert time.monotonic() - began < PATIENCE_S
    assert caught.value.kind == "timeout"
    assert "within 0.5 s" in str(caught.value)


def test_a_full_backlog_does_not_hold_a_caller() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as held:
        for _ in range(4):
            filler = held.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        began = time.monotonic()
        with pytest.raises(ProbeFailed) as caught:
            get_health(endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}"), 0.5)
        assert time.monotonic() - began < PATIENCE_S
    assert caught.value.kind == "timeout"


def bad_chunk(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n")


@pytest.mark.parametrize("behave", [torn, no_http, bad_chunk], ids=["torn", "no http", "a chunk of a negative size"])
def test_half_an_answer_is_none(behave) -> None:
    with raw_server(behave) as url, pytest.raises(ProbeFailed) as caught:
        get_health(endpoint(url), 5)
    assert caught.value.kind == "cut"


def test_nothing_listening_is_told_from_a_hang() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ProbeFailed) as caught:
        get_health(endpoint(f"http://127.0.0.1:{port}/v1"), 5)
    assert caught.value.kind == "unreachable"


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_an_address_is_taken_with_and_without_its_version(url: str) -> None:
    assert endpoint(url).base_url == "http://h:1/v1"


NO_ADDRESS = ["", "h:1", "ftp://h", "http://", "http://h:port", "http://h:99999", "http://a..b", f"http://{'a' * 64}.x"]
NO_ADDRESS += ["http://h/ü", "http://h/a b", "http://h h", "http://h?x=1", "http://h/#part", "http://\0"]


@pytest.mark.parametrize("url", NO_ADDRESS)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="no address of an API"):
        endpoint(url)


@pytest.mark.parametrize("url", ["http://[::1]", "http://[fe80::abcd]/v1", "https://[::1]"])
def test_an_ipv6_address_without_a_port_is_no_host_with_one(url: str) -> None:
    with Line(endpoint(url)) as line:
        assert line._connection.port == (443 if url.startswith("https") else 80)
        assert line._connection.host in {"::1", "fe80::abcd"}


def test_a_key_comes_from_its_files_first_line_and_is_sent_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("s3cret\nsecond line\n")
    with serving({"/health": lambda _: (200, JSON, b"{}")}) as api:
        where = endpoint(api.url, read_api_key(file))
        get_health(where, 5)
        assert api.asked[0][1]["authorization"] == "Bearer s3cret"
        get_health(Endpoint(api.url), 5)
        assert "authorization" not in api.asked[1][1]
    assert "s3cret" not in repr(where)
    assert read_api_key(None) == ""


def test_a_key_file_that_is_missing_empty_or_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("none", "empty", "binary"):
        with pytest.raises(UsageError, match=name):
            read_api_key(tmp_path / name)


def test_models_are_listed_and_junk_is_no_list() -> None:
    with serving({"/v1/models": lambda _: (200, JSON, b'{"data": [{"id": "m"}]}')}) as api:
        assert get_models(endpoint(api.url), 5) == ("m",)
    for answer in ((200, JSON, b"[]"), (500, JSON, b'{"data": [{"id": "m"}]}'), (200, JSON, b"x")):
        with serving({"/v1/models": lambda _, answer=answer: answer}) as api:
            assert get_models(endpoint(api.url), 5) == ()


def test_both_readings_are_one_and_missing_metrics_are_no_failure() -> None:
    health = (200, JSON, json.dumps({"live": {"waiting": 3}, "completion_tokens_total": 5}).encode())
    with serving(
        {"/health": lambda _: health, "/metrics": lambda _: (200, "text/plain", b"tensorfold_requests_inflight 2")}
    ) as api:
        got = read(endpoint(api.url), 5)
        assert (got.waiting, got.running, got.generated_tokens_live) == (3, 2, 5.0)
    with serving({"/health": lambda _: health}) as api:
        assert read(endpoint(api.url), 5).running is None


def test_a_right_answer_passes_the_smoke_test_at_once_with_thinking_off() -> None:
    with serving({CHAT: lambda _: completion("42")}) as api:
        result = smoke(endpoint(api.url), "m", ASKED, deadline_s=5)
        assert (result.passed, result.asks) == (True, 1)
        body = api.asked[0][2]
    assert (body["model"], body["temperature"], body["chat_template_kwargs"]) == ("m", 0, {"enable_thinking": False})


def test_garbage_fails_the_smoke_test_without_a_second_try() -> None:
    with serving({CHAT: lambda _: completion("!" * 64, "length")}) as api:
        result = smoke(endpoint(api.url), "m", ASKED, deadline_s=5)
    assert (result.passed, result.asks, result.verdict.why) == (False, 1, "one character repeated")


def test_a_spent_budget_is_asked_again_with_more_tokens() -> None:
    def answer(body):
        return (
            completion("42") if body["max_tokens"] == MORE_TOKENS else completion("", "length", reasoning_content="Let me see.")
        )

    with serving({CHAT: answer}) as api:
        result = smoke(endpoint(api.url), "m", ASKED, deadline_s=5)
    assert (result.passed, result.asks) == (True, 2)


def test_a_wrong_answer_fails_after_the_last_try() -> None:
    with serving({CHAT: lambda _: completion("43")}) as api:
        result = smoke(endpoint(api.url), "m", ASKED, asks=3, deadline_s=5)
    assert (result.passed, result.asks) == (False, 3)
    assert 'lacks 42: "43"' in result.verdict.why


def test_an_engine_error_fails_the_smoke_test_with_its_words() -> None:
    with serving({CHAT: lambda _: (500, JSON, b'{"error": {"message": "PeerDown"}}')}) as api:
        result = smoke(endpoint(api.url), "m", ASKED, deadline_s=5)
    assert (result.passed, result.verdict.why) == (False, "PeerDown")


def test_a_stream_is_read_to_its_end() -> None:
    chunks = [{"choices": [{"index": 0, "delta": {"content": part}, "finish_reason": None}]} for part in "42"]
    with serving({CHAT: lambda _: streamed(*chunks)}) as api:
        reply, answer = chat(endpoint(api.url), {**question("m", "x", 4), "stream": True}, 5)
    assert (reply.kind, reply.text, answer.status) == ("ok", "42", 200)


@pytest.mark.parametrize(
    ("content", "alive"),
    [("OK", True), ("", True), ("!" * 24, False), ("ab" * 12, False)],
    ids=["words", "tokens without text", "one character", "two characters"],
)
def test_a_tiny_generation_is_long_enough_to_show_garbage(content: str, alive: bool) -> None:
    with serving({CHAT: lambda _: completion(content, "length")}) as api:
        assert tiny_generation(endpoint(api.url), "m", 5).alive is alive
        assert api.asked[0][2]["max_tokens"] == PROBE_TOKENS


def keeps(answers: int, seen: list[int]) -> Callable[[socket.socket, threading.Event], None]:
    """Answers so many requests over one connection, then closes it without a word."""

    def behave(connection: socket.socket, _ended: threading.Event) -> None:
        seen.append(0)
        for _ in range(answers):
            if not connection.recv(65536):
                return
            seen[-1] += 1
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    return behave


def test_a_line_keeps_its_connection_and_opens_one_that_was_closed_anew() -> None:
    seen: list[int] = []
    with raw_server(keeps(3, seen)) as url, Line(endpoint(url)) as line:
        for _ in range(7):
            assert line.get("/health", PATIENCE_S).body == b"{}"
    assert seen == [3, 3, 1]


def test_a_kept_connection_holds_nobody_past_the_deadline() -> None:
    def behave(connection: socket.socket, ended: threading.Event) -> None:
        keeps(1, [])(connection, ended)
        ended.wait(60)

    with raw_server(behave) as url, Line(endpoint(url)) as line:
        line.get("/health", PATIENCE_S)
        began = time.monotonic()
        with pytest.raises(ProbeFailed) as caught:
            line.get("/health", 0.3)
    assert (caught.value.kind, time.monotonic() - began < PATIENCE_S) == ("timeout", True)


def test_long_metrics_are_asked_for_seldom_where_health_tells_enough() -> None:
    now_s = 0.0
    health = {"inflight": 1, "completion_tokens_total": 5, "prompt_tokens_total": 7}
    routes = {
        "/health": lambda _: (200, JSON, json.dumps(health).encode()),
        "/metrics": lambda _: (200, "text/plain", b"tensorfold_errors_total 3"),
    }
    with serving(routes) as api, Reader(endpoint(api.url), lambda: now_s) as reader:
        for now_s in (0.0, 1.0, 2.0, 5.0):  # noqa: B007 - read by the clock
            found = reader.read(PATIENCE_S)
            assert (found.running, found.generated_tokens_live, found.other[0].points[0].value) == (1, 5.0, 3.0)
        assert [path for path, *_ in api.asked].count("/metrics") == 2
        health.pop("inflight")
        reader.read(PATIENCE_S)
        assert api.asked[-1][0] == "/metrics"


def test_health_is_asked_for_seldom_where_metrics_tell_enough() -> None:
    now_s = 0.0
    told = b"tensorfold:requests_running 1\ntensorfold:generation_tokens_running 4\ntensorfold:prompt_tokens_total 7\n"
    routes = {"/health": lambda _: (200, JSON, b'{"live":{"waiting":2}}'), "/metrics": lambda _: (200, "text/plain", told)}
    with serving(routes) as api, Reader(endpoint(api.url), lambda: now_s) as reader:
        for now_s in (0.0, 1.0, 2.0, 5.0):  # noqa: B007 - read by the clock
            found = reader.read(PATIENCE_S)
            assert (found.running, found.waiting, found.prompt_tokens) == (1, 2, 7.0)
        assert [path for path, *_ in api.asked] == ["/health", "/metrics", "/metrics", "/metrics", "/health", "/metrics"]
        routes["/metrics"] = lambda _: (500, "text/plain", b"")
        now_s = 6.0
        assert reader.read(PATIENCE_S).waiting == 2
        assert [path for path, *_ in api.asked][-2:] == ["/metrics", "/health"]


def test_what_changes_in_health_is_read_anew_though_the_families_stay() -> None:
    said = [b'{"completion_tokens_total": %d, "inflight": 1, "prompt_tokens_total": 1}' % count for count in (5, 5, 9)]
    answers = iter(said)
    with serving({"/health": lambda _: (200, JSON, next(answers))}) as api, Reader(endpoint(api.url)) as reader:
        assert [reader.read(PATIENCE_S).generated_tokens_live for _ in said] == [5.0, 5.0, 9.0]
