"""A container's output: frames, cursors, and following that starts again wherever it broke off.

The daemon sends one frame per message: a stream number, a length, and a time stamp before the text. A cursor is that stamp and
how many messages bearing it were read, because the parts of a long line share one. Followed streams end silently now and then
(a restarted daemon, a rotated file), so the stream is opened again from the cursor, and nothing comes twice.
"""

from __future__ import annotations

import calendar
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from supervisor.runners.protocol import LogChunk

HEADER_BYTES = 8  # stream number, three zeros, length as big-endian u32
CHUNK_BYTES = 1 << 20
BUFFER_BYTES = 4 << 20
REOPEN_S = 0.2


class LogStream(Protocol):
    """The body of a log request."""

    def __iter__(self) -> Iterator[bytes]: ...

    def close(self) -> None:
        """End the iteration, from any thread."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message: when it was written (RFC 3339, nanoseconds) and its bytes, a newline included where the line ended."""

    stamp: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Cursor:
    """Everything before ``stamp``, and ``count`` messages of it, were read. An empty stamp is the beginning."""

    stamp: str = ""
    count: int = 0

    def __str__(self) -> str:
        return f"{self.stamp}/{self.count}" if self.stamp else ""

    @property
    def since(self) -> str:
        """For the API's ``since``: Unix seconds with nanoseconds, inclusive."""
        if not self.stamp:
            return "0"
        whole, _, fraction = self.stamp.rstrip("Z").partition(".")
        return f"{calendar.timegm(time.strptime(whole, '%Y-%m-%dT%H:%M:%S'))}.{fraction:0<9}"

    def after(self, message: Message) -> Cursor:
        """Where one stands when the message has been read. Standard output and error are stamped apart, so one may come late."""
        if message.stamp < self.stamp:
            return self
        return Cursor(message.stamp, self.count + 1 if message.stamp == self.stamp else 1)


def parse_cursor(text: str) -> Cursor:
    """A cursor from its text; anything else is the beginning."""
    stamp, _, count = text.rpartition("/")
    return Cursor(stamp, int(count)) if stamp and count.isdigit() else Cursor()


def messages(parts: Iterable[bytes]) -> Iterator[Message]:
    """Every whole frame of a body that was asked for with time stamps. A cut-off last one is left out: it will come again."""
    for found in _frames(parts):
        for stamp, _, data in (frame.partition(b" ") for frame in found):
            yield Message(stamp.decode("ascii", "replace"), data)


def texts(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The text of every whole frame of a body that was asked for without time stamps; the frames of a part are joined."""
    yield from (b"".join(found) for found in _frames(parts) if found)


def _frames(parts: Iterable[bytes]) -> Iterator[list[bytes]]:
    """What stands in the frames that each part ends."""
    pending = b""
    for part in parts:
        pending += part
        at, found = 0, list[bytes]()
        while len(pending) - at >= HEADER_BYTES:
            end = at + HEADER_BYTES + int.from_bytes(pending[at + 4 : at + HEADER_BYTES], "big")
            if end > len(pending):
                break
            found.append(pending[at + HEADER_BYTES : end])
            at = end
        pending = pending[at:]
        yield found


def unread(found: Iterable[Message], cursor: Cursor) -> Iterator[tuple[Message, Cursor]]:
    """Messages beyond the cursor with the cursor after each. A stream from ``cursor.since`` begins with those read already."""
    skipping, seen = bool(cursor.stamp), Cursor()
    for message in found:
        seen = seen.after(message)
        skipping = skipping and (message.stamp < cursor.stamp or (seen.stamp == cursor.stamp and seen.count <= cursor.count))
        if not skipping:
            cursor = cursor.after(message)
            yield message, cursor


def take(found: Iterable[tuple[Message, Cursor]], cursor: Cursor) -> LogChunk:
    """At most about a mebibyte of messages as one chunk."""
    parts: list[bytes] = []
    size = 0
    for message, after in found:
        parts.append(message.data)
        cursor = after
        size += len(message.data)
        if size >= CHUNK_BYTES:
            break
    return LogChunk(b"".join(parts), str(cursor))


class Follower:
    """Reads one container's log on a thread of its own into a bounded buffer, and opens the stream again when it ends.

    ``open_stream`` takes a cursor and gives a body that goes on while the container runs; ``runs`` says whether it does.
    """

    def __init__(self, cursor: Cursor, open_stream: Callable[[Cursor], LogStream], runs: Callable[[], bool]) -> None:
        self.cursor = cursor  # of the reader: where the next chunk starts
        self._reached = cursor  # of the thread
        self._open, self._runs = open_stream, runs
        self._buffer: deque[tuple[Message, Cursor]] = deque()
        self._buffered_bytes = 0
        self._stream: LogStream | None = None
        self._closed = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="container log", daemon=True)
        self._thread.start()

    def read(self) -> LogChunk:
        """What has come since the last call; returns at once."""
        with self._changed:
            found: list[tuple[Message, Cursor]] = []
            size = 0
            while self._buffer and size < CHUNK_BYTES:
                found.append(self._buffer.popleft())
                size += len(found[-1][0].data)
            self._buffered_bytes -= size
            self._changed.notify_all()
        self.cursor = found[-1][1] if found else self.cursor
        return LogChunk(b"".join(message.data for message, _ in found), str(self.cursor))

    def close(self) -> None:
        """End the thread and its connection."""
        with self._changed:
            self._closed.set()
            stream = self._stream
            self._changed.notify_all()
        if stream is not None:
            stream.close()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(Exception):  # a broken stream is opened again, whatever broke it
                self._follow_once()
            with self._changed:
                self._stream = None
            if not self._closed.is_set() and not self._runs():
                return
            with self._changed:
                self._changed.wait_for(self._closed.is_set, REOPEN_S)

    def _follow_once(self) -> None:
        stream = self._open(self._reached)
        with self._changed:
            self._stream = stream
            if self._closed.is_set():
                stream.close()
                return
        for message, after in unread(messages(stream), self._reached):
            with self._changed:
                self._changed.wait_for(lambda: self._closed.is_set() or self._buffered_bytes < BUFFER_BYTES)
                if self._closed.is_set():
                    return
                self._buffer.append((message, after))
                self._buffered_bytes += len(message.data)
                self._reached = after
