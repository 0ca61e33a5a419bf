"""The supervisor's words: a log on stderr, one line an event with its UTC time; on stdout only that the gang is ready."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO


class TextVoice:
    """Writes lines as they come; a reader that has gone away silences it, and does not stop the gang."""

    def __init__(
        self, out: TextIO, err: TextIO, *, verbose: bool = False, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._out, self._err, self._verbose, self._now = out, err, verbose, now
        self._lock = threading.Lock()

    def say(self, text: str, level: str = "info") -> None:
        """One line; ``level`` is debug, info, warning or error, and shown where it is one of the last two."""
        if level == "debug" and not self._verbose:
            return
        word = f"{level}: " if level in {"warning", "error"} else ""
        line = " ".join(text.split("\n"))
        self._write(self._err, f"{self._now():%Y-%m-%dT%H:%M:%SZ} {word}{line}")

    def ready(self, served_name: str, url: str) -> None:
        """The line that people and scripts wait for."""
        self._write(self._out, f"READY {served_name} {url}")

    def _write(self, stream: TextIO, line: str) -> None:
        with self._lock:
            try:
                stream.write(line + "\n")
                stream.flush()
            except (OSError, ValueError):
                return
