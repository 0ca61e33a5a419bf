"""Waits for the ends of containers with one open request each, so that nobody has to ask the daemon again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable

from build.image.docker_api import Api

WAIT_S = 60.0  # of one request: a connection that died without a word is not trusted for longer
AGAIN_S = 1.0  # between two requests for one container, where the first told of no end
OK, GONE = 200, 404


class DockerEnds:
    """Tells that something happened to a container, never what: ``inspect`` says that. Thread-safe.

    The API's ``wait`` may hang for ever, so whoever uses this looks by himself now and then.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._changed = threading.Condition()
        self._watched: set[str] = set()
        self._told: set[str] = set()

    def told(self) -> Collection[str]:
        """Containers that have ended, or are gone, since they are watched."""
        with self._changed:
            return frozenset(self._told)

    def wait(self, keys: Iterable[str], timeout_s: float) -> None:
        """Until one of these has been told of, which ones are watched from now on, or the time is over."""
        keys = frozenset(keys)
        with self._changed:
            fresh = keys - self._watched - self._told
            self._watched |= fresh
        for key in fresh:
            self._begin(key)
        with self._changed:
            self._changed.wait_for(lambda: not self._told.isdisjoint(keys), timeout_s)

    def again(self, key: str) -> None:
        """It was told of, and lives: watch it anew, after a pause, since a daemon that is wrong once may be so again at once."""
        with self._changed:
            if key not in self._told:
                return
            self._told.discard(key)
            self._watched.add(key)
        self._begin(key, AGAIN_S)

    def forget(self, key: str) -> None:
        """Watch it no more. A request that waits for it yet ends with its container, or after a minute."""
        with self._changed:
            self._watched.discard(key)
            self._told.discard(key)

    def close(self) -> None:
        """Watch nothing any more."""
        with self._changed:
            self._watched.clear()

    def _begin(self, key: str, pause_s: float = 0.0) -> None:
        threading.Thread(target=self._watch, args=(key, pause_s), name="container end", daemon=True).start()

    def _watch(self, key: str, pause_s: float) -> None:
        time.sleep(pause_s)
        while self._watches(key):
            began_s = time.monotonic()
            if self._has_ended(key):
                self._tell(key)
                return
            time.sleep(max(0.0, AGAIN_S - (time.monotonic() - began_s)))

    def _watches(self, key: str) -> bool:
        with self._changed:
            return key in self._watched

    def _has_ended(self, key: str) -> bool:
        """False where no answer comes in time, the daemon has gone, or it is in trouble; a fault must not blind for ever."""
        try:
            answer = self._api.post(f"/containers/{key}/wait", {"condition": "not-running"}, timeout_s=WAIT_S)
        except Exception:
            return False
        return answer.status in (OK, GONE)

    def _tell(self, key: str) -> None:
        with self._changed:
            if key in self._watched:
                self._watched.discard(key)
                self._told.add(key)
                self._changed.notify_all()
