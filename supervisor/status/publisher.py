"""Publishes the board as metrics and status, once a second and soon after each step of the machine; notices newer generations."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from build.store import generations
from metrics.exporter import Exporter
from metrics.readings import Snapshot
from supervisor.gang.board import Board
from supervisor.gang.watchers import Watcher
from supervisor.status.built import built
from supervisor.status.snapshot import snapshot
from supervisor.status.tally import Tally
from supervisor.status.view import View

PERIOD_S = 0.25
QUIET = 4  # periods without a step of the machine after which the figures alone are published
GENERATION_EVERY = 20  # periods


class Publisher(Watcher):
    """Keeps the tally of all views taken, so that totals survive restarts of the gang."""

    def __init__(self, board: Board, exporter: Exporter, state_dir: Path) -> None:
        super().__init__("publisher")
        self._board, self._exporter, self._state_dir = board, exporter, state_dir
        self._tally = Tally()
        self._publishing = threading.Lock()

    def status(self) -> dict[str, Any]:
        """The status as of now."""
        return dict(self._publish().status)

    def _publish(self) -> Snapshot:
        with self._publishing:
            view = self._board.view()
            self._tally = self._tally.take(view)
            taken = snapshot(view, self._tally)
            self._exporter.publish(taken)
            return taken

    def _watch(self) -> None:
        periods, shown = 0, None
        while not self._stopped.wait(PERIOD_S):
            if periods % GENERATION_EVERY == 0:
                self._look_at_the_store()
            state = self._board.state
            if state is not shown or periods % QUIET == 0:
                shown = state
                self._publish()
            periods += 1

    def _look_at_the_store(self) -> None:
        view = self._board.view()
        self._board.set_newer(newer_generation(view, self._state_dir))
        if view.serving is not None:
            self._board.set_built(built(self._state_dir, self._state_dir / "store", view.serving.bundle_entry))


def newer_generation(view: View, state_dir: Path) -> int | None:
    """The number of the generation that a restart would take, where the gang serves another."""
    if view.serving is None:
        return None
    waiting = generations.chosen_or_none(state_dir, view.serving.target, view.serving.bundle.variant)
    return waiting.number if waiting and waiting.bundle_entry != view.serving.bundle_entry else None
