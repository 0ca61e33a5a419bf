"""One typed reading out of the engine's ``/health`` and ``/metrics``, whichever of its builds answers. Pure.

Token counters of ``/metrics`` move only when a request ends. What moves while one runs is ``generation_tokens_running``
in one build and the totals of ``/health`` in the other; ``generated_tokens_live`` is the best of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supervisor.engine.promtext import Family, parse

PREFIXES = ("tensorfold:", "tensorfold_")  # the two builds' prefixes
# Families that become fields below, by bare name; every other family is kept as it is. Of those that move only a fresh figure is
# of use.
_MOVES = frozenset(
    {
        "requests_running",
        "requests_inflight",
        "requests_waiting",
        "generation_tokens_running",
        "generation_tokens_total",
        "completion_tokens_total",
        "prompt_tokens_total",
    }
)
_USED = _MOVES | {
    "cached_tokens_total",
    "mtp_drafted_total",
    "mtp_accepted_total",
    "decode_rounds_total",
    "engine_fatal",
    "requests_total",
    "kv_cache_usage_ratio",
}
# Of these a field keeps less than the family says (labels), or nobody shows the field: they are kept as they are too.
_KEPT_TOO = frozenset({"requests_total", "kv_cache_usage_ratio", "engine_fatal"})


@dataclass(frozen=True, slots=True)
class EngineReading:
    """What the engine says of itself; None is what this build, or a reading without a key, does not say.

    Totals are since the engine's start. ``generated_tokens_live`` counts while requests run where a build allows it;
    ``live`` says whether it does. ``histograms`` and ``other`` are families as they came.
    """

    running: int | None = None
    waiting: int | None = None
    prefilling: int | None = None
    prompt_tokens: float | None = None
    generated_tokens_live: float | None = None
    cached_tokens: float | None = None
    drafted_tokens: float | None = None
    accepted_tokens: float | None = None
    rounds: float | None = None
    decode_tokens_per_s: float | None = None
    prefill_tokens_per_s: float | None = None
    requests: float | None = None
    kv_cache_ratio: float | None = None
    fatal: bool | None = None
    live: bool = False
    histograms: tuple[Family, ...] = ()
    other: tuple[Family, ...] = ()

    @property
    def busy(self) -> bool | None:
        """Requests run or wait; None where nothing says so."""
        known = [count for count in (self.running, self.prefilling, self.waiting) if count is not None]
        return any(known) if known else None


def read_families(metrics: bytes) -> tuple[Family, ...]:
    """The engine's Prometheus text."""
    return parse(metrics.decode("utf-8", "replace"))


def health_tells_enough(health: bytes) -> bool:
    """Whether ``/health`` alone tells of all that moves while requests run, so that older families may stand beside it."""
    said = _health(health)
    running = _first(_figure(_mapping(said.get("streams")), "decoding"), _figure(said, "inflight"))
    return None not in (running, _figure(said, "completion_tokens_total"), _figure(said, "prompt_tokens_total"))


def families_tell_enough(families: Sequence[Family]) -> bool:
    """The same of ``/metrics``. What ``/health`` says of totals must not be older than these then, so it has none of its own."""
    return _totals(families).keys() >= {"requests_running", "generation_tokens_running", "prompt_tokens_total"}


def read_engine(health: bytes | None, families: Sequence[Family] = (), *, old: bool = False) -> EngineReading:
    """Merge both answers: None and () are those that could not be had. Junk in either is as if it were not there.

    ``old`` families were read some seconds before: what moves is then taken from ``/health`` alone.
    """
    said = _health(health)
    totals = {name: value for name, value in _totals(families).items() if not old or name not in _MOVES}
    live = _mapping(said.get("live"))
    streams = _mapping(said.get("streams"))
    drafted = _first(_figure(said, "drafted_total"), totals.get("mtp_drafted_total"))
    accepted = _first(_figure(said, "accepted_total"), totals.get("mtp_accepted_total"))
    ended = _first(totals.get("generation_tokens_total"), totals.get("completion_tokens_total"))
    generated_live = _live(said, totals, ended)
    return EngineReading(
        running=_int(
            _first(
                totals.get("requests_running"),
                _figure(streams, "decoding"),
                _figure(said, "inflight"),
                totals.get("requests_inflight"),
            )
        ),
        waiting=_int(_first(totals.get("requests_waiting"), _figure(live, "waiting"))),
        prefilling=_int(_figure(streams, "prefilling")),
        prompt_tokens=_first(_figure(said, "prompt_tokens_total"), totals.get("prompt_tokens_total")),
        generated_tokens_live=_first(generated_live, ended),
        cached_tokens=totals.get("cached_tokens_total"),
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        rounds=_first(_figure(said, "rounds_total"), totals.get("decode_rounds_total")),
        decode_tokens_per_s=_figure(live, "decode_tokens_per_second"),
        prefill_tokens_per_s=_figure(live, "prefill_tokens_per_second"),
        requests=_first(_figure(said, "requests"), totals.get("requests_total")),
        kv_cache_ratio=totals.get("kv_cache_usage_ratio"),
        fatal=_fatal(said, totals),
        live=generated_live is not None,
        histograms=tuple(family for family in families if family.type == "histogram"),
        other=tuple(family for family in families if family.type != "histogram" and _bare(family.name) not in _USED - _KEPT_TOO),
    )


def _live(said: Mapping[str, Any], totals: Mapping[str, float], ended: float | None) -> float | None:
    """Generated tokens counted while requests run, or None where this build counts them at the end only."""
    running = totals.get("generation_tokens_running")
    if running is not None and ended is not None:
        return ended + running
    return _figure(said, "completion_tokens_total")


def _totals(families: Sequence[Family]) -> dict[str, float]:
    """Each used family's value by bare name: sums over labels, but the largest of a ratio's pools."""
    found: dict[str, float] = {}
    for family in families:
        name = _bare(family.name)
        values = [point.value for point in family.points if math.isfinite(point.value)]
        if name in _USED and values:
            found[name] = max(values) if name.endswith("_ratio") else sum(values)
    return found


def _bare(name: str) -> str:
    return next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), "")


def _health(raw: bytes | None) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(raw)) if raw is not None else {}
    except ValueError:
        return {}


def _fatal(said: Mapping[str, Any], totals: Mapping[str, float]) -> bool | None:
    """``fatal`` is a flag or the fault's text; empty, null and 0 mean none."""
    if "fatal" in said:
        return bool(said["fatal"])
    return bool(totals["engine_fatal"]) if "engine_fatal" in totals else None


def _mapping(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, dict) else {}


def _figure(raw: Mapping[str, Any], name: str) -> float | None:
    value = raw.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)
