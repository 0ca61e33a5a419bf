"""What an answer of the API is worth: whole or streamed, one class each, and the smoke test's verdict on it. Pure.

Status 200 proves nothing: a stream that began with 200 can carry a refusal, and a collapsed model answers with one
character repeated. A too long prompt is the client's fault and says that the engine works.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

TOO_LONG = "context_length_exceeded"
# A text from this length on that repeats a unit of at most four characters is no answer to a question in words.
COLLAPSED_CHARACTERS = 16
HEALTHY = frozenset({"ok", "thinking_used_the_budget", "context_too_long", "bad_request", "unauthorised"})


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one reply; None where it does not say."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. ``kind`` is ok, garbage, empty, thinking_used_the_budget, context_too_long, bad_request, unauthorised or
    engine_error; ``why`` says what was seen. ``token_sha`` is the engine's own digest of the reply's tokens, ``prefill_s`` the
    seconds it says the prompt took, ``accepted_ratio`` the part of drafted tokens that it took; None where it does not say.
    """

    kind: str
    why: str = ""
    text: str = ""
    reasoning: str = ""
    finish_reason: str = ""
    tool_calls: tuple[tuple[str, str], ...] = ()  # name and arguments as JSON text
    usage: Usage = Usage()
    token_sha: str = ""
    model: str = ""
    prefill_s: float | None = None
    accepted_ratio: float | None = None

    @property
    def healthy(self) -> bool:
        """The engine did its part, whoever is at fault for the outcome."""
        return self.kind in HEALTHY

    @property
    def alive(self) -> bool:
        """Tokens were computed, and not one only again and again. Few tokens may hold no text at all."""
        return self.healthy or self.kind == "empty"


@dataclass(frozen=True, slots=True)
class SmokeVerdict:
    """``passed`` is None where the question has to be asked again, then with thinking off and more tokens."""

    passed: bool | None
    why: str


def read_reply(status: int, body: bytes, content_type: str = "application/json") -> Reply:
    """Classify one answer of ``/v1/chat/completions``."""
    if status == 200 and content_type.split(";", maxsplit=1)[0].strip() == "text/event-stream":
        return _streamed(body)
    try:
        raw = json.loads(body)
    except ValueError:
        raw = None
    if not isinstance(raw, dict):
        return _refusal(status, {"message": f"status {status} with a body that is no JSON object"})
    if status != 200 or "error" in raw:
        return _refusal(status, raw.get("error"))
    choice = _first(raw.get("choices"))
    message = _mapping(choice.get("message"))
    return _judged(message, str(choice.get("finish_reason") or ""), raw, _tool_calls(message.get("tool_calls")))


def smoke_verdict(reply: Reply, word: str, *, last: bool) -> SmokeVerdict:
    """Whether an answer to the smoke question passes: it must hold the expected word. ``last``: there is no further try."""
    if reply.kind == "ok" and holds(reply.text, word):
        return SmokeVerdict(True, f"the answer holds {word}")
    shown = " ".join(reply.text.split())[:60]
    why = reply.why or f'the answer lacks {word}: "{shown}"'
    again = reply.kind in {"ok", "empty", "thinking_used_the_budget"}
    return SmokeVerdict(None if again and not last else False, why)


def holds(text: str, word: str) -> bool:
    """Whether ``word`` stands in ``text`` by itself, not inside another word or number."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None


def collapsed(text: str) -> str:
    """Why a text is garbage, or "" where it is not: a unit of one to four characters repeated, or undecodable bytes."""
    bare = re.sub(r"\s+", "", text)
    if len(bare) < COLLAPSED_CHARACTERS:
        return ""
    if len(set(bare)) == 1:
        return "one character repeated"
    if any(bare == (bare[:unit] * (len(bare) // unit + 1))[: len(bare)] for unit in range(2, 5)):
        return "a few characters repeated"
    return "bytes that are no text" if bare.count("\ufffd") * 2 > len(bare) else ""


def events(body: bytes) -> Iterator[str]:
    """The data of each server-sent event, in order."""
    for block in re.split(r"\r?\n\r?\n", body.decode("utf-8", "replace")):
        data = [line[5:].removeprefix(" ") for line in block.splitlines() if line.startswith("data:")]
        if data:
            yield "\n".join(data)


def carries_tokens(data: str) -> bool:
    """Whether an event's data holds something of the reply itself: text, reasoning or part of a tool call; the role is none."""
    delta = _mapping(_first(_chunk(data).get("choices")).get("delta"))
    return any(delta.get(name) for name in ("content", "reasoning_content", "tool_calls"))


def _streamed(body: bytes) -> Reply:
    content: list[str] = []
    reasoning: list[str] = []
    calls: dict[int, list[str]] = {}
    tail: dict[str, Any] = {}
    finish, done = "", False
    for data in events(body):
        if data.strip() == "[DONE]":
            done = True
            break
        chunk = _chunk(data)
        if "error" in chunk:
            return _refusal(200, chunk["error"])
        choice = _first(chunk.get("choices"))
        delta = _mapping(choice.get("delta"))
        content.append(str(delta.get("content") or ""))
        reasoning.append(str(delta.get("reasoning_content") or ""))
        _collect(calls, delta.get("tool_calls"))
        finish = str(choice.get("finish_reason") or finish)
        tail |= {key: value for key, value in chunk.items() if value is not None}
    if not done:
        return Reply("engine_error", "the stream ended without [DONE]", "".join(content), "".join(reasoning), finish)
    message = {"content": "".join(content), "reasoning_content": "".join(reasoning)}
    return _judged(message, finish, tail, tuple((name, arguments) for name, arguments in calls.values()))


def _chunk(data: str) -> dict[str, Any]:
    try:
        raw = json.loads(data)
    except ValueError:
        raw = None
    return raw if isinstance(raw, dict) else {"error": {"message": "an event that is no JSON object"}}


def _judged(message: Mapping[str, Any], finish: str, raw: Mapping[str, Any], calls: tuple[tuple[str, str], ...]) -> Reply:
    text, reasoning = str(message.get("content") or ""), str(message.get("reasoning_content") or "")
    usage = _usage(_mapping(raw.get("usage")))
    kind, why = _kind(text, reasoning, finish, usage, bool(calls))
    own, drafts = _mapping(raw.get("tensorfold")), _mapping(raw.get("speculative"))
    sha, model = str(own.get("token_sha") or ""), str(raw.get("model") or "")
    accepted = _figure(drafts.get("acceptance_rate")) if drafts.get("drafted") else None
    return Reply(kind, why, text, reasoning, finish, calls, usage, sha, model, _figure(own.get("prefill_seconds")), accepted)


def _kind(text: str, reasoning: str, finish: str, usage: Usage, called: bool) -> tuple[str, str]:
    why = collapsed(text) or ("" if text.strip() else collapsed(reasoning))
    if why:
        return "garbage", why
    if text.strip() or called:
        return "ok", ""
    thought = bool(reasoning.strip()) or bool(usage.reasoning)
    if thought and finish == "length":
        return "thinking_used_the_budget", "the whole budget went into thinking: ask again with thinking off or more tokens"
    return "empty", "the answer is empty"


def _refusal(status: int, error: object) -> Reply:
    said = _mapping(error)
    message = str(said.get("message") or error or f"status {status}")
    if said.get("code") == TOO_LONG:
        return Reply("context_too_long", message)
    if status in {401, 403}:
        return Reply("unauthorised", message)
    return Reply("bad_request" if 400 <= status < 500 else "engine_error", message)


def _usage(raw: Mapping[str, Any]) -> Usage:
    prompt, completion = _mapping(raw.get("prompt_tokens_details")), _mapping(raw.get("completion_tokens_details"))
    return Usage(
        _count(raw.get("prompt_tokens")),
        _count(raw.get("completion_tokens")),
        _count(prompt.get("cached_tokens")),
        _count(completion.get("reasoning_tokens")),
    )


def _tool_calls(raw: object) -> tuple[tuple[str, str], ...]:
    calls: dict[int, list[str]] = {}
    _collect(calls, raw)
    return tuple((name, arguments) for name, arguments in calls.values())


def _collect(calls: dict[int, list[str]], raw: object) -> None:
    """Add tool calls, whole or in pieces: a piece names its call by index, and its arguments are a further part."""
    for at, call in enumerate(raw if isinstance(raw, list) else []):
        function = _mapping(_mapping(call).get("function"))
        index = _count(_mapping(call).get("index"))
        held = calls.setdefault(at if index is None else index, ["", ""])
        held[0] += str(function.get("name") or "")
        held[1] += str(function.get("arguments") or "")


def _first(raw: object) -> Mapping[str, Any]:
    return _mapping(raw[0]) if isinstance(raw, list) and raw else {}


def _mapping(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, dict) else {}


def _count(raw: object) -> int | None:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) else None


def _figure(raw: object) -> float | None:
    return float(raw) if isinstance(raw, int | float) and not isinstance(raw, bool) else None
