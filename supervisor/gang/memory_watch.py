"""A node's memory against its floors."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from build.errors import TwinfoldError
from build.facts import Meminfo, Pressure, read_meminfo, read_pressure
from supervisor.gang.board import Board
from supervisor.gang.watchers import Post, Watcher
from supervisor.machine import types as machine
from supervisor.memory.policy import Floor, FloorVerdict, FloorWatch, Sample, Stage, watch_floor
from supervisor.status.view import NodeMemory


class MemoryWatch(Watcher):
    """Samples one node's memory every ``period_s``, and tells of a breached floor at most once a second.

    While a guard tells of the node and memory is above the floor it sleeps until it is woken, or the last sample is about to be
    stale: the guard acts by itself.
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
        self._last_s = self._guard_s = float("-inf")  # the newest sample's time, and that of a guard's newest
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
            if self._rested(self._rest_s):
                return

    @property
    def _rest_s(self) -> float:
        stale_s = self._last_s + self._floor.stale_s - self._clock()
        return max(self._period_s, stale_s) if self._calm else self._period_s

    @property
    def _calm(self) -> bool:
        """A guard watches this node, and what it said last calls for nothing."""
        return self._from_guard and self._stage is Stage.OK

    def _sample(self) -> None:
        """From the node's guard where one speaks, else read here: before a launch, after one, and while a guard is replaced."""
        now_s, self._floor = self._clock(), self._wanted_floor()
        told = tuple(self._guarded(self._node, self._guard_s))
        if not told and now_s - self._last_s < self._guard_patience_s and self._seen:
            return
        self._from_guard = bool(told)
        if told:
            self._guard_s = told[-1].at_s
        samples = tuple(one for one in told if one.at_s > self._last_s)  # what was read here meanwhile is newer than the rest
        read = self._read_slow(now_s, always=not told)
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
