"""What the running supervisor knows at one moment, as data: status, metrics and the status page are made from it.

Times called ``_at_s`` are monotonic, ``_unix_s`` are Unix time; the view carries both clocks' now.
"""

from __future__ import annotations

from dataclasses import dataclass

from build.bundle import Bundle
from build.facts import Meminfo, Pressure
from supervisor.engine.readings import EngineReading
from supervisor.machine import State
from supervisor.memory.policy import Floor, FloorVerdict


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served, and where: the generation that the launch took."""

    target: str
    generation: int
    bundle_entry: str
    bundle: Bundle
    served_name: str
    url: str  # the API's base, e.g. http://127.0.0.1:8888/v1
    context_tokens: int
    runner: str
    nodes: tuple[str, ...]  # by rank


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """One node's memory: the last sample, what the policy made of it, and the lowest MemAvailable since the start."""

    node: str
    at_s: float
    meminfo: Meminfo
    pressure: Pressure | None
    floor: Floor
    verdict: FloorVerdict
    low_water_bytes: int


@dataclass(frozen=True, slots=True)
class EngineView:
    """The engine's last answer. ``up`` says whether the last attempt got one; ``at_s`` is when ``reading`` was taken."""

    up: bool
    at_s: float
    launch: int
    reading: EngineReading


@dataclass(frozen=True, slots=True)
class ProbeView:
    """The last probe of a kind ("smoke" or "idle"), and how many there were of each result ("passed", "failed")."""

    probe: str
    passed: bool
    took_s: float
    at_s: float
    passed_count: int
    failed_count: int


@dataclass(frozen=True, slots=True)
class LaunchEnd:
    """How an earlier launch of this supervisor ended."""

    launch_id: str
    reason: str
    detail: str
    ended_unix_s: float
    exits: tuple[tuple[int, str], ...]  # (rank, "signal 9")


@dataclass(frozen=True, slots=True)
class View:
    """Everything at once. ``phases`` are the current launch's phases in order with their seconds, the last one so far."""

    now_s: float
    now_unix_s: float
    started_unix_s: float
    pid: int
    state: State
    launch_id: str
    serving: Serving | None
    phases: tuple[tuple[str, float], ...] = ()
    engine: EngineView | None = None
    progress_unix_s: float | None = None
    memory: tuple[NodeMemory, ...] = ()
    probes: tuple[ProbeView, ...] = ()
    ends: tuple[LaunchEnd, ...] = ()
    newer_generation: int | None = None  # built since, waits for a restart
