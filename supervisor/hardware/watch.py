"""Reads one node's hardware now and then: a slow or lost node costs nobody else anything, its readings just grow old."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from build.errors import TwinfoldError
from build.nodes.node import Node
from supervisor.gang.board import Board
from supervisor.gang.watchers import Watcher
from supervisor.hardware.facts import read_hardware
from supervisor.hardware.script import SCRIPT

DEADLINE_S = 20.0


class HardwareWatch(Watcher):
    """``roots`` are the node's proc and sys trees; ``paths`` tells the store and the Engram folder ("" for none)."""

    def __init__(
        self,
        node: Node,
        board: Board,
        *,
        roots: tuple[PurePath, PurePath],
        paths: Callable[[], tuple[str, str]],
        period_s: float,
    ) -> None:
        super().__init__(f"hardware-{node.name}")
        self._node, self._board, self._roots, self._paths, self._period_s = node, board, roots, paths, period_s

    def _watch(self) -> None:
        while True:
            self._look()
            if self._stopped.wait(self._period_s):
                return

    def _look(self) -> None:
        try:
            done = self._node.run(self._argv(), DEADLINE_S)
            self._board.set_hardware(self._node.name, read_hardware(done.text))
        except (TwinfoldError, OSError, ValueError):
            self._board.set_hardware(self._node.name, None)

    def _argv(self) -> Sequence[str]:
        return ["sh", "-c", SCRIPT, "hardware", *map(str, self._roots), *self._paths()]
