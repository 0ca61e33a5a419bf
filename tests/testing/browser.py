"""Debian's chromium, headless, driven by Playwright; and a pair to look at that needs no engine."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from build.units import GIB
from metrics.readings import Snapshot

CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]


@contextmanager
def browser() -> Iterator[Any]:
    """A browser; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="install lockfiles/browser.txt")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield made
        finally:
            made.close()


def pair(at_s: float, **changes: Any) -> Snapshot:
    """Two nodes that serve under load, at a moment: figures move with it as a real pair's do."""
    wave = math.sin(at_s / 23) + 0.4 * math.sin(at_s / 7)
    status = {
        "state": "serving",
        "in_state_s": 11537.0,
        "served_name": "DeepSeek-V4.1-Flash",
        "url": "http://127.0.0.1:8888/v1",
        "target": "dsv41",
        "generation": 12,
        "newer_generation": 13,
        "bundle": "5b0c7f0b6f5f4f51a1d2c3b4a5968778-bundle",
        "variant": "plain",
        "runner": "docker",
        "context_tokens": 1048576,
        "pins": {
            "model_revision": "7f2b91c04d5e6a3f8091b2c3d4e5f60718293a4b",
            "bundle": "5b0c7f0b6f5f4f51a1d2c3b4a5968778-bundle",
            "engine": "0f1e2d3c4b5a69788796a5b4c3d2e1f0-engine",
        },
        "launch": 3,
        "launch_id": "20261130T064512Z-9f3a",
        "up_s": 93817.0,
        "pid": 4242,
        "ranks": [{"rank": rank, "node": node, "up": True, "loaded": True} for rank, node in enumerate(("spark-a", "spark-b"))],
        "throughput": {
            "engine_up": True,
            "decode_tokens_per_s": round(41.5 + 5 * wave, 1),
            "prefill_tokens_per_s": 812.4,
            "running": 3,
            "waiting": 1,
            "generated_tokens": 1284512 + int(at_s % 1000) * 41,
            "prompt_tokens": 9411873,
        },
        "memory": [_memory("spark-a", 9.3 + 0.9 * wave), _memory("spark-b", 7.1 + 0.5 * wave)],
        "probes": [{"probe": "smoke", "passed": True, "took_s": 1.42, "passed_count": 3, "failed_count": 0}],
        "launch_phases_s": {"gating": 0.6, "launching": 71.3, "probing": 1.4, "serving": 11537.0},
        "restarts": [{"reason": "rank exit", "count": 1}, {"reason": "memory", "count": 1}],
        "evictions": [{"node": "spark-b", "stage": "soft", "count": 1}],
        "context_ladder_rung": 0,
        "hardware": [_hardware("spark-a", 2190.0, []), _hardware("spark-b", 2150.0, ["power cap"])],
        "ended_launches": [
            _end("20261129T043320Z-1c77", at_s - 54013, "memory", "spark-b has 3.91 GiB available, the floor is 4.00 GiB"),
            _end("20261129T194502Z-e0b2", at_s - 11620, "rank exit", "rank 1: signal 9"),
        ],
    }  # fmt: skip
    plain: dict[str, Any] = {"taken_at_s": at_s, "readings": (), "status": {**status, **changes}, "live": True, "ready": True}
    return Snapshot(**plain)


def _memory(node: str, available_gib: float) -> dict[str, Any]:
    available = int(available_gib * GIB)
    return {
        "node": node,
        "total_bytes": 119 * GIB,
        "available_bytes": available,
        "free_bytes": available // 3,
        "floor_bytes": 4 * GIB,
        "hard_floor_bytes": 2 * GIB,
        "headroom_bytes": available - 4 * GIB,
        "headroom_bytes_per_s": -18 << 20,
        "lowest_available_bytes": int(5.2 * GIB),
        "stage": "ok",
        "sample_age_s": 0.08,
    }


def _hardware(node: str, mhz: float, held: list[str]) -> dict[str, Any]:
    gpu = {"device": "0", "name": "NVIDIA GB10", "sm_mhz": mhz, "power_w": 61.2, "temperature_c": 66.0, "held_down_by": held}
    ports = [{"device": name, "up": True, "mtu_bytes": 9000, "bytes_per_s": 25e9} for name in ("enp1s0f1np1", "enP2p1s0f1np1")]
    disk = {"disk_size_bytes": 3726 * GIB, "disk_free_bytes": 2411 * GIB}
    return {"node": node, "up": True, "sample_age_s": 1.9, "gpus": [gpu], "ports": ports, **disk}


def _end(launch: str, ended_unix_s: float, reason: str, detail: str) -> dict[str, Any]:
    exits = "rank 0: exit 0, rank 1: exit 0" if reason == "memory" else "rank 0: signal 9, rank 1: signal 9"
    named = {"launch_id": launch, "reason": reason, "detail": detail, "exits": exits}
    return {**named, "ended_unix_s": ended_unix_s, "logs": f"20261130T034500Z-{launch}"}


def minutes(until_s: float | None = None, count: int = 300) -> Iterator[Snapshot]:
    """A snapshot a second, up to now."""
    end = time.time() if until_s is None else until_s
    yield from (pair(end - count + 1 + second) for second in range(count))
