"""The status for people and programs: /status.json, the status page and ``supervisor status`` show this one mapping. Pure.

Keys carry their units; values are JSON's. Keys are only ever added, so that scripts which read them go on working.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from build.facts import Gpu
from metrics import catalog
from supervisor.hardware.facts import throttles
from supervisor.machine import Phase
from supervisor.status.tally import Tally, decode_rate, prefill_rate
from supervisor.status.view import EngineView, LaunchEnd, NodeHardware, NodeMemory, Serving, View


def status(view: View, tally: Tally) -> dict[str, Any]:
    """Everything, the most wanted first."""
    state = view.state
    return {
        "state": state.phase.value,
        "in_state_s": round(max(0.0, view.now_s - state.since_s), 1),
        **_served(view),
        "launch": state.launch,
        "launch_id": view.launch_id,
        "up_s": round(max(0.0, view.now_unix_s - view.started_unix_s), 1),
        "pid": view.pid,
        "ranks": _ranks(view),
        "throughput": _throughput(view, view.engine, tally),
        "memory": [_memory(memory, tally, view.now_s) for memory in view.memory],
        "probes": [
            {
                "probe": p.probe,
                "passed": p.passed,
                "took_s": round(p.took_s, 3),
                "passed_count": p.passed_count,
                "failed_count": p.failed_count,
            }
            for p in view.probes
        ],
        "launch_phases_s": {phase: round(seconds, 3) for phase, seconds in view.phases},
        "restarts": [{"reason": reason.value, "count": count} for reason, count in state.restarts],
        "evictions": [{"node": one.node, "stage": one.stage, "count": one.count} for one in view.evictions],
        "context_ladder_rung": view.ladder_rung,
        "reload": {"refused": view.reload.refused, "waiting": list(view.reload.waiting)},
        "state_folder_lost": view.folder_lost,
        "hardware": [_hardware(node, view.now_s) for node in view.hardware],
        "ended_launches": [_end(end) for end in view.ends],
    }


def why_not_ready(view: View) -> str:
    """In a few words, for probes and people; "" never."""
    state = view.state
    match state.phase:
        case Phase.GATING:
            return "waiting for memory and free ports"
        case Phase.LAUNCHING:
            return f"launching: {len(state.loaded)} of {state.policy.world_size} ranks loaded"
        case Phase.PROBING:
            return "probing: the smoke test runs"
        case Phase.PAUSING:
            return f"pausing for {max(0.0, state.resume_at_s - view.now_s):.1f} s after {_last_reason(view)}"
        case Phase.DRAINING | Phase.CLEARING | Phase.GAVE_UP:
            return f"{state.phase.value.replace('_', ' ')}: {_last_reason(view)}"
        case Phase.STOPPED | Phase.SERVING | Phase.HANDED_OVER:
            return str(state.phase.value).replace("_", " ")


def _last_reason(view: View) -> str:
    reason = view.state.reason
    if reason is None:
        return "an earlier failure"
    return f"{reason.value}: {view.state.detail}" if view.state.detail else reason.value


def _served(view: View) -> dict[str, Any]:
    serving = view.serving
    if serving is None:
        return {}
    newer = {} if view.newer_generation is None else {"newer_generation": view.newer_generation}
    return {
        "served_name": serving.served_name,
        "url": serving.url,
        "target": serving.target,
        "generation": serving.generation,
        **newer,
        "bundle": serving.bundle_entry,
        "variant": serving.bundle.variant,
        "runner": serving.runner,
        "context_tokens": serving.context_tokens,
        "pins": _pins(serving),
    }


def _pins(serving: Serving) -> dict[str, str]:
    """What was fixed, by what it is: a revision, or an entry of the store."""
    bundle = serving.bundle
    pins = {
        "model_revision": bundle.model_revision,
        "bundle": serving.bundle_entry,
        "engine": bundle.engine.server.entry,
        "model": bundle.model.entry,
        "kit": bundle.kit.entry,
    }
    return {name: value for name, value in pins.items() if value}


def _hardware(node: NodeHardware, now_s: float) -> dict[str, Any]:
    seen = node.hardware
    return {
        "node": node.node,
        "up": node.up,
        "sample_age_s": round(max(0.0, now_s - node.at_s), 1),
        "gpus": [_gpu(gpu) for gpu in (seen.gpus or ())] if seen else [],
        "ports": [
            {"device": port.device, "up": port.up, "mtu_bytes": port.mtu_bytes, "bytes_per_s": port.bytes_per_s}
            for port in (seen.ports if seen else ())
        ],
        "disk_size_bytes": seen.disk_size_bytes if seen else None,
        "disk_free_bytes": seen.disk_free_bytes if seen else None,
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    held = throttles(gpu)
    return {
        "device": str(gpu.index if gpu.index is not None else gpu.pci_bus_id),
        "name": gpu.name,
        "sm_mhz": gpu.sm_mhz,
        "power_w": gpu.power_w,
        "temperature_c": gpu.temperature_c,
        "held_down_by": None if held is None else [reason for reason, holds in held.items() if holds],
    }


def _ranks(view: View) -> list[dict[str, Any]]:
    state = view.state
    nodes = view.serving.nodes if view.serving else ()
    return [
        {"rank": rank, "node": node, "up": rank in state.up, "loaded": rank in state.loaded} for rank, node in enumerate(nodes)
    ]


def _throughput(view: View, engine: EngineView | None, tally: Tally) -> Mapping[str, Any]:
    current = engine is not None and engine.launch == view.state.launch
    figures: dict[str, Any] = {
        "engine_up": bool(engine and engine.up and current),
        "decode_tokens_per_s": round(decode_rate(view, tally), 1),
        "prefill_tokens_per_s": round(prefill_rate(view, tally), 1),
        "running": engine.reading.running if engine and current else None,
        "waiting": engine.reading.waiting if engine and current else None,
    }
    totals = {"generated_tokens": catalog.GENERATED_TOKENS, "prompt_tokens": catalog.PROMPT_TOKENS}
    return figures | {name: int(tally.totals[metric].value) for name, metric in totals.items() if metric in tally.totals}


def _memory(memory: NodeMemory, tally: Tally, now_s: float) -> dict[str, Any]:
    seen, floor = memory.meminfo, memory.floor
    return {
        "node": memory.node,
        "total_bytes": seen.total_bytes,
        "available_bytes": seen.available_bytes,
        "free_bytes": seen.free_bytes,
        "floor_bytes": floor.floor_bytes,
        "hard_floor_bytes": floor.hard_floor_bytes,
        "headroom_bytes": seen.available_bytes - floor.floor_bytes,
        "headroom_bytes_per_s": int(tally.slopes[memory.node].per_second(now_s)),
        "lowest_available_bytes": memory.low_water_bytes,
        "stage": memory.verdict.stage.value,
        "sample_age_s": round(max(0.0, now_s - memory.at_s), 2),
    }


def _end(end: LaunchEnd) -> dict[str, Any]:
    return {
        "launch_id": end.launch_id,
        "reason": end.reason,
        "detail": end.detail,
        "ended_unix_s": round(end.ended_unix_s, 1),
        "logs": end.logs,
        "exits": ", ".join(f"rank {rank}: {how}" for rank, how in end.exits),
    }
