"""The engine as readings: totals and rates, its histograms under our names, every other family passed through. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite

from metrics import catalog
from metrics.readings import Distribution, Foreign, Reading
from supervisor.engine.promtext import Family
from supervisor.engine.readings import PREFIXES
from supervisor.status.tally import Tally, decode_rate, prefill_rate
from supervisor.status.view import View

# The engine's histograms by their bare names (engine contract, /metrics of the build with the prefix "tensorfold:")
HISTOGRAMS = {
    "time_to_first_token_seconds": catalog.TIME_TO_FIRST_TOKEN,
    "request_time_per_output_token_seconds": catalog.TIME_PER_OUTPUT_TOKEN,
    "request_latency_seconds": catalog.REQUEST_DURATION,
    "request_prefill_seconds": catalog.REQUEST_PREFILL,
    "request_decode_seconds": catalog.REQUEST_DECODE,
}


def throughput(view: View, tally: Tally) -> Iterator[Reading]:
    """What the engine does. Figures of a moment are left out once the launch that told them is over; totals stay."""
    engine = view.engine
    current = engine is not None and engine.launch == view.state.launch
    yield Reading(catalog.ENGINE_UP, float(engine is not None and engine.up and current))
    if engine is None or view.serving is None:
        return
    model = {"model": view.serving.served_name}
    yield Reading(catalog.ENGINE_AGE, max(0.0, view.now_s - engine.at_s))
    yield from (Reading(metric, total.value, model) for metric, total in tally.totals.items())
    yield Reading(catalog.DECODE_RATE, decode_rate(view, tally), model)
    yield Reading(catalog.PREFILL_RATE, prefill_rate(view, tally), model)
    yield from _histograms(tally, model)
    if not current:
        return
    running, waiting, cache = engine.reading.running, engine.reading.waiting, engine.reading.kv_cache_ratio
    if running is not None:
        yield Reading(catalog.REQUESTS_RUNNING, float(running + (engine.reading.prefilling or 0)), model)
    if waiting is not None:
        yield Reading(catalog.REQUESTS_WAITING, float(waiting), model)
    if cache is not None and isfinite(cache):
        yield Reading(catalog.KV_CACHE, cache, model)


def foreign(view: View, tally: Tally) -> tuple[Foreign, ...]:
    """Families of the engine that have no name of ours, as they came, but for colons, which are for recording rules."""
    found = {}
    for kept in tally.families.values():
        family, name = kept.shown, kept.family.name.replace(":", "_")
        old = not kept.grows and kept.launch != view.state.launch
        if old or _bare(family.name) in HISTOGRAMS or name.startswith(catalog.PREFIX) or not family.points:
            continue
        points = {(p.name.replace(":", "_"), tuple(sorted(p.labels.items()))): p.value for p in family.points}
        rows = tuple((series, dict(labels), value) for (series, labels), value in points.items())
        found[name] = Foreign(name, family.type, family.help or "From the engine, as it came.", rows)
    return tuple(found.values())


def _histograms(tally: Tally, model: dict[str, str]) -> Iterator[Reading]:
    for kept in tally.families.values():
        metric = HISTOGRAMS.get(_bare(kept.family.name)) if kept.family.type == "histogram" else None
        value = _distribution(kept.shown) if metric else None
        if metric and value:
            yield Reading(metric, value, model)


def _bare(name: str) -> str:
    return next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), name)


def _distribution(family: Family) -> Distribution | None:
    """The family's one histogram, or the sum over its label sets; None where it is none that can be shown."""
    buckets: dict[float, float] = {}
    for point in family.points:
        if point.name.endswith("_bucket"):
            try:
                bound = float(point.labels["le"])
            except (KeyError, ValueError):
                return None
            buckets[bound] = buckets.get(bound, 0.0) + point.value
    total = sum(point.value for point in family.points if point.name.endswith("_sum"))
    try:
        return Distribution(tuple(sorted(buckets.items())), total) if inf in buckets else None
    except ValueError:
        return None
