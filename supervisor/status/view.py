"""What the running supervisor knows at one moment, as data: status, metrics and the status page are made from it.

Times called ``_at_s`` are monotonic, ``_unix_s`` are Unix time; the view carries both clocks' now.
"""

from __future__ import annotations

from dataclasses import dataclass

from build.bundle import Bundle
from build.facts import Meminfo, Pressure
from supervisor.engine.readings import EngineReading
from supervisor.hardware.facts import Hardware
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
    planned: tuple[tuple[str, int], ...] = ()  # (node, bytes that its ranks need)
    fresh_s: float = 130.0  # work or a probe seen done within these seconds counts as proof of life
    context_bytes_per_token: int = 0  # on one node, for all of its ranks; 0 where it is not known


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
class NodeGuard:
    """One node's guard. ``at_s`` is when its last sample came, ``lease_age_s`` how long it has not heard who it depends on."""

    node: str
    up: bool
    at_s: float
    lease_age_s: float | None = None


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """One node's hardware. ``up`` says whether the last attempt could read it; ``at_s`` is when ``hardware`` was read."""

    node: str
    up: bool
    at_s: float
    hardware: Hardware | None


@dataclass(frozen=True, slots=True)
class Eviction:
    """Gangs ended for a node's memory, by the stage that acted ("soft", "hard", "slope"): how many."""

    node: str
    stage: str
    count: int


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
class BuiltArtefact:
    """One artefact that the bundle was made from. ``name`` is as short as it is unique within the bundle."""

    name: str
    duration_s: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Built:
    """The served bundle's artefacts, and the Unix time from which the store's content was last known to be right."""

    artefacts: tuple[BuiltArtefact, ...]
    verified_unix_s: float | None


@dataclass(frozen=True, slots=True)
class LaunchEnd:
    """How an earlier launch of this supervisor ended."""

    launch_id: str
    reason: str
    detail: str
    ended_unix_s: float
    exits: tuple[tuple[int, str], ...]  # (rank, "signal 9")
    logs: str = ""  # how the names of its saved logs begin


@dataclass(frozen=True, slots=True)
class ReloadView:
    """What became of the last change of the settings: why it was refused, or what of it waits for a restart."""

    refused: str = ""
    waiting: tuple[str, ...] = ()


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
    guards: tuple[NodeGuard, ...] = ()
    hardware: tuple[NodeHardware, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    ladder_rung: int = 0  # steps down the ladder of contexts
    built: Built | None = None
    reload: ReloadView = ReloadView()
    folder_lost: bool = False  # the state folder is gone, or another
    stepped_s: float | None = None  # when the machine's loop last turned; None before its first turn
