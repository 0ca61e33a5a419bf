"""A node's memory watch beside a guard that says little while memory is calm."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from build.units import GIB
from supervisor.gang.board import Board
from supervisor.gang.memory_watch import MemoryWatch
from supervisor.machine import Event, Policy, State
from supervisor.memory.policy import Floor, Sample
from tests.testing.node_tool import ProcTree

FLOOR = Floor(floor_bytes=4 * GIB, hard_floor_bytes=2 * GIB, grace_s=5.0, clear_s=1.0, horizon_s=0.5, stale_s=4.0)


@dataclass
class Bench:
    """A watch whose clock and guard are the test's."""

    folder: Path
    now_s: float = 1000.0
    told: list[Sample] = field(default_factory=list)
    posted: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tree = ProcTree(self.folder / "proc", 30 * GIB)
        self.board = Board(State(policy=Policy(world_size=2)), os.getpid())
        self.watch = MemoryWatch(
            "head",
            self.tree.root,
            lambda: FLOOR,
            period_s=0.1,
            board=self.board,
            post=self.posted.append,
            guarded=self.guarded,
            clock=lambda: self.now_s,
        )

    def guarded(self, _node: str, after_s: float) -> Sequence[Sample]:
        return tuple(one for one in self.told if one.at_s > after_s)

    def says(self, at_s: float, available_bytes: int) -> None:
        self.told.append(Sample(at_s, available_bytes, available_bytes))

    def shown(self) -> tuple[float, int]:
        (memory,) = self.board.view().memory
        return memory.at_s, memory.meminfo.available_bytes


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_guard_is_believed_though_its_newest_sample_is_older_than_what_was_read_here(bench: Bench) -> None:
    bench.watch._sample()
    assert not bench.watch._calm
    bench.says(999.7, 29 * GIB)
    bench.now_s = 1000.1
    bench.watch._sample()
    assert bench.watch._calm
    assert bench.shown() == (1000.0, 30 * GIB)
    bench.tree.set(1 * GIB)  # read no more while the guard speaks
    bench.says(1000.2, 28 * GIB)
    bench.now_s = 1000.3
    bench.watch._sample()
    assert bench.shown() == (1000.2, 28 * GIB)


def test_a_guard_that_falls_silent_is_replaced_by_reading_here_before_its_last_sample_is_stale(bench: Bench) -> None:
    bench.watch._sample()
    bench.says(1000.1, 29 * GIB)
    bench.now_s = 1000.2
    bench.watch._sample()
    bench.now_s += 3.5
    assert 0.0 < bench.watch._rest_s < 0.5
    bench.watch._sample()
    assert bench.shown() == (1000.1, 29 * GIB)
    bench.now_s = 1000.1 + FLOOR.stale_s
    bench.watch._sample()
    assert bench.shown() == (bench.now_s, 30 * GIB)
    assert not bench.watch._calm
