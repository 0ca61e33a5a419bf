"""The status as a few lines for a person, and the status of a gang that has no supervisor. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from build.bundle import OTHER_VARIANT
from build.units import gib
from supervisor.runners.protocol import Leftover


def without_supervisor(found: Sequence[Leftover], supervisor_pid: int | None) -> dict[str, Any]:
    """What can be said from the ranks alone. ``supervisor_pid`` is one that holds the lock and did not answer."""
    living = [one for one in found if one.alive]
    state = "stopped" if supervisor_pid is None and not living else "no supervisor"
    shown: dict[str, Any] = {"state": "supervisor does not answer" if supervisor_pid is not None else state}
    if supervisor_pid:
        shown["pid"] = supervisor_pid
    ranks = [
        {
            "rank": one.handle.rank,
            "node": one.handle.node,
            "up": one.alive,
            "launch_id": one.handle.launch_id,
            "key": one.handle.key,
        }
        for one in found
    ]
    return {**shown, "ranks": ranks}


def as_text(status: Mapping[str, Any]) -> str:
    """One fact a line."""
    return "\n".join(
        [_headline(status), *_served(status), *_ranks(status), *_throughput(status), *_memory(status), *_past(status)]
    )


def _headline(status: Mapping[str, Any]) -> str:
    in_state = f" for {_duration(status['in_state_s'])}" if "in_state_s" in status else ""
    pid = f" (pid {status['pid']})" if "pid" in status else ""
    return f"{status['state']}{in_state}{pid}"


def _served(status: Mapping[str, Any]) -> list[str]:
    if "url" not in status:
        return []
    newer = f", generation {status['newer_generation']} waits for a restart" if "newer_generation" in status else ""
    rungs = status.get("context_ladder_rung", 0)
    lowered = f", {rungs} rung{'s' * (rungs > 1)} down after an eviction" if rungs else ""
    its_id = f" ({status['launch_id']})" if status["launch_id"] else ""
    return [
        f"{status['served_name']} at {status['url']}, context {status['context_tokens']}{lowered}",
        f"target {status['target']}, generation {status['generation']}{newer}, launch {status['launch']}{its_id}",
        *([OTHER_VARIANT] if status.get("variant") == "ablit" else []),
    ]


def _ranks(status: Mapping[str, Any]) -> list[str]:
    return [f"rank {one['rank']} on {one['node']}: {_rank_state(one)}" for one in status.get("ranks", ())]


def _rank_state(one: Mapping[str, Any]) -> str:
    if not one["up"]:
        return "down"
    return "up, loading" if one.get("loaded") is False else "up"


def _throughput(status: Mapping[str, Any]) -> list[str]:
    seen = status.get("throughput")
    if not seen or not seen.get("engine_up"):
        return []
    running, waiting = (seen.get(name) for name in ("running", "waiting"))
    rates = f"{seen['decode_tokens_per_s']} tokens/s, prefill {seen['prefill_tokens_per_s']} tokens/s"
    return [f"{rates}, {_count(running)} running, {_count(waiting)} waiting"]


def _memory(status: Mapping[str, Any]) -> list[str]:
    return [
        f"memory on {one['node']}: {gib(one['available_bytes'], 2)} available, floor {gib(one['floor_bytes'], 2)},"
        f" headroom {gib(one['headroom_bytes'], 2)}, {one['stage']}"
        for one in status.get("memory", ())
    ]


def _past(status: Mapping[str, Any]) -> list[str]:
    restarts = [f"{one['count']} x {one['reason']}" for one in status.get("restarts", ())]
    reload = status.get("reload", {})
    told = [f"waits for a restart: {one}" for one in reload.get("waiting", ())]
    told += [f"a change is refused: {reload['refused']}"] if reload.get("refused") else []
    return ([f"restarts: {', '.join(restarts)}"] if restarts else []) + told


def _count(value: object) -> str:
    return "?" if value is None else str(value)


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"
