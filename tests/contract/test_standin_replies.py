"""What the stand-in's API answers: one shared gang of two ranks, asked as clients ask."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import struct
import subprocess
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.testing.standin import NAME, Gang

QUESTION = "What is 6 times 7?"
PROMPTS = [QUESTION, "Tell me about memory on a small machine.", "Write an essay about the gang rule.", "Who are you?"]


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gang]:
    with Gang(tmp_path_factory.mktemp("gang")) as running:
        yield running


def png(width: int, height: int, colour: tuple[int, int, int]) -> str:
    """A PNG of one colour as a data URL."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


def about_image(url: str) -> list[dict[str, object]]:
    parts = [{"type": "text", "text": "What colour is this image?"}, {"type": "image_url", "image_url": {"url": url}}]
    return [{"role": "user", "content": parts}]


TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}


def test_a_greedy_answer_is_right_with_thinking_off_and_on(gang: Gang) -> None:
    off = gang.chat(QUESTION).json()
    assert off["choices"][0]["message"] == {"role": "assistant", "content": "42"}
    assert off["choices"][0]["finish_reason"] == "stop"
    on = gang.chat(QUESTION, reasoning_effort="medium").json()
    assert on["choices"][0]["message"]["content"] == "42"
    assert on["choices"][0]["message"]["reasoning_content"]
    assert on["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "high"}, True),
        ({"reasoning_effort": "max"}, True),
        ({"reasoning_effort": None}, True),
        ({"reasoning_effort": None, "chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"reasoning_effort": None, "thinking_budget": 0}, False),
    ],
)
def test_thinking_follows_the_request(fields: dict[str, object], thinks: bool, gang: Gang) -> None:
    message = gang.chat(QUESTION, **fields).json()["choices"][0]["message"]
    assert ("reasoning_content" in message) is thinks


def test_a_thinking_budget_cuts_the_thought_short(gang: Gang) -> None:
    usage = gang.chat("Tell me about leases.", reasoning_effort=None, thinking_budget=5).json()["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 6  # five and the one that closes the thought


def test_a_thought_that_takes_all_tokens_leaves_no_answer(gang: Gang) -> None:
    choice = gang.chat(QUESTION, reasoning_effort="high", max_tokens=5).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "length")


@pytest.mark.parametrize("prompt", PROMPTS)
def test_replies_read_as_text(prompt: str, gang: Gang) -> None:
    for fields in ({}, {"temperature": 1, "seed": 5}, {"ignore_eos": True, "max_tokens": 1500}):
        content = gang.chat(prompt, **fields).json()["choices"][0]["message"]["content"]
        assert content.strip()
        assert not re.search(r"([^0-9 ])\1{5}", content)


def test_usage_and_figures_add_up(gang: Gang) -> None:
    answer = gang.chat("Who are you?").json()
    usage, speculative, engine = answer["usage"], answer["speculative"], answer["tensorfold"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] == len(answer["choices"][0]["message"]["content"].encode())
    assert 0 < speculative["accepted"] <= speculative["drafted"]
    assert speculative["rounds"] < usage["completion_tokens"]
    assert re.fullmatch("[0-9a-f]{16}", engine["token_sha"])
    assert f"sha={engine['token_sha']}" in gang.ranks[0].text()


def test_a_repeated_prompt_is_remembered_and_answered_alike(gang: Gang) -> None:
    text = "Please remember this sentence of more than one page. " * 3
    first, again = (gang.chat(text).json() for _ in range(2))
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 100
    assert first["tensorfold"]["token_sha"] == again["tensorfold"]["token_sha"]


def test_tokens_are_the_same_alone_and_beside_others(gang: Gang) -> None:
    cases: list[tuple[str, dict[str, object]]] = [(prompt, {}) for prompt in PROMPTS]
    cases += [(prompt, {"temperature": 2, "seed": 11, "max_tokens": 300}) for prompt in PROMPTS]
    alone = [gang.sha(prompt, **fields) for prompt, fields in cases]
    together: dict[int, str] = {}

    def ask(place: int) -> None:
        together[place] = gang.sha(cases[place][0], **cases[place][1])

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[place] for place in range(len(cases))] == alone


def test_seeds_decide_what_is_sampled(gang: Gang) -> None:
    shas = [gang.sha("Tell me about leases.", temperature=3, seed=seed, max_tokens=200) for seed in (1, 1, 2)]
    assert shas[0] == shas[1] != shas[2]


def test_a_stop_text_ends_the_reply_and_is_not_in_it(gang: Gang) -> None:
    whole = gang.chat("Who are you?").json()["choices"][0]["message"]["content"]
    stop = whole[20:26]
    cut = gang.chat("Who are you?", stop=[stop]).json()["choices"][0]
    assert cut["message"]["content"] == whole[: whole.index(stop)]
    streamed = gang.chat("Who are you?", stop=stop, stream=True).events()
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in streamed[:-1]) == whole[: whole.index(stop)]


def test_a_stream_has_a_role_then_text_then_the_reason_and_usage(gang: Gang) -> None:
    events = gang.chat(QUESTION, stream=True, reasoning_effort="low").events()
    assert events[0]["choices"][0] == {"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}
    deltas = [event["choices"][0]["delta"] for event in events[1:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == "42"
    assert "".join(delta.get("reasoning_content", "") for delta in deltas)
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-2]["usage"]["completion_tokens"] > 2
    assert events[-1] == "[DONE]"


def test_a_too_long_prompt_is_refused_in_both_forms(gang: Gang) -> None:
    plain = gang.chat("x" * 70000)
    assert (plain.status, plain.json()["error"]["code"]) == (400, "context_length_exceeded")
    streamed = gang.chat("x" * 70000, stream=True)
    assert streamed.status == 200
    assert streamed.events()[-2]["error"]["code"] == "context_length_exceeded"
    assert streamed.events()[-1] == "[DONE]"
    assert gang.chat("hi", max_tokens=70000).status == 400


BAD: list[tuple[str, str, object, int]] = [
    ("POST", "/v1/chat/completions", b"{not json", 400),
    ("POST", "/v1/chat/completions", [1], 400),
    ("POST", "/v1/chat/completions", {"model": NAME}, 400),
    ("POST", "/v1/chat/completions", {"model": NAME, "messages": []}, 400),
    ("POST", "/v1/chat/completions", {"model": NAME, "messages": [{"role": "king", "content": ""}]}, 400),
    ("POST", "/v1/chat/completions", {"model": NAME, "messages": [{"role": "user", "content": "a"}], "temperature": -1}, 400),
    ("POST", "/v1/chat/completions", {"model": NAME, "messages": [{"role": "user", "content": "a"}], "n": 2}, 400),
    (
        "POST",
        "/v1/chat/completions",
        {"model": NAME, "messages": [{"role": "user", "content": "a"}], "reasoning_effort": "x"},
        400,
    ),
    ("POST", "/v1/chat/completions", {"model": "another", "messages": []}, 404),
    ("GET", "/v1/chat/completions", None, 405),
    ("HEAD", "/health", None, 405),
    ("GET", "/nowhere", None, 404),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), BAD)
def test_bad_requests_get_their_status(method: str, path: str, body: object, status: int, gang: Gang) -> None:
    answer = gang.request(method, path, body)
    assert answer.status == status
    assert method == "HEAD" or answer.json()["error"]["message"]
    assert status != 404 or method == "POST" or answer.json()["error"]["message"].startswith("unknown path")


def test_the_openai_client_gets_chats_streams_and_errors(gang: Gang) -> None:
    import openai

    messages: Any = [{"role": "user", "content": QUESTION}]
    with openai.OpenAI(base_url=f"http://127.0.0.1:{gang.port}/v1", api_key="unused", max_retries=0) as client:
        whole = client.chat.completions.create(model=NAME, messages=messages, temperature=0)
        assert whole.choices[0].message.content == "42"
        stream = client.chat.completions.create(
            model=NAME, messages=messages, stream=True, stream_options={"include_usage": True}, temperature=0
        )
        chunks = list(stream)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "42"
        assert chunks[-1].choices == []
        assert chunks[-1].usage is not None
        with pytest.raises(openai.BadRequestError, match="context"):
            client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "x" * 70000}])
        assert [model.id for model in client.models.list()] == [NAME]
        assert client.responses.create(model=NAME, input=QUESTION, temperature=0).output_text == "42"
        kinds = [event.type for event in client.responses.create(model=NAME, input=QUESTION, temperature=0, stream=True)]
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        called = client.chat.completions.create(model=NAME, messages=messages, tools=[TOOL], tool_choice="required")  # type: ignore[call-overload]
        assert called.choices[0].message.tool_calls[0].function.name == "get_weather"


def test_a_tool_is_called_when_offered_and_asked_for(gang: Gang) -> None:
    answer = gang.chat("What is the weather in Paris for 3 days?", tools=[TOOL]).json()["choices"][0]
    call = answer["message"]["tool_calls"][0]
    assert answer["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris", "days": 3}
    for fields in ({"tools": [TOOL], "tool_choice": "none"}, {}):
        assert "tool_calls" not in gang.chat("What is the weather in Paris?", **fields).json()["choices"][0]["message"]
    assert "tool_calls" not in gang.chat(QUESTION, tools=[TOOL]).json()["choices"][0]["message"]
    wrong = gang.chat(QUESTION, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "other"}})
    assert wrong.status == 400


def test_a_tool_call_streams_its_name_and_then_its_arguments(gang: Gang) -> None:
    events = gang.chat("The weather in Oslo, please.", tools=[TOOL], stream=True, reasoning_effort="low").events()
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert calls[0]["function"]["name"] == "get_weather"
    assert calls[0]["id"]
    assert json.loads("".join(call["function"]["arguments"] for call in calls))["city"] == "Oslo"
    assert len(calls) > 2
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_tools_answer_goes_back_into_the_conversation(gang: Gang) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}
    messages = [
        {"role": "user", "content": "What is the weather in Paris?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "18 degrees"},
    ]
    answer = gang.post("/v1/chat/completions", messages=messages, tools=[TOOL], temperature=0)
    assert answer.json()["choices"][0]["finish_reason"] == "stop"


def test_an_images_size_decides_its_tokens_and_its_colour_the_answer(gang: Gang) -> None:
    def ask(url: str) -> dict[str, Any]:
        fields = {"temperature": 0, "reasoning_effort": "none"}
        return dict(gang.post("/v1/chat/completions", messages=about_image(url), **fields).json())

    small, large = ask(png(28, 28, (250, 10, 10))), ask(png(56, 84, (250, 10, 10)))
    assert large["usage"]["prompt_tokens"] - small["usage"]["prompt_tokens"] == 5
    assert small["choices"][0]["message"]["content"] == "Red."
    assert ask(png(30, 30, (10, 10, 240)))["choices"][0]["message"]["content"] == "Blue."


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/a.png",
        "data:image/png;base64,@@@@",
        "data:image/png;base64,aGVsbG8=",
        png(2, 2, (1, 1, 1))[:-24],
        png(5000, 1, (0, 0, 0)),
    ],
)
def test_an_image_that_cannot_be_taken_is_refused_as_image_input(url: str, gang: Gang) -> None:
    answer = gang.post("/v1/chat/completions", messages=about_image(url))
    assert answer.status == 400
    assert answer.json()["error"]["message"].startswith("image input: ")


def test_completions_whole_and_streamed_agree(gang: Gang) -> None:
    fields: dict[str, object] = {"prompt": "Tensor parallelism splits one ", "temperature": 0, "max_tokens": 40}
    whole = gang.post("/v1/completions", **fields).json()
    assert whole["choices"][0]["text"].startswith("large model")
    assert whole["choices"][0]["logprobs"] is None
    events = gang.post("/v1/completions", stream=True, **fields).events()
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == whole["choices"][0]["text"]
    assert events[-1] == "[DONE]"


def test_messages_whole_and_streamed_agree(gang: Gang) -> None:
    fields: dict[str, object] = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 200}
    whole = gang.post("/v1/messages", thinking={"type": "disabled"}, **fields).json()
    assert (whole["content"], whole["stop_reason"]) == ([{"type": "text", "text": "42"}], "end_turn")
    assert whole["stop_sequence"] is None
    events = gang.post("/v1/messages", stream=True, thinking={"type": "enabled", "budget_tokens": 100}, **fields).events()
    assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]
    assert events[0]["message"]["stop_reason"] is None
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == "42"
    assert "".join(delta.get("thinking", "") for delta in deltas)


def test_responses_whole_and_streamed_agree(gang: Gang) -> None:
    fields: dict[str, object] = {"input": QUESTION, "temperature": 0, "reasoning_effort": "none"}
    whole = gang.post("/v1/responses", **fields).json()
    assert (whole["status"], whole["output"][-1]["content"][0]["text"]) == ("completed", "42")
    events = gang.post("/v1/responses", stream=True, **fields).events()
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert (events[0]["type"], events[0]["response"]["status"]) == ("response.created", "in_progress")
    assert "".join(event["delta"] for event in events[1:-1]) == "42"
    assert events[-1]["response"]["usage"] == whole["usage"] | {
        "input_tokens_details": events[-1]["response"]["usage"]["input_tokens_details"]
    }


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/completions", "/v1/responses"])
def test_a_prompt_without_end_is_an_error_event_once_a_stream_has_begun(gang: Gang, path: str) -> None:
    long = "word " * 20000
    fields: dict[str, object] = {"prompt": long, "input": long, "messages": [{"role": "user", "content": long}]}
    assert gang.post(path, **fields).json()["error"]["code"] == "context_length_exceeded"
    events = gang.post(path, stream=True, **fields).events()
    assert events[-2]["error"]["code"] == "context_length_exceeded"
    assert events[-1] == "[DONE]"


def test_tokenize_and_detokenize_are_each_others_inverse(gang: Gang) -> None:
    text = "Grüße, 世界!"
    tokens = gang.post("/tokenize", prompt=text).json()
    assert tokens["count"] == len(tokens["tokens"]) == len(text.encode())
    assert gang.post("/detokenize", tokens=tokens["tokens"]).json()["prompt"] == text
    assert gang.post("/detokenize", tokens=[999]).status == 400


def test_metrics_are_well_formed_and_count_ended_requests(gang: Gang) -> None:
    gang.chat(QUESTION)
    text = gang.get("/metrics").body.decode()
    assert re.search(r'^tensorfold:requests_total\{key="default",status="stop"\} [1-9]', text, re.MULTILINE)
    assert re.search(r"^tensorfold:generation_tokens_total\{\} [1-9]", text, re.MULTILINE)
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if "should not contain ':'" not in line]
    assert complaints == []  # the colon is that build's own prefix


def test_health_and_models_say_what_runs(gang: Gang) -> None:
    health = gang.get("/health").json()
    assert (health["status"], health["model"], health["max_batch_size"]) == ("ok", NAME, 4)
    assert set(health["live"]) == {"connections", "waiting", "decode_tokens_per_second", "prefill_tokens_per_second"}
    (model,) = gang.get("/v1/models").json()["data"]
    assert (model["id"], model["owned_by"], model["context_length"]) == (NAME, "tensorfold", 65536)
