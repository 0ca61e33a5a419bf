"""What a build says: one line a task, progress for what takes over a second, one closing line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

FIRST_S = 1.0
TERMINAL_EVERY_S = 0.2
PLAIN_EVERY_S = 5.0  # in a file or a pipe each line stays, so they come ever more seldom
PLAIN_LONGEST_S = 60.0
NAME_WIDTH = 26


def short(entry: str) -> str:
    """A store entry for people: the key's first digits and the name."""
    key, _, name = entry.partition("-")
    return f"{key[:8]}…-{name}"


class Report:
    """Writes lines to one stream; safe to use from threads. On a terminal the progress line is updated in place."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._guard = threading.Lock()
        self._running: dict[str, float] = {}
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None
        self._extra: Callable[[], str] | None = None

    def extra(self, text: Callable[[], str]) -> None:
        """What a running task says of itself from now on, asked for whenever progress is shown."""
        with self._guard:
            self._extra = text

    def line(self, text: str) -> None:
        """One whole line."""
        with self._guard:
            self._clear()
            self._stream.write(text + "\n")
            self._stream.flush()

    def built(self, name: str, duration_s: float, entry: str) -> None:
        """The line of a task that was executed."""
        self.line(f"built   {name:<{NAME_WIDTH}} {duration_s:6.1f} s   {short(entry)}")

    @contextmanager
    def running(self, name: str, doing: str = "building") -> Iterator[None]:
        """Show that ``name`` is being worked on, from its first second on."""
        shown = f"{doing} {name}"
        with self._guard:
            self._running[shown] = time.monotonic()
            if self._ticker is None:
                self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)
                self._ticker.start()
        try:
            yield
        finally:
            with self._guard:
                del self._running[shown]
                self._extra = None
                self._clear()

    def close(self) -> None:
        """End the progress line."""
        self._stop.set()
        if self._ticker is not None:
            self._ticker.join()
            self._ticker = None
            self._stop.clear()

    def _tick(self) -> None:
        every = TERMINAL_EVERY_S if self._terminal else PLAIN_EVERY_S
        wait = FIRST_S
        while not self._stop.wait(wait):
            wait = every
            every = every if self._terminal else min(2 * every, PLAIN_LONGEST_S)
            with self._guard:
                now = time.monotonic()
                slow = [f"{n} {now - since:.0f} s" for n, since in sorted(self._running.items()) if now - since >= FIRST_S]
                if slow:
                    more = self._extra() if self._extra else ""
                    self._show(", ".join([*slow, *([more] if more else [])]))

    def _show(self, text: str) -> None:
        self._stream.write(f"\r\x1b[2K{text}" if self._terminal else text + "\n")
        self._stream.flush()

    def _clear(self) -> None:
        if self._terminal:
            self._stream.write("\r\x1b[2K")
