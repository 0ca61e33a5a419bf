"""Decides on each change: refused and reported, taken at once, or kept waiting for a restart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from build.errors import TwinfoldError
from build.locks import lockfile
from build.settings import Sources
from supervisor.configuration import Configuration, configure
from supervisor.gang.board import Board
from supervisor.gang.launch import blueprint
from supervisor.reload.plan import plan
from supervisor.status.view import ReloadView


class Running(Protocol):
    """The supervisor, as far as settings go. ``changing`` is held while they change."""

    changing: threading.Lock

    @property
    def sources(self) -> Sources:
        """What settings are read from."""

    @property
    def configuration(self) -> Configuration:
        """What counts now, and at a launch that comes by itself."""

    def take(self, one: Configuration) -> None:
        """Let live settings count."""

    def relaunch(self, one: Configuration) -> None:
        """Replace the gang by one of this configuration."""


class Reloads:
    """One supervisor's reloads, shown on the board and said once each."""

    def __init__(self, running: Running, board: Board, say: Callable[[str, str], None], lock: Path) -> None:
        self._running, self._board, self._say, self._lock = running, board, say, lock
        self._shown = ReloadView()

    def consider(self) -> None:
        """Read everything anew; a fault of any of it changes nothing."""
        with self._running.changing:
            try:
                self._take(configure(self._running.sources))
            except TwinfoldError as error:
                self._show(ReloadView(refused=str(error), waiting=self._shown.waiting))

    def _take(self, wanted: Configuration) -> None:
        mode = wanted.restarts.reload
        if mode == "off":
            self._show(ReloadView())
            return
        found = plan(self._running.configuration, wanted)
        newer = self._newer_generation(wanted)
        if found.live:
            self._say("settings that count from now on: " + "; ".join(map(str, found.live)), "info")
            self._running.take(found.taken)
        waiting = (*map(str, found.restart), *newer)
        if waiting and mode == "restart":
            self._say("restarting for " + "; ".join(waiting), "info")
            self._running.relaunch(wanted)
            waiting = ()
        self._show(ReloadView(waiting=waiting))

    def _newer_generation(self, wanted: Configuration) -> tuple[str, ...]:
        """Checks all that a launch would: the lock, the current generation, and that the engine takes the settings."""
        if self._lock.exists():
            lockfile.read(self._lock)
        one, view = blueprint(wanted), self._board.view()
        one.commands(1)
        one.check_store()
        one.check_world(view.state.policy.world_size)
        if view.serving is None or view.serving.bundle_entry == one.bundle_entry:
            return ()
        return (f"generation: {view.serving.generation} -> {one.generation} (current)",)

    def _show(self, view: ReloadView) -> None:
        if view == self._shown:
            return
        if view.refused and view.refused != self._shown.refused:
            self._say(f"a change is refused, and the settings stay as they are: {view.refused}", "error")
        elif view.waiting and view.waiting != self._shown.waiting:
            self._say("waiting for `supervisor restart`: " + "; ".join(view.waiting), "info")
        self._shown = view
        self._board.set_reload(view)
