"""The engine's readings once the gang is whole, and whether it makes progress."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from supervisor.engine import progress
from supervisor.engine.line import Endpoint, ProbeFailed
from supervisor.engine.probes import Reader, tiny_generation
from supervisor.engine.readings import EngineReading
from supervisor.gang.board import Board
from supervisor.gang.launch import Plan
from supervisor.gang.watchers import Post, Watcher
from supervisor.machine import Phase
from supervisor.machine import types as machine
from supervisor.settings import Probes

IDLE_MOST_S = 5.0  # an idle engine's period is stretched to this at most: an answer older than 15 s makes no gang ready


class EngineWatch(Watcher):
    """Reads the engine from the smoke test on, and judges its progress. A gang that serves is asked for a few tokens where
    nothing else tells that it lives.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        launch: int,
        *,
        patience: progress.Patience,
        warm: bool,
        period_s: float,
        deadline_s: float,
        board: Board,
        post: Post,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(f"engine-{launch}")
        self._endpoint, self._model, self._launch = endpoint, model, launch
        self._patience, self._period_s, self._deadline_s = patience, period_s, deadline_s
        self._board, self._post, self._clock = board, post, clock
        self._progress = progress.begin(clock(), warm=warm)
        self._lock = threading.Lock()
        self._probe: threading.Thread | None = None

    def _watch(self) -> None:
        with Reader(self._endpoint) as reader:
            while True:
                began_s = self._clock()
                if self._board.state.phase.whole:
                    self._look(reader)
                if self._rested_since(began_s):
                    return

    def retune(self, patience: progress.Patience, *, period_s: float, deadline_s: float) -> None:
        """Go on with other patience."""
        with self._lock:
            self._patience, self._period_s, self._deadline_s = patience, period_s, deadline_s
        self.wake()

    @property
    def _pace_s(self) -> float:
        """Nothing can hang while nothing is asked for: then half as often will do, while readiness still has fresh answers."""
        reading = self._progress.reading
        idle = reading is not None and reading.busy is False
        return max(self._period_s, min(2.0 * self._period_s, IDLE_MOST_S)) if idle else self._period_s

    def _rested_since(self, began_s: float) -> bool:
        """Rest until a period after ``began_s``; it may change in the middle. True where the watch is over.

        A look that was waited for in vain has lasted longer than that: then the next follows at once.
        """
        while not self._stopped.is_set() and (left_s := began_s + self._pace_s - self._clock()) > 0:
            self._rested(left_s)
        return self._stopped.is_set()

    def _look(self, reader: Reader) -> None:
        reading: EngineReading | None = None
        with contextlib.suppress(ProbeFailed):
            reading = reader.read(self._deadline_s)
        if self._stopped.is_set():
            return
        self._board.set_engine(self._launch, reading)
        with self._lock:
            before = self._progress
            self._progress, verdict = progress.observe(before, reading, self._clock(), self._patience)
            moved = self._progress.moved_s > before.moved_s and bool(reading and reading.busy)
        if moved:
            self._board.set_progress()
        self._act(verdict)

    def _act(self, verdict: progress.Verdict) -> None:
        if verdict.stalled:
            self._post(machine.Stalled(self._clock(), self._launch, verdict.stalled))
        elif verdict.probe and self._may_ask:
            with self._lock:
                self._progress = progress.asked(self._progress)
            self._probe = threading.Thread(target=self._generate, name="tiny-generation", daemon=True)
            self._probe.start()

    @property
    def _may_ask(self) -> bool:
        """The smoke test asks for itself, and one tiny generation at a time will do."""
        return self._board.state.phase is Phase.SERVING and not (self._probe and self._probe.is_alive())

    def _generate(self) -> None:
        began_s = self._clock()
        with self._lock:
            deadline_s = progress.probe_deadline_s(self._progress, self._patience)
        alive: bool | None = None
        with contextlib.suppress(ProbeFailed):
            reply = tiny_generation(self._endpoint, self._model, deadline_s)
            alive = None if reply.kind == "engine_error" else reply.alive
        if self._stopped.is_set():
            return
        self._board.add_probe("idle", bool(alive), self._clock() - began_s)
        with self._lock:
            self._progress, verdict = progress.probed(self._progress, alive, self._clock(), self._patience)
        if alive:
            self._board.set_progress()
        self._act(verdict)


def patience(plan: Plan, probes: Probes) -> progress.Patience:
    """How long the engine may take for what; the slowest prefill is the target's where the settings name none."""
    rate = probes.prefill_tokens_per_s or float(plan.blueprint.bundle.prefill_tokens_per_s)
    return progress.Patience(
        stall_s=probes.stall_s,
        misses=probes.probe_misses,
        idle_probe_s=probes.idle_probe_s,
        prefill_tokens_per_s=rate,
        context_tokens=plan.context_tokens,
        first_token_s=probes.smoke_deadline_s,
        streams=plan.blueprint.configuration.serve.parallel,
    )
