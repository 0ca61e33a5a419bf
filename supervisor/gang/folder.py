"""Tells when the state folder is taken away under a gang that serves: nothing else would, since ranks need it only to start."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from build.errors import Refused
from supervisor.gang import identity
from supervisor.gang.watchers import Watcher
from supervisor.runners.protocol import Owner

LOOK_EVERY_S = 5.0


class FolderWatch(Watcher):
    """Says once that the folder is gone, or is another, and once that it is back."""

    def __init__(self, state_dir: Path, owner: Owner, say: Callable[[str, str], None], show_lost: Callable[[bool], None]) -> None:
        super().__init__("folder")
        self._state_dir, self._owner, self._say, self._show_lost = state_dir, owner, say, show_lost
        self._there = True

    def _watch(self) -> None:
        while not self._stopped.wait(LOOK_EVERY_S):
            there = self._is_there()
            if there != self._there:
                self._there = there
                self._show_lost(not there)
                self._tell()

    def _is_there(self) -> bool:
        try:
            found = identity.read(self._state_dir)
        except Refused:
            return False
        return found is not None and found.id == self._owner.id

    def _tell(self) -> None:
        if self._there:
            self._say(f"the state folder {self._state_dir} is back", "info")
            return
        self._say(
            f"the state folder {self._state_dir} was removed or replaced: the gang serves on, but cannot start again, no command"
            f" reaches this supervisor, and logs of ranks that are processes are lost; `kill {os.getpid()}` ends all in order",
            "error",
        )
