"""The supervisor's words: a log on stderr, one line an event with its UTC time; on stdout only that the gang is ready.

For people a line is text; for a journal it is one JSON object (``time``, ``level``, ``message``; with READY also ``model`` and
``url``), so that fields need not be cut out of prose.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol, TextIO

from supervisor.systemd.notify import under_systemd


class Form(Protocol):
    """How a line is written."""

    def line(self, at: datetime, level: str, text: str) -> str:
        """An event of the log."""

    def ready(self, at: datetime, served_name: str, url: str) -> str:
        """The gang serves."""


class Text:
    """For people."""

    def line(self, at: datetime, level: str, text: str) -> str:
        """``2026-01-31T12:00:00Z warning: …``; the level is only shown where it is one to look at."""
        word = f"{level}: " if level in {"warning", "error"} else ""
        return f"{at:%Y-%m-%dT%H:%M:%SZ} {word}" + " ".join(text.split("\n"))

    def ready(self, _at: datetime, served_name: str, url: str) -> str:
        """The line that people and scripts wait for."""
        return f"READY {served_name} {url}"


class Json:
    """For programs: one object a line."""

    def line(self, at: datetime, level: str, text: str) -> str:
        """The event as an object."""
        return json.dumps({"time": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z", "level": level, "message": text}, ensure_ascii=False)

    def ready(self, at: datetime, served_name: str, url: str) -> str:
        """As an event, with the model id and the address as fields of their own."""
        told = {"message": f"READY {served_name} {url}", "model": served_name, "url": url}
        return json.dumps({"time": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z", "level": "info", **told}, ensure_ascii=False)


def form(log_format: str, environ: Mapping[str, str], *, terminal: bool) -> Form:
    """The form that a setting asks for; ``auto`` is JSON where systemd reads the lines and no terminal does."""
    if log_format == "auto":
        return Json() if under_systemd(environ) and not terminal else Text()
    return Json() if log_format == "json" else Text()


class TextVoice:
    """Writes lines as they come; a reader that has gone away silences it, and does not stop the gang."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        verbose: bool = False,
        form: Form | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._out, self._err, self._verbose, self._now = out, err, verbose, now
        self._form = form or Text()
        self._lock = threading.Lock()

    def say(self, text: str, level: str = "info") -> None:
        """One line; ``level`` is debug, info, warning or error."""
        if level == "debug" and not self._verbose:
            return
        self._write(self._err, self._form.line(self._now(), level, text))

    def ready(self, served_name: str, url: str) -> None:
        """Say that the gang serves."""
        self._write(self._out, self._form.ready(self._now(), served_name, url))

    def _write(self, stream: TextIO, line: str) -> None:
        with self._lock:
            try:
                stream.write(line + "\n")
                stream.flush()
            except (OSError, ValueError):
                return
