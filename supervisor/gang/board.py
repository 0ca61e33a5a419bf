"""Where watchers and the loop put down what they know, and from which a whole view is taken. Thread-safe, and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from supervisor.engine.readings import EngineReading
from supervisor.gang.takings import Meter
from supervisor.hardware.facts import Hardware
from supervisor.machine import Phase, State
from supervisor.status.view import (
    Built,
    EngineView,
    Eviction,
    LaunchEnd,
    NodeGuard,
    NodeHardware,
    NodeMemory,
    ProbeView,
    ReloadView,
    Serving,
    View,
)

ENDS_KEPT = 20


@dataclass(slots=True)
class _Phases:
    """Durations of the current launch's phases: the finished ones, and since when the current one lasts."""

    launch: int = 0
    done: list[tuple[str, float]] = field(default_factory=list)
    current: str = ""
    since_s: float = 0.0

    def take(self, state: State, now_s: float) -> None:
        if state.launch != self.launch:
            self.launch, self.done, self.current = state.launch, [], ""
        if state.phase.value != self.current:
            if self.current:
                self.done.append((self.current, now_s - self.since_s))
            self.current, self.since_s = state.phase.value, now_s


class Board:
    """The latest of everything. ``clock`` gives monotonic seconds, ``wall`` Unix time."""

    def __init__(
        self, state: State, pid: int, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ):
        self._lock = threading.Lock()
        self._clock, self._wall, self._pid = clock, wall, pid
        self._started_unix_s = wall()
        self._state = state
        self._phases = _Phases()
        self._launch_id = ""
        self._serving: Serving | None = None
        self._engine: EngineView | None = None
        self._progress_unix_s: float | None = None
        self._memory: dict[str, NodeMemory] = {}
        self._meter: Meter | None = None
        self._probes: dict[str, ProbeView] = {}
        self._ends: list[LaunchEnd] = []
        self._newer: int | None = None
        self._guards: dict[str, NodeGuard] = {}
        self._hardware: dict[str, NodeHardware] = {}
        self._evictions: dict[tuple[str, str], int] = {}
        self._evicted_launch = 0
        self._rung = 0
        self._reload = ReloadView()
        self._folder_lost = False
        self._built: Built | None = None
        self.stepped = threading.Event()  # set at each step of the machine; who publishes clears it
        self._made_s = clock()
        self._stepped_s: float | None = None

    @property
    def state(self) -> State:
        """The machine's state."""
        with self._lock:
            return self._state

    @property
    def serving(self) -> Serving | None:
        """What the last launch serves."""
        with self._lock:
            return self._serving

    def set_state(self, state: State) -> None:
        """The machine has stepped."""
        with self._lock:
            if state.phase is Phase.GATING and state.launch != self._state.launch:
                self._launch_id = ""  # a new one gets its id behind the gate
            self._state = state
            self._phases.take(state, self._clock())
        self.stepped.set()

    def set_launch(self, launch_id: str, serving: Serving, meter: Meter | None = None) -> None:
        """A launch begins. ``meter`` takes what it takes."""
        with self._lock:
            self._meter = meter
            self._launch_id, self._serving, self._newer = launch_id, serving, None

    def set_newer(self, generation: int | None) -> None:
        """A newer generation waits for a restart, or none."""
        with self._lock:
            self._newer = generation

    def set_engine(self, launch: int, reading: EngineReading | None) -> None:
        """The engine answered, or did not: then the last answer stays, marked as old."""
        with self._lock:
            if reading is not None and self._meter:
                self._meter.fill(reading.kv_cache_ratio, self._clock())
            if reading is not None:
                self._engine = EngineView(True, self._clock(), launch, reading)
            elif self._engine is not None:
                self._engine = EngineView(False, self._engine.at_s, self._engine.launch, self._engine.reading)

    def set_progress(self) -> None:
        """Work was seen done just now."""
        with self._lock:
            self._progress_unix_s = self._wall()

    def set_memory(self, memory: NodeMemory) -> None:
        """A node's memory was sampled."""
        with self._lock:
            self._memory[memory.node] = memory

    def measure(self, node: str, available_bytes: int, at_s: float) -> None:
        """A sample more for what the launch takes."""
        with self._lock:
            meter = self._meter
        if meter:
            meter.sample(node, available_bytes, at_s)

    def add_probe(self, probe: str, passed: bool, took_s: float) -> None:
        """A probe has ended."""
        with self._lock:
            last = self._probes.get(probe)
            good, bad = (last.passed_count, last.failed_count) if last else (0, 0)
            self._probes[probe] = ProbeView(probe, passed, took_s, self._clock(), good + passed, bad + (not passed))

    def add_end(self, end: LaunchEnd) -> None:
        """A launch has ended."""
        with self._lock:
            self._ends = [*self._ends, end][-ENDS_KEPT:]

    def set_guard(self, guard: NodeGuard) -> None:
        """A node's guard sent a sample, or is gone."""
        with self._lock:
            self._guards[guard.node] = guard

    def set_hardware(self, node: str, hardware: Hardware | None) -> None:
        """A node's hardware was read, or could not be: then the last reading stays, marked as old."""
        with self._lock:
            last = self._hardware.get(node)
            if hardware is not None:
                self._hardware[node] = NodeHardware(node, True, self._clock(), hardware)
            else:
                at_s = last.at_s if last else self._clock()
                self._hardware[node] = NodeHardware(node, False, at_s, last.hardware if last else None)

    def add_eviction(self, launch: int, node: str, stage: str) -> None:
        """A launch is ended for a node's memory; told again, it counts once."""
        with self._lock:
            if launch > self._evicted_launch:
                self._evicted_launch = launch
                self._evictions[node, stage] = self._evictions.get((node, stage), 0) + 1

    def set_rung(self, rung: int) -> None:
        """The next launches take a context that many steps down the ladder."""
        with self._lock:
            self._rung = rung

    def set_reload(self, reload: ReloadView) -> None:
        """A change of the settings was read."""
        with self._lock:
            self._reload = reload

    def set_folder_lost(self, lost: bool) -> None:
        """The state folder was taken away, or is back."""
        with self._lock:
            self._folder_lost = lost

    def set_fresh(self, fresh_s: float) -> None:
        """Other probes: what they saw proves life for so long."""
        with self._lock:
            if self._serving is not None:
                self._serving = replace(self._serving, fresh_s=fresh_s)

    def set_built(self, built: Built) -> None:
        """The served bundle's records were read."""
        with self._lock:
            self._built = built

    def beat(self) -> None:
        """The machine's loop has turned."""
        with self._lock:
            self._stepped_s = self._clock()

    @property
    def turned_s(self) -> float:
        """When the machine's loop turned last, in monotonic seconds; before its first turn, when all began."""
        with self._lock:
            return self._made_s if self._stepped_s is None else self._stepped_s

    def view(self) -> View:
        """Everything at this moment."""
        with self._lock:
            now_s, phases = self._clock(), self._phases
            current = ((phases.current, now_s - phases.since_s),) if phases.current else ()
            return View(
                now_s=now_s,
                now_unix_s=self._wall(),
                started_unix_s=self._started_unix_s,
                pid=self._pid,
                state=self._state,
                launch_id=self._launch_id,
                serving=self._serving,
                phases=(*phases.done, *current),
                engine=self._engine,
                progress_unix_s=self._progress_unix_s,
                memory=tuple(self._memory.values()),
                probes=tuple(self._probes.values()),
                ends=tuple(self._ends),
                newer_generation=self._newer,
                guards=tuple(self._guards.values()),
                hardware=tuple(self._hardware.values()),
                evictions=tuple(Eviction(node, stage, count) for (node, stage), count in sorted(self._evictions.items())),
                ladder_rung=self._rung,
                reload=self._reload,
                folder_lost=self._folder_lost,
                built=self._built,
                stepped_s=self._stepped_s,
            )
