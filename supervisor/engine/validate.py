"""Checks of a running endpoint: text, thinking on and off, streaming, tool calls, an image, a long prompt and a too long one.

Each check is a request and a pure judgement of its reply; :func:`validate` runs them in order against any endpoint that
speaks the OpenAI API. A check that the endpoint turns down is a no: leave out what is not wanted by name.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from build.errors import CheckFailed, UsageError
from supervisor.engine.line import Answer, Endpoint, ProbeFailed
from supervisor.engine.probes import MORE_TOKENS, SMOKE_TOKENS, SmokeResult, chat, get, get_models, question
from supervisor.engine.replies import Reply, holds

QUESTION = ("What is 6 times 7? Answer with the number alone.", "42")
NAMES = (
    "text", "stream", "thinking-on", "thinking-off", "tools", "tools-stream", "tools-result", "image", "long-prompt", "too-long",
    "too-long-stream",
)  # fmt: skip
LONG_PROMPT_TOKENS = 8192
FILLER = "The two nodes keep one model between them and pass every layer's sums over the link. "
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
Ask = Callable[[Mapping[str, Any]], tuple[Reply, Answer]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a reply shows: ``ok`` and one line of evidence."""

    ok: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, its request, and the judgement of the reply."""

    name: str
    body: Mapping[str, Any]
    judge: Callable[[Reply], Verdict]


@dataclass(frozen=True, slots=True)
class Result:
    """How one check went."""

    name: str
    ok: bool
    evidence: str
    took_s: float


def checks(
    model: str, asked: tuple[str, str] = QUESTION, *, long_tokens: int = LONG_PROMPT_TOKENS, window: int = 1 << 20
) -> tuple[Check, ...]:
    """Every check for a model. ``long_tokens`` is about how long the long prompt is; ``window`` is the context served."""
    text, word = asked
    long_tokens = min(long_tokens, window // 8)  # where a character is a token, the prompt still fits
    too_long = _long_request(model, text, window * 2)
    plain = question(model, text, SMOKE_TOKENS)
    return (
        Check("text", plain, lambda reply: _answers(reply, word)),
        Check("stream", {**plain, **STREAM}, lambda reply: _streams(reply, word)),
        Check("thinking-on", question(model, text, MORE_TOKENS, thinking=True), lambda reply: _thinks(reply, word)),
        Check("thinking-off", question(model, text, MORE_TOKENS, thinking=False), lambda reply: _does_not_think(reply, word)),
        Check("tools", _tool_request(model), _calls_tool),
        Check("tools-stream", {**_tool_request(model), **STREAM}, _calls_tool),
        Check("tools-result", _tool_result(model), _uses_result),
        Check("image", _image_request(model), lambda reply: _answers(reply, "red")),
        Check("long-prompt", _long_request(model, text, long_tokens), lambda reply: _reads_long(reply, word, long_tokens)),
        Check("too-long", too_long, _refuses_too_long),
        Check("too-long-stream", {**too_long, "stream": True}, _refuses_too_long),
    )


def validate(
    where: Endpoint,
    model: str = "",
    asked: tuple[str, str] = QUESTION,
    *,
    skip: Iterable[str] = (),
    long_tokens: int = LONG_PROMPT_TOKENS,
    deadline_s: float = 600.0,
) -> tuple[Result, ...]:
    """Run the checks. ``model`` "" takes the only model served. ``UsageError`` for an unknown name in ``skip``."""
    left_out = frozenset(skip)
    unknown = sorted(left_out - set(NAMES))
    if unknown:
        raise UsageError(f"there is no check {unknown[0]}: the checks are " + ", ".join(NAMES))
    served = get_models(where, deadline_s)
    model = model or (served[0] if served else "")
    listed = Result("models", model in served, f"served: {', '.join(served) or 'nothing'}; asked for: {model or 'any'}", 0.0)
    wanted = checks(model, asked, long_tokens=long_tokens, window=_window(where, model, deadline_s))
    chosen = [check for check in wanted if check.name not in left_out]
    return (listed, *run(chosen, lambda body: chat(where, body, deadline_s)))


def run(chosen: Sequence[Check], ask: Ask) -> tuple[Result, ...]:
    """Ask and judge each check; no answer is a no with its reason."""
    results: list[Result] = []
    for check in chosen:
        try:
            reply, answer = ask(check.body)
        except ProbeFailed as failed:
            results.append(Result(check.name, False, str(failed), 0.0))
            continue
        verdict = check.judge(reply)
        results.append(Result(check.name, verdict.ok, verdict.evidence, answer.took_s))
    return tuple(results)


def as_text(results: Sequence[Result]) -> str:
    """One line a check, and the sum."""
    width = max((len(result.name) for result in results), default=0)
    rows = [f"{'yes' if r.ok else 'NO ':3}  {r.name:{width}}  {r.took_s:6.2f} s  {r.evidence}" for r in results]
    bad = [r.name for r in results if not r.ok]
    return "\n".join(
        [*rows, f"{len(results) - len(bad)} of {len(results)} checks hold" + (f"; not: {', '.join(bad)}" if bad else "")]
    )


def as_json(results: Sequence[Result]) -> str:
    """The same for programs."""
    return json.dumps({"ok": all(r.ok for r in results), "checks": [asdict(r) for r in results]}, indent=1)


def smoke_text(result: SmokeResult) -> str:
    """One line on a smoke test."""
    word = "yes" if result.passed else "NO"
    return f"{word}  smoke  {result.took_s:.2f} s  {result.verdict.why} (answers asked for: {result.asks})"


def require(results: Sequence[Result]) -> None:
    """``CheckFailed``, naming them, where a check said no."""
    bad = [r.name for r in results if not r.ok]
    if bad:
        raise CheckFailed(f"{len(bad)} of {len(results)} checks failed: {', '.join(bad)}")


def _answers(reply: Reply, word: str) -> Verdict:
    if reply.kind != "ok":
        return Verdict(False, f"{reply.kind}: {reply.why}")
    return Verdict(holds(reply.text, word), f'"{_shown(reply.text)}"' + ("" if holds(reply.text, word) else f" lacks {word}"))


def _streams(reply: Reply, word: str) -> Verdict:
    verdict = _answers(reply, word)
    if verdict.ok and reply.usage.completion is None:
        return Verdict(False, "the stream carries no usage")
    return verdict


def _thinks(reply: Reply, word: str) -> Verdict:
    verdict = _answers(reply, word)
    if verdict.ok and not reply.reasoning.strip():
        return Verdict(False, "thinking was on, and the reply has no reasoning_content")
    return verdict


def _does_not_think(reply: Reply, word: str) -> Verdict:
    verdict = _answers(reply, word)
    if reply.reasoning.strip():
        return Verdict(False, f'thinking was off, and the reply thought: "{_shown(reply.reasoning)}"')
    return verdict


def _calls_tool(reply: Reply) -> Verdict:
    if not reply.tool_calls:
        return Verdict(False, f"no tool was called: {reply.kind} {reply.why or _shown(reply.text)}")
    name, arguments = reply.tool_calls[0]
    try:
        parsed = json.loads(arguments)
    except ValueError:
        parsed = None
    ok = name == "get_weather" and isinstance(parsed, dict) and "paris" in str(parsed.get("city", "")).lower()
    return Verdict(ok, f"{name}({_shown(arguments)})")


def _uses_result(reply: Reply) -> Verdict:
    """A tool's result was taken: there is text, and the tool is not called once more."""
    if reply.kind != "ok" or reply.tool_calls:
        return Verdict(False, f"{reply.kind}: {reply.why}" if reply.why else "the tool was called once more")
    return Verdict(True, f'"{_shown(reply.text)}"')


def _reads_long(reply: Reply, word: str, long_tokens: int) -> Verdict:
    verdict = _answers(reply, word)
    prompt = reply.usage.prompt
    if verdict.ok and (prompt is None or prompt < long_tokens // 4):
        return Verdict(False, f"the prompt counted {prompt} tokens, which is not the long one")
    return Verdict(verdict.ok, f"{prompt} tokens: {verdict.evidence}")


def _refuses_too_long(reply: Reply) -> Verdict:
    return Verdict(reply.kind == "context_too_long", f"{reply.kind}: {_shown(reply.why or reply.text)}")


def _window(where: Endpoint, model: str, deadline_s: float) -> int:
    """The context that the endpoint says it serves; the model's whole window where it does not say."""
    try:
        rows = json.loads(get(where, "/v1/models", deadline_s).body)["data"]
        return next(int(row["context_length"]) for row in rows if row["id"] == model)
    except (ValueError, KeyError, TypeError, StopIteration):
        return 1 << 20


def _tool_request(model: str) -> dict[str, Any]:
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    function = {"name": "get_weather", "description": "The weather in a city now", "parameters": city}
    body = question(model, "Use the tool: what is the weather in Paris now?", MORE_TOKENS)
    return {**body, "tools": [{"type": "function", "function": function}], "tool_choice": "auto"}


def _tool_result(model: str) -> dict[str, Any]:
    """The same conversation, once the tool has answered."""
    asked = _tool_request(model)
    function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    called = {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": '{"degrees": 18, "sky": "clear"}'}
    return {**asked, "messages": [*asked["messages"], called, result]}


def _image_request(model: str) -> dict[str, Any]:
    url = "data:image/png;base64," + base64.b64encode(_png(64, (255, 0, 0))).decode()
    parts = [
        {"type": "text", "text": "Which colour fills this image? Answer with one word."},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    return {**question(model, "", SMOKE_TOKENS), "messages": [{"role": "user", "content": parts}]}


def _long_request(model: str, text: str, tokens: int) -> dict[str, Any]:
    """A prompt of filler with the question at its end. A character is at most a token, and four are about one."""
    characters = tokens * 4
    filler = (FILLER * (characters // len(FILLER) + 1))[:characters]
    return question(model, f"{filler}\n\n{text}", SMOKE_TOKENS)


def _png(side: int, colour: tuple[int, int, int]) -> bytes:
    """A square of one colour (PNG, RFC 2083: 8 bits, true colour, no filter)."""
    rows = (b"\x00" + bytes(colour) * side) * side

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def _shown(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else flat[:59] + "…"
