"""What a bench found, as the mapping that ``--json`` prints (report.schema.json tells its keys). Pure.

Keys carry their units and are only ever added; ``schema`` counts up when one changes its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from build.locks.published import Published
from supervisor.bench.figures import Spread, decode_rate, one_by_one_rate, percentile, prefill_rate, spread
from supervisor.bench.plan import Decode, Plan, Prefill, Step
from supervisor.bench.readings import Measured

SCHEMA = 1
PERCENTS = (50, 90, 99)
CLOCK = "the asking process's monotonic clock, from just before the request is sent over an open connection"
FIRST = "the first event with text, reasoning or a tool call; an event can carry several tokens"
TOKENS = "the endpoint's own usage"


@dataclass(frozen=True, slots=True)
class Subject:
    """What was measured. ``gang`` is what the supervisor says of its own gang: target, generation, bundle, variant, launch_id;
    empty for another endpoint. ``context_tokens`` and ``others``, requests of others that were seen at the start, are None
    where nothing says so.
    """

    url: str
    model: str
    context_tokens: int | None
    gang: Mapping[str, Any]
    others: int | None = None
    began_unix_s: float = 0.0


def report(
    subject: Subject, plan: Plan, measured: Measured, published: Sequence[Published], before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The whole of it. ``before`` is the kept report of an earlier bench, whose tokens these are compared with."""
    options = plan.options
    return {
        "schema": SCHEMA,
        "ended": measured.ended,
        "why": measured.why,
        "began_unix_s": round(subject.began_unix_s, 1),
        "took_s": round(measured.took_s, 2),
        "url": subject.url,
        "model": subject.model,
        "context_tokens": subject.context_tokens,
        "gang": dict(subject.gang),
        "requests_of_others": subject.others,
        "runs": options.runs,
        "streams": options.streams,
        "reply_tokens": options.reply_tokens,
        "readings": {"clock": CLOCK, "first_token": FIRST, "tokens": TOKENS},
        "decode": [_decode(step, measured) for step in _measured(plan, measured) if isinstance(step, Decode)],
        "prefill": [_prefill(step, measured) for step in _measured(plan, measured) if isinstance(step, Prefill)],
        "left_out": [{"step": str(one.step), **_step(one.step), "why": one.why} for one in measured.left_out],
        "same_tokens": same_tokens(measured, options.streams, options.reply_tokens, before),
        "published": [_published(one) for one in published],
        "published_validates": subject.gang["variant"] != "ablit" if subject.gang else None,
    }


def same_tokens(measured: Measured, streams: int, reply_tokens: int, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Replies alone and together, and against an earlier bench's where the same was asked of the same bundle."""
    earlier = _earlier(measured, reply_tokens, before)
    changed = sorted(one.name for one in measured.compared if earlier.get(one.name) and one.alone != earlier[one.name])
    return {
        "by": measured.by,
        "streams": streams,
        "reply_tokens": reply_tokens,
        "same": not measured.different if any(one.together or one.later for one in measured.compared) else None,
        "different": list(measured.different),
        "same_as_before": not changed if earlier else None,
        "different_from_before": changed,
        "prompts": [
            {"name": one.name, "alone": one.alone, "together": one.together, "later": one.later} for one in measured.compared
        ],
    }


def _earlier(measured: Measured, reply_tokens: int, before: Mapping[str, Any] | None) -> dict[str, str]:
    kept = (before or {}).get("same_tokens", {})
    if kept.get("by") != measured.by or kept.get("reply_tokens") != reply_tokens:
        return {}
    return {one["name"]: one["alone"] for one in kept.get("prompts", ())}


def _measured(plan: Plan, measured: Measured) -> Iterable[Step]:
    return (step for step in plan.steps if step in measured.readings)


def _step(step: Step) -> dict[str, Any]:
    return {"prompts": step.kind, "streams": step.streams} if isinstance(step, Decode) else {"prefill_tokens": step.tokens}


def _decode(step: Decode, measured: Measured) -> dict[str, Any]:
    runs = measured.readings[step]
    replies = [one for run in runs for one in run]
    rate = decode_rate if step.streams > 1 else one_by_one_rate
    chunks = sum(len(one.chunks_s) for one in replies)
    tokens = sum(one.reply_tokens for one in replies)
    accepted = [one.accepted_ratio for one in replies if one.accepted_ratio is not None]
    return {
        **_step(step),
        "tokens_per_s": _spread(spread(rate(run) for run in runs)),
        "ttft_s": _percentiles(one.ttft_s for one in replies),
        "tpot_s": _percentiles(one.tpot_s for one in replies if one.tpot_s is not None),
        "itl_s": _percentiles(gap for one in replies for gap in one.gaps_s),
        "replies": len(replies),
        "reply_tokens": tokens,
        "ended_early": sum(one.finish == "stop" for one in replies),
        "tokens_per_event": round(tokens / chunks, 2) if chunks else None,
        "accepted_ratio": round(sum(accepted) / len(accepted), 4) if accepted else None,
    }


def _prefill(step: Prefill, measured: Measured) -> dict[str, Any]:
    replies = [one for run in measured.readings[step] for one in run]
    own = spread((one.prompt_tokens - one.cached_tokens) / one.prefill_s for one in replies if one.prefill_s)
    return {
        **_step(step),
        "prompt_tokens": round(sum(one.prompt_tokens for one in replies) / len(replies)),
        "cached_tokens": max(one.cached_tokens for one in replies),
        "tokens_per_s": _spread(spread(prefill_rate(one) for one in replies)),
        "engine_tokens_per_s": _spread(own),
        "ttft_s": _percentiles(one.ttft_s for one in replies),
        "replies": len(replies),
    }


def _spread(found: Spread | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "median": _rounded(found.median),
        "lowest": _rounded(found.lowest),
        "highest": _rounded(found.highest),
        "count": found.count,
    }


def _percentiles(readings: Iterable[float]) -> dict[str, Any]:
    found: Sequence[float] = list(readings)
    shown = {f"p{percent}": percentile(found, percent) for percent in PERCENTS}
    return {**{name: None if value is None else round(value, 6) for name, value in shown.items()}, "count": len(found)}


def _rounded(value: float) -> float:
    return round(value, 2)


def _published(one: Published) -> dict[str, Any]:
    return {
        "source": one.source,
        "engine": one.engine,
        "checkpoint": one.checkpoint,
        "decode": [
            {"prompts": kind, "streams": streams, "lowest_tokens_per_s": low, "highest_tokens_per_s": high}
            for (kind, streams), (low, high) in one.decode.items()
        ],
        "prefill": [
            {"prefill_tokens": tokens, "lowest_tokens_per_s": low, "highest_tokens_per_s": high}
            for tokens, (low, high) in one.prefill.items()
        ],
    }
