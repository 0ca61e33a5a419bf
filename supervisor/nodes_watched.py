"""What looks at every node of a run by itself: the head's memory, the workers', and everybody's hardware."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from build.nodes.hosts import HEAD
from build.nodes.node import Node
from supervisor.configuration import Configuration
from supervisor.doctor.inquiry import inquire
from supervisor.fleet.memory import far_meminfo
from supervisor.gang.board import Board
from supervisor.gang.gang import Gang
from supervisor.gang.memory_watch import FarMemoryWatch, MemoryWatch
from supervisor.gang.watchers import Watcher
from supervisor.guard.guards import Guards
from supervisor.hardware.watch import HardwareWatch
from supervisor.machine import Event
from supervisor.memory.policy import Floor


@dataclass(frozen=True, slots=True)
class NodeWatches:
    """Makes them for one run. ``configure`` gives what counts now."""

    configure: Callable[[], Configuration]
    gang: Gang
    board: Board
    guards: Guards
    post: Callable[[Event], None]

    def over(self, stack: contextlib.ExitStack) -> Iterator[Watcher]:
        """The head's memory; every node's hardware and the workers' memory.

        Each node has a connection of its own for it, closed by the stack, so that a slow answer keeps nobody else from a worker.
        """
        one = self.configure()
        yield self._woken(MemoryWatch(HEAD, one.memory.proc_root, self.floor, **self._watching), HEAD)
        inquiry = inquire(one)
        for host, node in zip(inquiry.hosts, inquiry.open().values(), strict=True):
            stack.callback(node.close)
            if host.name == HEAD:
                yield self._hardware(node, (one.memory.proc_root, one.memory.sys_root))
                continue
            there = (PurePosixPath(one.links.worker_proc_root), PurePosixPath(one.links.worker_sys_root))
            yield self._hardware(node, there)
            far = FarMemoryWatch(host.name, self.floor, functools.partial(far_meminfo, node, there[0]), **self._watching)
            yield self._woken(far, host.name)

    def floor(self) -> Floor:
        """Floors are those that the launch in hand was planned with; patience is what counts now."""
        plan, now = self.gang.plan, self.configure().memory
        launched = plan.blueprint.configuration.memory if plan else now
        return Floor(
            launched.floor_bytes,
            launched.hard_floor_bytes,
            now.floor_grace_s,
            launched.slope_horizon_s,
            now.sample_stale_s,
            now.floor_clear_s,
        )

    def _woken(self, watch: MemoryWatch, node: str) -> MemoryWatch:
        self.guards.wake(node, watch.wake)
        return watch

    @property
    def _watching(self) -> dict[str, Any]:
        """What every node's memory watch is given."""
        period_s = self.configure().memory.sample_period_s
        return {"period_s": period_s, "board": self.board, "post": self.post, "guarded": self.guards.samples}

    def _hardware(self, node: Node, roots: tuple[PurePath, PurePath]) -> HardwareWatch:
        paths = functools.partial(_store_and_engram, node.store, self.board)
        period_s = self.configure().metrics.hardware_period_s
        return HardwareWatch(node, self.board, roots=roots, paths=paths, period_s=period_s)


def _store_and_engram(store: PurePosixPath, board: Board) -> tuple[str, str]:
    serving = board.view().serving
    engram = serving.bundle.engram if serving else None
    return str(store), str(engram.under(Path(store))) if engram else ""
