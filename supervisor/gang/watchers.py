"""What every watcher is: a thread that looks at one thing and posts what the machine should know."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence

from supervisor.machine import Event

Post = Callable[[Event], None]
AGAIN_S = 1.0  # a watch that broke begins anew so soon


class Watcher:
    """A thread that runs :meth:`_watch` until it is stopped."""

    def __init__(self, name: str) -> None:
        self._stopped = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End soon; :meth:`join` waits for it."""
        self._stopped.set()
        self._woken.set()

    def wake(self) -> None:
        """End the rest that the watch takes, or its next one. From any thread."""
        self._woken.set()

    def join(self, timeout_s: float = 2.0) -> None:
        """Wait for the thread's end."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        """A fault of ours is shown, and must not blind the gang: the watch begins anew."""
        while not self._stopped.is_set():
            try:
                self._watch()
                break
            except Exception:
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self._thread)))
                self._stopped.wait(AGAIN_S)

    def _rested(self, limit_s: float) -> bool:
        """Rest so long, or until it is woken. True where the watch is over."""
        self._woken.wait(limit_s)
        self._woken.clear()
        return self._stopped.is_set()

    def _watch(self) -> None:
        raise NotImplementedError


def stop_all(watchers: Sequence[Watcher | None]) -> None:
    """Stop and join what is there."""
    for watcher in watchers:
        if watcher:
            watcher.stop()
    for watcher in watchers:
        if watcher:
            watcher.join()
