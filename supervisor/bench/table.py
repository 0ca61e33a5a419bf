"""A bench's report as a table for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from build.bundle import OTHER_VARIANT

HEADS = ("tokens/s", "median", "lowest", "highest", "TTFT p50", "p99", "TPOT p50", "ITL p50", "p99")
K = 1024
Report = Mapping[str, Any]


def as_text(report: Report) -> str:
    """Everything a person wants, in lines of moderate length."""
    published = report["published"]
    rows = [[*HEADS, *(f"[{number}]" for number in range(1, len(published) + 1))]]
    rows += [_decode_row(one, published) for one in report["decode"]]
    rows += [_prefill_row(one, published) for one in report["prefill"]]
    blocks = [
        _head(report),
        _aligned(rows) if len(rows) > 1 else ["nothing was measured"],
        list(_notes(report)),
        _sources(published),
    ]
    return "\n".join("\n".join(block) for block in blocks if block)


def _head(report: Report) -> list[str]:
    gang = report["gang"]
    of = f"; target {gang['target']}, generation {gang['generation']}, {gang['bundle']}" if gang else ""
    runs = f"{report['runs']} run{'s' * (report['runs'] > 1)}"
    return [
        f"{report['model']} at {report['url']}, context {report['context_tokens'] or 'unknown'}{of}",
        f"{runs} in {report['took_s']:.0f} s, replies up to {report['reply_tokens']} tokens, greedy, thinking off",
        "times in ms, at the client: TTFT to the first token, TPOT per token after it, ITL between events with tokens",
    ]


def _decode_row(one: Report, published: Sequence[Report]) -> list[str]:
    name = f"{one['prompts']}, {one['streams']} stream{'s' * (one['streams'] > 1)}"
    return [
        name,
        *_ends(one["tokens_per_s"]),
        *(_ms(one["ttft_s"][p]) for p in ("p50", "p99")),
        _ms(one["tpot_s"]["p50"]),
        *(_ms(one["itl_s"][p]) for p in ("p50", "p99")),
        *(_theirs(source["decode"], prompts=one["prompts"], streams=one["streams"]) for source in published),
    ]


def _prefill_row(one: Report, published: Sequence[Report]) -> list[str]:
    return [
        f"prefill {_k(one['prefill_tokens'])}",
        *_ends(one["tokens_per_s"]),
        *(_ms(one["ttft_s"][p]) for p in ("p50", "p99")),
        *("",) * 3,
        *(_theirs(source["prefill"], prefill_tokens=one["prefill_tokens"]) for source in published),
    ]


def _notes(report: Report) -> Iterable[str]:
    if report["requests_of_others"]:
        yield f"warning: {report['requests_of_others']} requests of others ran at the start: the figures are of both"
    yield from _early(report)
    cached = max((one["cached_tokens"] for one in report["prefill"]), default=0)
    if cached:
        yield f"up to {cached} tokens of a long prompt were in the engine's cache; they do not count"
    for why, steps in _reasons(report["left_out"]).items():
        yield f"left out: {', '.join(steps)}: {why}"
    yield from same_tokens_text(report["same_tokens"])
    if report["published_validates"] is False:
        yield OTHER_VARIANT
    if report["ended"] != "complete":
        yield f"ended early: {report['why']}; what stands above was measured before"


def _early(report: Report) -> Iterable[str]:
    early = sum(one["ended_early"] for one in report["decode"])
    replies = sum(one["replies"] for one in report["decode"])
    if early:
        tokens = sum(one["reply_tokens"] for one in report["decode"]) / replies
        yield f"{early} of {replies} replies ended by themselves before their bound: {tokens:.0f} tokens on average"


def same_tokens_text(found: Report) -> Iterable[str]:
    """Whether replies were the same tokens alone and together, and as in an earlier bench."""
    what = "token_sha" if found["by"] == "token_sha" else "their text: the endpoint says no token_sha"
    pairs = [one for one in found["prompts"] if one["together"] or one["later"]]
    times = f"alone and {found['streams']} at once" if found["streams"] > 1 else "at first"
    times += ", and again at the end" if any(one["later"] for one in pairs) else ""
    if found["same"]:
        yield f"same tokens: {len(pairs)} prompts {times} (by {what})"
    elif found["same"] is False:
        yield f"NOT the same tokens {times}: {', '.join(found['different'])} (by {what})"
    if found["same_as_before"]:
        yield "same tokens as in the bench that was recorded before"
    elif found["same_as_before"] is False:
        yield f"NOT the same tokens as in the bench that was recorded before: {', '.join(found['different_from_before'])}"


def _reasons(left_out: Sequence[Report]) -> dict[str, list[str]]:
    """Steps by why they were left out, in order."""
    found: dict[str, list[str]] = {}
    for one in left_out:
        found.setdefault(one["why"], []).append(
            f"prefill {_k(one['prefill_tokens'])}" if "prefill_tokens" in one else one["step"]
        )
    return found


def _sources(published: Sequence[Report]) -> list[str]:
    if not published:
        return ["published figures: none for this target"]
    lines = [f"[{n}] {one['source']}: {one['engine']}, {one['checkpoint']}" for n, one in enumerate(published, 1)]
    return ["published figures, of their own prompts:", *lines]


def _theirs(figures: Sequence[Report], **wanted: object) -> str:
    for one in figures:
        if all(one[name] == value for name, value in wanted.items()):
            low, high = one["lowest_tokens_per_s"], one["highest_tokens_per_s"]
            return _rate(low) if low == high else f"{_rate(low)}-{_rate(high)}"
    return "-"


def _ends(found: Report | None) -> list[str]:
    return ["-"] * 3 if found is None else [_rate(found[name]) for name in ("median", "lowest", "highest")]


def _rate(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.4g}" if seconds < 1 else f"{seconds * 1000:.0f}"


def _k(tokens: int) -> str:
    return f"{tokens // K}K" if tokens % K == 0 else str(tokens)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
