"""Publishes the board as metrics and status: soon after each step of the machine, when somebody asks, else every few seconds.

Notices newer generations too.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from build.store import generations
from metrics.exporter import Exporter
from metrics.readings import Snapshot
from supervisor.gang.board import Board
from supervisor.gang.watchers import Watcher
from supervisor.reload.watch import stamp
from supervisor.status.built import built
from supervisor.status.snapshot import snapshot
from supervisor.status.tally import Tally
from supervisor.status.view import Serving

PERIOD_S = 15.0  # without a step of the machine only figures change, and each publishing costs milliseconds
LEAST_S = 0.25  # between two publishings, however fast the machine steps
STORE_EVERY_S = 60.0  # it changes with a build, which is noticed at the next publishing, and with `doit verify`


class Publisher(Watcher):
    """Keeps the tally of all views taken, so that totals survive restarts of the gang."""

    def __init__(self, board: Board, exporter: Exporter, state_dir: Path) -> None:
        super().__init__("publisher")
        self._board, self._exporter, self._state_dir = board, exporter, state_dir
        self._tally = Tally()
        self._publishing = threading.Lock()
        self._store_seen: tuple[object, ...] = ()
        self._store_s = 0.0
        exporter.renew_by(self._publish, lambda: board.stepped.is_set() or self._publishing.locked())

    def status(self) -> dict[str, Any]:
        """The status as of now."""
        return dict(self._publish().status)

    def _publish(self) -> Snapshot:
        with self._publishing:
            self._board.stepped.clear()
            view = self._board.view()
            self._tally = self._tally.take(view)
            taken = snapshot(view, self._tally)
            self._exporter.publish(taken)
            return taken

    def stop(self) -> None:
        """End soon."""
        super().stop()
        self._board.stepped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(LEAST_S):
            self._board.stepped.wait(PERIOD_S - LEAST_S)
            self._look_at_the_store()
            self._publish()

    def _look_at_the_store(self) -> None:
        serving, now_s = self._board.serving, time.monotonic()
        if serving is None:
            return
        seen = (stamp(generations.current_link(self._state_dir, serving.target)), serving.bundle_entry)
        if seen == self._store_seen and now_s - self._store_s < STORE_EVERY_S:
            return
        self._store_seen, self._store_s = seen, now_s
        self._board.set_newer(newer_generation(serving, self._state_dir))
        self._board.set_built(built(self._state_dir, self._state_dir / "store", serving.bundle_entry))


def newer_generation(serving: Serving, state_dir: Path) -> int | None:
    """The number of the generation that a restart would take, where the gang serves another."""
    waiting = generations.chosen_or_none(state_dir, serving.target, serving.bundle.variant)
    return waiting.number if waiting and waiting.bundle_entry != serving.bundle_entry else None
