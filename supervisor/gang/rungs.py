"""The ladder in hand: which context evictions have left, kept so that it outlives a supervisor that was lost.

``run/ladder.json`` is there while an eviction bounds the gang and goes with an orderly end: who starts anew starts at the top.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from supervisor.gang.board import Board
from supervisor.gang.watchers import Watcher
from supervisor.machine import Event, Phase, Reason
from supervisor.machine.types import RestartAsked
from supervisor.memory.ladder import Ladder, climbed, evicted, may_climb
from supervisor.runners.records import write_json

NAME = "ladder.json"
TOP = Ladder()


class Rungs:
    """Thread-safe. ``wall`` is Unix time: the ladder outlives the boot's clock."""

    def __init__(self, run_dir: Path, wall: Callable[[], float] = time.time) -> None:
        self._path, self._wall = run_dir / NAME, wall
        self._lock = threading.Lock()
        self._ladder = _read(self._path)

    @property
    def ladder(self) -> Ladder:
        """As it stands."""
        with self._lock:
            return self._ladder

    def evicted(self, served_tokens: int, least_tokens: int) -> Ladder:
        """One rung down from what was served."""
        return self._keep(evicted(self.ladder, served_tokens, least_tokens, self._wall()))

    def may_climb(self, quiet_s: float, served_since_s: float) -> bool:
        """Whether it is time to try one rung up. ``served_since_s`` is Unix time."""
        return may_climb(self.ladder, quiet_s, served_since_s, self._wall())

    def climb(self) -> Ladder:
        """One rung up."""
        return self._keep(climbed(self.ladder, self._wall()))

    def reset(self) -> None:
        """To the top: a person asked, or the supervisor ends in order."""
        with self._lock:
            self._ladder = Ladder()
            with contextlib.suppress(OSError):  # in a folder that may not be written to any more it stays
                self._path.unlink(missing_ok=True)

    def _keep(self, ladder: Ladder) -> Ladder:
        with self._lock:
            self._ladder = ladder
            write_json(self._path, dataclasses.asdict(ladder))
        return ladder


class LadderWatch(Watcher):
    """Asks for a launch one rung up once the gang has served quietly for long enough, and nothing runs just now."""

    PERIOD_S = 5.0

    def __init__(self, rungs: Rungs, board: Board, post: Callable[[Event], None], quiet_s: Callable[[], float]) -> None:
        super().__init__("ladder")
        self._rungs, self._board, self._post, self._quiet_s = rungs, board, post, quiet_s

    def _watch(self) -> None:
        while not self._stopped.wait(self.PERIOD_S):
            if self._rungs.ladder == TOP:
                continue
            view = self._board.view()
            engine = view.engine
            idle = engine is not None and engine.launch == view.state.launch and not engine.reading.busy
            if view.state.phase is not Phase.SERVING or not idle:
                continue
            served_since = view.now_unix_s - (view.now_s - view.state.since_s)
            if self._rungs.may_climb(self._quiet_s(), served_since):
                self._rungs.climb()
                self._post(RestartAsked(view.now_s, Reason.LADDER))


def _read(path: Path) -> Ladder:
    try:
        return Ladder(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Ladder()
