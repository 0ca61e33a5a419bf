"""The view of the running supervisor as what the exporter serves: readings of catalogued metrics, and the status. Pure.

Whatever is not known is left out, never shown as 0: a gap says more than a wrong figure.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from metrics import catalog
from metrics.catalog import Metric
from metrics.readings import Distribution, Reading, Snapshot
from supervisor.engine.promtext import Family
from supervisor.engine.readings import PREFIXES, EngineReading
from supervisor.machine import Phase, Reason
from supervisor.status.status import status, why_not_ready
from supervisor.status.tally import Tally, decode_rate, prefill_rate
from supervisor.status.view import NodeMemory, Serving, View

# The engine's histograms by their bare names (engine contract, /metrics of the build with the prefix "tensorfold:")
HISTOGRAMS = {
    "time_to_first_token_seconds": catalog.TIME_TO_FIRST_TOKEN,
    "request_time_per_output_token_seconds": catalog.TIME_PER_OUTPUT_TOKEN,
    "request_latency_seconds": catalog.REQUEST_DURATION,
    "request_prefill_seconds": catalog.REQUEST_PREFILL,
    "request_decode_seconds": catalog.REQUEST_DECODE,
}


def snapshot(view: View, tally: Tally) -> Snapshot:
    """What to publish. ``tally`` has taken this view."""
    ready = view.state.phase is Phase.SERVING
    readings = (*_gang(view), *_served(view), *_throughput(view, tally), *_memory(view, tally), *_probes(view))
    return Snapshot(
        taken_at_s=view.now_unix_s,
        readings=readings,
        status=status(view, tally),
        live=view.state.phase is not Phase.GAVE_UP,
        ready=ready,
        why="" if ready else why_not_ready(view),
    )


def _gang(view: View) -> Iterator[Reading]:
    state = view.state
    yield from (Reading(catalog.GANG_STATE, float(phase is state.phase), {"state": phase.value}) for phase in Phase)
    yield Reading(catalog.LAUNCHES, float(state.launch))
    counts = dict(state.restarts)
    # every reason from the start, so that the first restart is an increase from 0
    yield from (Reading(catalog.RESTARTS, float(counts.get(r, 0)), {"reason": r.value}) for r in Reason if r is not Reason.STOP)
    yield from (Reading(catalog.LAUNCH_PHASE, seconds, {"phase": phase}) for phase, seconds in view.phases)
    if view.progress_unix_s is not None:
        yield Reading(catalog.LAST_PROGRESS, view.progress_unix_s)


def _served(view: View) -> Iterator[Reading]:
    serving = view.serving
    if serving is None:
        return
    for rank, node in enumerate(serving.nodes):
        yield Reading(catalog.RANK_UP, float(rank in view.state.up), {"rank": str(rank), "node": node})
    yield Reading(catalog.BUNDLE, 1.0, _bundle_labels(serving))
    yield Reading(catalog.CONTEXT, float(serving.context_tokens), {"model": serving.served_name})


def _bundle_labels(serving: Serving) -> dict[str, str]:
    bundle = serving.bundle
    return {
        "target": serving.target,
        "generation": str(serving.generation),
        "bundle": serving.bundle_entry,
        "variant": bundle.variant,
        "model_revision": bundle.model_revision,
        "world_size": str(bundle.world_size),
    }


def _throughput(view: View, tally: Tally) -> Iterator[Reading]:
    engine = view.engine
    yield Reading(catalog.ENGINE_UP, float(engine is not None and engine.up and engine.launch == view.state.launch))
    if engine is None or view.serving is None:
        return
    model = {"model": view.serving.served_name}
    yield Reading(catalog.ENGINE_AGE, max(0.0, view.now_s - engine.at_s))
    yield from (Reading(metric, total.value, model) for metric, total in tally.totals.items())
    yield Reading(catalog.DECODE_RATE, decode_rate(view, tally), model)
    yield Reading(catalog.PREFILL_RATE, prefill_rate(view, tally), model)
    if engine.launch != view.state.launch:
        return  # what the engine said before it ended is no figure of now
    running, waiting = engine.reading.running, engine.reading.waiting
    if running is not None:
        yield Reading(catalog.REQUESTS_RUNNING, float(running + (engine.reading.prefilling or 0)), model)
    if waiting is not None:
        yield Reading(catalog.REQUESTS_WAITING, float(waiting), model)
    yield from _histograms(engine.reading, model)


def _histograms(reading: EngineReading, model: dict[str, str]) -> Iterator[Reading]:
    for family in reading.histograms:
        metric = HISTOGRAMS.get(_bare(family.name))
        value = _distribution(family) if metric else None
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


def _memory(view: View, tally: Tally) -> Iterator[Reading]:
    for memory in view.memory:
        yield from _node(memory, view.now_s, tally.slopes[memory.node].per_second(view.now_s))


def _node(memory: NodeMemory, now_s: float, slope: float) -> Iterator[Reading]:
    seen, node = memory.meminfo, {"node": memory.node}
    figures: dict[Metric, float] = {
        catalog.MEMORY_TOTAL: seen.total_bytes,
        catalog.MEMORY_AVAILABLE: seen.available_bytes,
        catalog.MEMORY_FREE: seen.free_bytes,
        catalog.PAGE_CACHE: seen.page_cache_bytes,
        catalog.SWAP_TOTAL: seen.swap_total_bytes,
        catalog.SWAP_FREE: seen.swap_free_bytes,
        catalog.HEADROOM: seen.available_bytes - memory.floor.floor_bytes,
        catalog.HEADROOM_SLOPE: slope,
        catalog.MEMORY_LOW_WATER: memory.low_water_bytes,
        catalog.MEMORY_AGE: max(0.0, now_s - memory.at_s),
    }
    yield from (Reading(metric, float(value), node) for metric, value in figures.items())
    floor = memory.floor
    for stage, value in (("soft", floor.floor_bytes), ("hard", floor.hard_floor_bytes)):
        yield Reading(catalog.MEMORY_FLOOR, float(value), {**node, "stage": stage})
    if memory.pressure is None:
        return
    felt = memory.pressure
    for kind, percent, stalled_us in (
        ("some", felt.some_avg10, felt.some_total_us),
        ("full", felt.full_avg10, felt.full_total_us),
    ):
        yield Reading(catalog.PRESSURE, percent / 100, {**node, "kind": kind})
        yield Reading(catalog.PRESSURE_STALLED, stalled_us / 1e6, {**node, "kind": kind})


def _probes(view: View) -> Iterator[Reading]:
    for probe in view.probes:
        named = {"probe": probe.probe}
        yield Reading(catalog.PROBE_SUCCESS, float(probe.passed), named)
        yield Reading(catalog.PROBE_DURATION, probe.took_s, named)
        yield Reading(catalog.PROBE_RESULTS, float(probe.passed_count), {**named, "result": "passed"})
        yield Reading(catalog.PROBE_RESULTS, float(probe.failed_count), {**named, "result": "failed"})
