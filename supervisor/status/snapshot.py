"""The view of the running supervisor as what the exporter serves: readings of catalogued metrics, and the status. Pure.

Whatever is not known is left out, never shown as 0: a gap says more than a wrong figure.
"""

from __future__ import annotations

from collections.abc import Iterator

from metrics import catalog
from metrics.catalog import Metric
from metrics.readings import Reading, Snapshot
from supervisor.machine import Phase, Reason
from supervisor.status import engine_readings, hardware_readings
from supervisor.status.health import not_live, not_ready
from supervisor.status.status import status, why_not_ready
from supervisor.status.tally import Tally
from supervisor.status.view import NodeMemory, Serving, View

STAGES = ("soft", "hard", "slope")


def snapshot(view: View, tally: Tally) -> Snapshot:
    """What to publish. ``tally`` has taken this view."""
    dead = not_live(view)
    why = dead or (not_ready(view) if view.state.phase is Phase.SERVING else why_not_ready(view))
    readings = (
        *_gang(view, ready=not why),
        *_served(view),
        *engine_readings.throughput(view, tally),
        *_memory(view, tally),
        *hardware_readings.guards(view),
        *hardware_readings.hardware(view),
        *_built(view),
        *_probes(view),
    )
    return Snapshot(
        taken_at_s=view.now_unix_s,
        readings=readings,
        status=status(view, tally),
        live=not dead,
        ready=not why,
        why=why,
        foreign=engine_readings.foreign(view, tally),
    )


def _gang(view: View, *, ready: bool) -> Iterator[Reading]:
    state = view.state
    yield Reading(catalog.STARTED, view.started_unix_s)
    yield Reading(catalog.READY, float(ready))
    yield Reading(catalog.LADDER_RUNG, float(view.ladder_rung))
    yield Reading(catalog.SETTINGS_REFUSED, float(bool(view.reload.refused)))
    yield Reading(catalog.STATE_FOLDER_LOST, float(view.folder_lost))
    if (equal := _parity(view)) is not None:
        yield Reading(catalog.SETTINGS_PARITY, float(equal))
    yield Reading(catalog.SETTINGS_WAITING, float(len(view.reload.waiting)))
    yield from (Reading(catalog.GANG_STATE, float(phase is state.phase), {"state": phase.value}) for phase in Phase)
    yield Reading(catalog.LAUNCHES, float(state.launch))
    counts = dict(state.restarts)
    # every reason from the start, so that the first restart is an increase from 0
    yield from (Reading(catalog.RESTARTS, float(counts.get(r, 0)), {"reason": r.value}) for r in Reason if r is not Reason.STOP)
    yield from (Reading(catalog.LAUNCH_PHASE, seconds, {"phase": phase}) for phase, seconds in view.phases)
    if view.progress_unix_s is not None:
        yield Reading(catalog.LAST_PROGRESS, view.progress_unix_s)


def _parity(view: View) -> bool | None:
    """Whether the ranks of the last launch that was compared had the same settings; None before any was."""
    if view.state.phase.whole:
        return True
    return False if view.state.reason is Reason.PARITY else None


def _served(view: View) -> Iterator[Reading]:
    serving = view.serving
    if serving is None:
        return
    for rank, node in enumerate(serving.nodes):
        yield Reading(catalog.RANK_UP, float(rank in view.state.up), {"rank": str(rank), "node": node})
    yield Reading(catalog.BUNDLE, 1.0, _bundle_labels(serving))
    yield Reading(catalog.NEWER_GENERATION, float(view.newer_generation is not None))
    yield Reading(catalog.CONTEXT, float(serving.context_tokens), {"model": serving.served_name})


def _bundle_labels(serving: Serving) -> dict[str, str]:
    bundle = serving.bundle
    images = {image.config_digest for image in bundle.image.values()} if serving.runner == "docker" else set()
    return {
        "target": serving.target,
        "generation": str(serving.generation),
        "bundle": serving.bundle_entry,
        "image": ",".join(sorted(images)),
        "variant": bundle.variant,
        "model_revision": bundle.model_revision,
        "world_size": str(bundle.world_size),
    }


def _memory(view: View, tally: Tally) -> Iterator[Reading]:
    for memory in view.memory:
        yield from _node(memory, view.now_s, tally.slopes[memory.node].per_second(view.now_s))
    counts = {(memory.node, stage): 0 for memory in view.memory for stage in STAGES}
    counts |= {(eviction.node, eviction.stage): eviction.count for eviction in view.evictions}
    for (node, stage), count in counts.items():  # each from the start, so that the first one is an increase from 0
        yield Reading(catalog.EVICTIONS, float(count), {"node": node, "stage": stage})
    yield from _planned(view)


def _planned(view: View) -> Iterator[Reading]:
    serving = view.serving
    if serving is None:
        return
    yield from (Reading(catalog.MEMORY_PLANNED, float(need), {"node": node}) for node, need in serving.planned)
    if serving.context_bytes_per_token <= 0:
        return
    for memory in view.memory:
        headroom = max(0, memory.meminfo.available_bytes - memory.floor.floor_bytes)
        yield Reading(catalog.CONTEXT_LEFT, float(headroom // serving.context_bytes_per_token), {"node": memory.node})


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


def _built(view: View) -> Iterator[Reading]:
    if view.built is None:
        return
    for one in view.built.artefacts:
        yield Reading(catalog.ARTEFACT_BUILD, one.duration_s, {"artefact": one.name})
        yield Reading(catalog.ARTEFACT_SIZE, float(one.size_bytes), {"artefact": one.name})
    if view.built.verified_unix_s is not None:
        yield Reading(catalog.STORE_VERIFIED, view.built.verified_unix_s)


def _probes(view: View) -> Iterator[Reading]:
    for probe in view.probes:
        named = {"probe": probe.probe}
        yield Reading(catalog.PROBE_SUCCESS, float(probe.passed), named)
        yield Reading(catalog.PROBE_DURATION, probe.took_s, named)
        yield Reading(catalog.PROBE_RESULTS, float(probe.passed_count), {**named, "result": "passed"})
        yield Reading(catalog.PROBE_RESULTS, float(probe.failed_count), {**named, "result": "failed"})
