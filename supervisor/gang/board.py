"""Where watchers and the loop put down what they know, and from which a whole view is taken. Thread-safe, and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from supervisor.engine.readings import EngineReading
from supervisor.machine import State
from supervisor.status.view import EngineView, LaunchEnd, NodeMemory, ProbeView, Serving, View

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
        self._probes: dict[str, ProbeView] = {}
        self._ends: list[LaunchEnd] = []
        self._newer: int | None = None

    @property
    def state(self) -> State:
        """The machine's state."""
        with self._lock:
            return self._state

    def set_state(self, state: State) -> None:
        """The machine has stepped."""
        with self._lock:
            self._state = state
            self._phases.take(state, self._clock())

    def set_launch(self, launch_id: str, serving: Serving) -> None:
        """A launch begins."""
        with self._lock:
            self._launch_id, self._serving, self._newer = launch_id, serving, None

    def set_newer(self, generation: int | None) -> None:
        """A newer generation waits for a restart, or none."""
        with self._lock:
            self._newer = generation

    def set_engine(self, launch: int, reading: EngineReading | None) -> None:
        """The engine answered, or did not: then the last answer stays, marked as old."""
        with self._lock:
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
            )
