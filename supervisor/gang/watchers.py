"""Watchers: one thread each, looking at one thing and posting what the machine should know.

- :class:`RankWatch`: a launch's ranks, their exits, and their logs until all have loaded.
- :class:`MemoryWatch`: the node's memory against its floors.
- :class:`EngineWatch`: the engine's readings, and whether it makes progress.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from build.errors import TwinfoldError
from build.facts import Meminfo, Pressure, read_meminfo, read_pressure
from build.units import GIB
from supervisor.engine import progress
from supervisor.engine.contract import Logged, parity
from supervisor.engine.facts import Fact, MemoryLine, RankLoaded, Ready, StartFailure
from supervisor.engine.line import Endpoint, ProbeFailed
from supervisor.engine.log import LogReader, logged
from supervisor.engine.probes import Reader, tiny_generation
from supervisor.engine.readings import EngineReading
from supervisor.gang.board import Board
from supervisor.machine import Event, Phase
from supervisor.machine import types as machine
from supervisor.memory.policy import Floor, FloorVerdict, FloorWatch, Sample, Stage, watch_floor
from supervisor.runners.protocol import RankExit, RankHandle, Runner
from supervisor.status.view import NodeMemory

Post = Callable[[Event], None]
LOADING_POLL_S = 0.05
SERVING_POLL_S = 2.0  # ends are told at once; so often a log's growth is looked at
CALM_S = 1.5  # between looks at what a guard tells while memory is well above the floor; each look costs a waking
HOPELESS_EXITS = frozenset({2, 126, 127})  # a usage error, no such program, no such entry point: the same again next time
REST_S = 1.0  # so soon a changed period counts
IDLE_MOST_S = 5.0  # an idle engine's period is stretched to this at most: an answer older than 15 s makes no gang ready
AGAIN_S = 1.0  # a watch that broke begins anew so soon
LOG_PIECES = 64  # at most this many MiB of one rank's log are read at once


class Watcher:
    """A thread that runs :meth:`_watch` until it is stopped."""

    def __init__(self, name: str) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End soon; :meth:`join` waits for it."""
        self._stopped.set()

    def join(self, timeout_s: float = 2.0) -> None:
        """Wait for the thread's end."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        """A fault of ours is shown, and must not blind the gang: the watch begins anew."""
        while not self._stopped.is_set():
            try:
                self._watch()
                break
            except Exception:
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self._thread)))
                self._stopped.wait(AGAIN_S)

    def _watch(self) -> None:
        raise NotImplementedError


@dataclass(slots=True)
class _Read:
    """How far a rank's log was read, and what it said."""

    cursor: str = ""
    reader: LogReader = field(default_factory=LogReader)
    facts: list[Fact] = field(default_factory=list)


class RankWatch(Watcher):
    """Watches one launch: exits at once, log lines as they come, and parity once every rank has loaded."""

    def __init__(
        self,
        runner: Runner,
        post: Post,
        launch: int,
        *,
        world_size: int,
        asked: tuple[int, bool],
        guarded: Callable[[int], machine.Reason | None] = lambda _rank: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(f"ranks-{launch}")
        self._guarded = guarded
        self._runner, self._post, self._launch, self._clock = runner, post, launch, clock
        self._world_size = world_size
        self._asked_context, self._asked_drafts = asked
        self._handles: dict[int, RankHandle] = {}
        self._lock = threading.Lock()
        self._logs: dict[int, _Read] = {}
        self._judged = False
        self.exits: dict[int, RankExit] = {}

    def add(self, handle: RankHandle) -> None:
        """Watch a rank that the machine knows to run."""
        with self._lock:
            self._handles[handle.rank] = handle

    def started(self, handle: RankHandle) -> None:
        """Tell of a start, then watch the rank: so its exit is never told first, and a signal finds its handle."""
        with self._lock:
            self._post(machine.RankStarted(self._clock(), self._launch, handle.rank))
            self._handles[handle.rank] = handle

    @property
    def handles(self) -> tuple[RankHandle, ...]:
        """Every rank that was started, by rank."""
        with self._lock:
            return tuple(handle for _, handle in sorted(self._handles.items()))

    def handle(self, rank: int) -> RankHandle | None:
        """One rank's handle, or None before its start."""
        with self._lock:
            return self._handles.get(rank)

    @property
    def said_bytes(self) -> dict[int, int]:
        """What each rank logged that its weights take, by rank."""
        return {rank: count for rank, log in dict(self._logs).items() if (count := _weights_said(log.facts))}

    def _watch(self) -> None:
        while not self._stopped.is_set():
            living = [h for h in self.handles if h.rank not in self.exits]
            if not living:
                self._stopped.wait(LOADING_POLL_S)
                continue
            for ended in self._runner.wait(living, SERVING_POLL_S if self._judged else LOADING_POLL_S):
                self._ended(ended)
            for handle in living:
                if handle.rank not in self.exits:
                    self._follow(handle)
            self._judge()

    def _follow(self, handle: RankHandle) -> None:
        """Once all is judged, nothing in a log is news: what a flood writes must keep nobody from seeing an end."""
        if not self._judged:
            self._read(handle)
        else:
            log = self._logs.setdefault(handle.rank, _Read())
            log.cursor = self._runner.pass_log(handle, log.cursor)

    def _ended(self, ended: RankExit) -> None:
        """A serving gang's loss is told as it is; a failed start's last words decide whether to try again."""
        handle = self.handle(ended.rank)
        self.exits[ended.rank] = ended
        if handle and not self._judged:
            self._read(handle, last=True)
        told = self._explained(ended)
        hopeless = ended.code in HOPELESS_EXITS or bool(told and not told.restart)
        how = f"{ended.described}: {told.message}" if told else ended.described
        reason = self._guarded(ended.rank) if ended.signal or ended.code is None else None
        if reason:
            how, hopeless = f"{how}, ended by its guard", False
        self._post(machine.RankExited(self._clock(), self._launch, ended.rank, how, hopeless, reason or machine.Reason.RANK_EXIT))

    def _explained(self, ended: RankExit) -> StartFailure | None:
        facts = self._logs[ended.rank].facts if ended.rank in self._logs and not self._judged else []
        return next((fact for fact in facts if isinstance(fact, StartFailure)), None)

    def _read(self, handle: RankHandle, *, last: bool = False) -> None:
        log = self._logs.setdefault(handle.rank, _Read())
        facts: list[Fact] = []
        for _ in range(LOG_PIECES):
            chunk = self._runner.read_log(handle, log.cursor)
            log.cursor = chunk.cursor
            if not chunk.data:
                break
            facts += log.reader.feed(chunk.data)
        if last:
            facts += log.reader.finish()
        for fact in facts:
            self._tell(handle.rank, fact)
        # Facts of a start are few; replies and access lines are many and of no use here.
        log.facts += [fact for fact in facts if isinstance(fact, (Ready, RankLoaded, StartFailure, MemoryLine))]

    def _tell(self, rank: int, fact: Fact) -> None:
        now_s = self._clock()
        if isinstance(fact, RankLoaded) and fact.rank == rank:
            self._post(machine.RankLoaded(now_s, self._launch, rank))
        elif isinstance(fact, Ready) and rank == 0:
            self._post(machine.ServerReady(now_s, self._launch))

    def _judge(self) -> None:
        """Once every rank has said what it loaded with, compare it with what was asked."""
        if self._judged or len(self._logs) < self._world_size:
            return
        if not all(any(isinstance(f, (Ready, RankLoaded)) for f in self._logs[r].facts) for r in range(self._world_size)):
            return
        self._judged = True
        said: list[Logged] = [logged(rank, log.facts) for rank, log in sorted(self._logs.items())]
        differences = parity(self._asked_context, self._asked_drafts, said)
        self._post(machine.Parity(self._clock(), self._launch, tuple(map(str, differences))))


def _weights_said(facts: Sequence[Fact]) -> int:
    """Rank 0 logs gibibytes, a follower bytes; 0 where neither was logged."""
    said = [round(fact.model_gib * GIB) for fact in facts if isinstance(fact, MemoryLine)]
    said += [fact.arena_bytes or 0 for fact in facts if isinstance(fact, RankLoaded)]
    return max(said, default=0)


class MemoryWatch(Watcher):
    """Samples one node's memory every ``period_s``, and tells of a breached floor at most once a second.

    While a guard tells of the node and memory is above the floor, samples are taken every ``CALM_S``: the guard acts by itself.
    """

    PRESSURE_EVERY_S = 1.0
    CALM_EVERY_S = 5.0
    REPEAT_S = 1.0

    def __init__(
        self,
        node: str,
        proc: Path,
        floor: Callable[[], Floor],
        *,
        period_s: float,
        board: Board,
        post: Post,
        guarded: Callable[[str, float], Sequence[Sample]] = lambda _node, _after_s: (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(f"memory-{node}")
        self._guarded = guarded
        self._seen: Meminfo | None = None
        self._seen_s = float("-inf")
        self._last_s = float("-inf")
        self._from_guard = False
        self._stage = Stage.OK
        self._node, self._proc, self._wanted_floor, self._period_s = node, proc, floor, period_s
        self._floor = floor()
        self._board, self._post, self._clock = board, post, clock
        self._watched = FloorWatch()
        self._pressure: Pressure | None = None
        self._pressure_at_s = float("-inf")
        self._low_bytes: int | None = None
        self._told_s = float("-inf")

    def _watch(self) -> None:
        while True:
            self._sample()
            if self._stopped.wait(max(self._period_s, CALM_S) if self._calm else self._period_s):
                return

    @property
    def _calm(self) -> bool:
        """A guard watches this node, and what it said last calls for nothing."""
        return self._from_guard and self._stage is Stage.OK

    def _sample(self) -> None:
        """From the node's guard where one speaks, else read here: before a launch, after one, and while a guard is replaced."""
        now_s, self._floor = self._clock(), self._wanted_floor()
        samples = tuple(self._guarded(self._node, self._last_s))
        if not samples and now_s - self._last_s < self._guard_patience_s and self._seen:
            return
        self._from_guard = bool(samples)
        read = self._read_slow(now_s, always=not samples)
        if self._seen is None or not (samples or read):
            return  # the sample's age says so
        self._take(samples or (Sample(self._seen_s, self._seen.available_bytes, self._seen.free_bytes),))

    @property
    def _guard_patience_s(self) -> float:
        """A guard's next sample may be so late before memory is read without it."""
        return self._floor.stale_s if self._from_guard else 0.0

    def _read_slow(self, now_s: float, *, always: bool) -> bool:
        """What no guard tells: totals, page cache, swap, stalled time; now and then will do. Whether it was read."""
        if not always and now_s - self._seen_s < (self.CALM_EVERY_S if self._calm else self.PRESSURE_EVERY_S):
            return False
        try:
            self._seen, self._seen_s = read_meminfo(self._proc), self._clock()
        except (OSError, ValueError):
            return False
        if now_s - self._pressure_at_s >= self.PRESSURE_EVERY_S:
            self._pressure, self._pressure_at_s = read_pressure(self._proc), now_s
        return True

    def _take(self, samples: Sequence[Sample]) -> None:
        """Judge each, and show the newest."""
        seen, low = self._seen, self._low_bytes
        assert seen is not None
        for sample in samples:
            self._last_s = sample.at_s
            self._watched, verdict = watch_floor(self._floor, self._watched, sample, self._clock())
            low = sample.available_bytes if low is None else min(low, sample.available_bytes)
            self._board.measure(self._node, sample.available_bytes, sample.at_s)
            if (verdict.stage.kills or verdict.stage.stops) and sample.at_s - self._told_s >= self.REPEAT_S:
                self._told_s = sample.at_s
                self._tell(replace(seen, available_bytes=sample.available_bytes), verdict)
        self._low_bytes, self._stage = low, verdict.stage
        newest = replace(seen, available_bytes=sample.available_bytes, free_bytes=sample.free_bytes)
        shown = NodeMemory(self._node, sample.at_s, newest, self._pressure, self._floor, verdict, low or 0)
        self._board.set_memory(shown)

    def _tell(self, seen: Meminfo, verdict: FloorVerdict) -> None:
        launch, slope = self._board.state.launch, verdict.stage is Stage.SLOPE
        why = _breach(self._node, seen, self._floor, verdict)
        self._post(machine.MemoryBreach(self._clock(), launch, hard=verdict.stage.kills, why=why, slope=slope))
        if self._board.state.alive:
            self._board.add_eviction(launch, self._node, verdict.stage.value)


class FarMemoryWatch(MemoryWatch):
    """A worker's memory, from its guards' samples alone: while none speaks, the last sample's age says so.

    ``read`` asks the worker for what no guard tells (totals, page cache, swap); where it does not answer, the last figures stay.
    """

    READ_EVERY_S = 10.0

    def __init__(self, node: str, floor: Callable[[], Floor], read: Callable[[], Meminfo], **common: Any) -> None:
        super().__init__(node, Path(), floor, **common)
        self._ask = read

    def _sample(self) -> None:
        self._floor = self._wanted_floor()
        samples = tuple(self._guarded(self._node, self._last_s))
        if samples and self._clock() - self._seen_s >= self.READ_EVERY_S:
            with contextlib.suppress(TwinfoldError, ValueError):
                self._seen = self._ask()
            self._seen_s = self._clock()
        self._from_guard = bool(samples) or self._clock() - self._last_s < self._floor.stale_s
        if samples and self._seen:
            self._take(samples)


def _breach(node: str, seen: Meminfo, floor: Floor, verdict: FloorVerdict) -> str:
    shown = [f"{node} has {seen.available_bytes / 2**30:.2f} GiB available, the floor is {floor.floor_bytes / 2**30:.2f} GiB"]
    if verdict.stage.kills:
        shown.append(f"the hard floor {floor.hard_floor_bytes / 2**30:.2f} GiB")
    if verdict.falling_bytes_per_s:
        shown.append(f"falling by {verdict.falling_bytes_per_s / 2**30:.1f} GiB/s")
    return ", ".join(shown)


class EngineWatch(Watcher):
    """Reads the engine while the gang serves, and judges its progress; an idle gang is asked for a few tokens now and then."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        launch: int,
        *,
        patience: progress.Patience,
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
        self._progress = progress.begin(clock())
        self._lock = threading.Lock()
        self._probe: threading.Thread | None = None

    def _watch(self) -> None:
        self._board.set_progress()  # the smoke test has just passed
        with Reader(self._endpoint) as reader:
            while True:
                began_s = self._clock()
                if self._board.state.phase is Phase.SERVING:
                    self._look(reader)
                if self._rested(began_s):
                    return

    def retune(self, patience: progress.Patience, *, period_s: float, deadline_s: float) -> None:
        """Go on with other patience."""
        with self._lock:
            self._patience, self._period_s, self._deadline_s = patience, period_s, deadline_s

    @property
    def _pace_s(self) -> float:
        """Nothing can hang while nothing is asked for: then half as often will do, while readiness still has fresh answers."""
        reading = self._progress.reading
        idle = reading is not None and reading.busy is False
        return max(self._period_s, min(2.0 * self._period_s, IDLE_MOST_S)) if idle else self._period_s

    def _rested(self, began_s: float) -> bool:
        """Rest until a period after ``began_s``; it may change in the middle. True where the watch is over.

        A look that was waited for in vain has lasted longer than that: then the next follows at once.
        """
        while (left_s := began_s + self._pace_s - self._clock()) > 0:
            if self._stopped.wait(min(left_s, REST_S)):
                return True
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
        elif verdict.probe and (self._probe is None or not self._probe.is_alive()):
            with self._lock:
                self._progress = progress.asked(self._progress)
            self._probe = threading.Thread(target=self._generate, name="idle-probe", daemon=True)
            self._probe.start()

    def _generate(self) -> None:
        began_s = self._clock()
        try:
            passed = tiny_generation(self._endpoint, self._model, self._patience.stall_s).alive
        except ProbeFailed:
            passed = False
        if self._stopped.is_set():
            return
        self._board.add_probe("idle", passed, self._clock() - began_s)
        with self._lock:
            self._progress, verdict = progress.probed(self._progress, passed, self._clock(), self._patience)
        if passed:
            self._board.set_progress()
        self._act(verdict)


def stop_all(watchers: Sequence[Watcher | None]) -> None:
    """Stop and join what is there."""
    for watcher in watchers:
        if watcher:
            watcher.stop()
    for watcher in watchers:
        if watcher:
            watcher.join()
