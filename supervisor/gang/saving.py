"""Ended launches until their logs are saved and their ranks removed; what cannot be now is tried again before the next launch.

A daemon that restarts, a disk that is full or a worker that is away at the wrong moment must neither lose what a rank printed nor
leave its container in the next one's way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from build.errors import TwinfoldError
from supervisor import service
from supervisor.configuration import Configuration
from supervisor.gang import logs
from supervisor.guard.guards import Guards
from supervisor.machine import types as machine
from supervisor.runners.protocol import RankHandle, Runner

ORDERLY = frozenset({machine.Reason.STOP, machine.Reason.ASKED, machine.Reason.LADDER})  # nobody looks for a cause


@dataclass(slots=True)
class Unsaved:
    """A launch whose ranks have all ended. ``written``: its files are there, and only its ranks are left to remove."""

    configuration: Configuration
    handles: tuple[RankHandle, ...]
    ended: logs.Ended
    written: bool = False


def keeping(configuration: Configuration) -> logs.Keeping:
    """Where the configuration wants logs to go."""
    one = configuration.logs
    return logs.Keeping(one.folder(configuration.state_dir), one.log_keep, one.rank_log_max_mib << 20)


class Saver:
    """One at a time saves: who comes while another saves waits for it. ``where`` says where logs go under a configuration."""

    def __init__(self, runner: Runner, guards: Guards, where: Callable[[Configuration], logs.Keeping]) -> None:
        self._runner, self._guards, self._where = runner, guards, where
        self._unsaved: list[Unsaved] = []
        self._saving = threading.Lock()

    def add(self, one: Unsaved) -> None:
        """A launch has ended."""
        self._unsaved.append(one)

    def settle(self) -> str:
        """Save what there is; "" where nothing is left, else what is in the way of the oldest."""
        with self._saving:
            for one in tuple(self._unsaved):
                try:
                    self._save(one)
                except (OSError, TwinfoldError) as error:
                    return f"the logs of launch {one.ended.launch_id} could not be saved and stay where they are: {error}"
                self._unsaved.remove(one)
        return ""

    def _save(self, one: Unsaved) -> None:
        if not one.written:
            evidence = {} if one.ended.reason in ORDERLY else {h.rank: self._guards.evidence(h.rank) for h in one.handles}
            logs.save(self._runner, one.handles, one.ended, self._where(one.configuration), evidence)
            one.written = True
        self._guards.end()
        for handle in one.handles:
            self._runner.remove(handle)
        service.release_root(one.configuration.state_dir, one.ended.launch_id)
