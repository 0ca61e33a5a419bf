"""Frames, cursors and following: nothing lost, nothing twice, wherever a stream breaks off."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from supervisor.runners.docker_log import BUFFER_BYTES, Cursor, Follower, Message, messages, parse_cursor, take, texts, unread

PATIENCE_S = 30.0


def _stamp(number: int) -> str:
    return f"2026-01-01T00:00:{number // 10:02d}.{number % 10:09d}Z"


def _frame(stamp: str, data: bytes) -> bytes:
    text = stamp.encode() + b" " + data
    return b"\x01\x00\x00\x00" + len(text).to_bytes(4, "big") + text


LOGS = st.lists(st.tuples(st.integers(0, 20), st.binary(max_size=6)), max_size=12).map(
    lambda rows: [Message(_stamp(at), data) for at, data in sorted(rows, key=lambda row: row[0])]
)


def _served(log: list[Message], cursor: Cursor) -> list[Message]:
    """What the daemon sends from a cursor: every message that is not older."""
    return [one for one in log if one.stamp >= cursor.stamp]


@given(LOGS, st.integers(1, 9))
def test_frames_are_found_however_the_body_is_cut(log: list[Message], size: int) -> None:
    body = b"".join(_frame(one.stamp, one.data) for one in log)
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    assert list(messages(parts)) == log
    assert list(messages([body[:-1]])) == log[:-1]


@given(st.lists(st.binary(max_size=6), max_size=12), st.integers(1, 9))
def test_texts_without_stamps_are_whole_however_the_body_is_cut(log: list[bytes], size: int) -> None:
    body = b"".join(b"\x02\x00\x00\x00" + len(text).to_bytes(4, "big") + text for text in log)
    assert b"".join(texts(body[at : at + size] for at in range(0, len(body), size))) == b"".join(log)
    assert b"".join(texts([body[:-1]])) == b"".join(log[:-1])


@given(LOGS, st.lists(st.integers(0, 5), max_size=6))
def test_reading_on_from_any_cursor_gives_each_message_once(log: list[Message], breaks: list[int]) -> None:
    cursor, seen = Cursor(), []
    for count in [*breaks, len(log)]:
        for number, (message, after) in enumerate(unread(_served(log, cursor), cursor)):
            if number == count:
                break
            seen.append(message)
            cursor = parse_cursor(str(after))
    assert seen == log


def test_a_message_that_is_stamped_before_its_forerunner_is_kept() -> None:
    log = [Message(_stamp(5), b"err"), Message(_stamp(4), b"out"), Message(_stamp(6), b"x")]
    found = list(unread(log, Cursor()))
    assert [message.data for message, _ in found] == [b"err", b"out", b"x"]
    assert [message.data for message, _ in unread(_served(log, found[1][1]), found[1][1])] == [b"x"]


def test_since_keeps_nanoseconds() -> None:
    assert Cursor("2026-01-01T00:00:01.000000002Z", 1).since == "1767225601.000000002"
    assert Cursor("2026-01-01T00:00:01Z", 1).since == "1767225601.000000000"
    assert Cursor().since == "0"


def test_an_unreadable_cursor_is_the_beginning() -> None:
    for text in ("", "x", "/1", "2026/x"):
        assert parse_cursor(text) == Cursor()


def test_a_chunk_ends_after_about_a_mebibyte() -> None:
    log = [Message(_stamp(at), b"x" * 300_000) for at in range(9)]
    first = take(unread(log, Cursor()), Cursor())
    assert len(first.data) == 1_200_000
    at = parse_cursor(first.cursor)
    assert len(take(unread(_served(log, at), at), at).data) == 1_200_000


class _Stream:
    """A body of some messages that then ends silently, or stays open until closed."""

    def __init__(self, log: list[Message], stays: bool) -> None:
        self._log, self._stays = log, stays
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        for one in self._log:
            yield _frame(one.stamp, one.data)
        if self._stays:
            self.closed.wait(PATIENCE_S)

    def close(self) -> None:
        self.closed.set()


def _read_all(follower: Follower, size: int) -> bytes:
    found, end = b"", time.monotonic() + PATIENCE_S
    while len(found) < size:
        assert time.monotonic() < end, found
        found += follower.read().data
        time.sleep(0.005)
    return found


def test_a_stream_that_ends_silently_is_opened_again_where_it_ended() -> None:
    log = [Message(_stamp(at), b"%02d" % at) for at in range(20)]
    opened: list[Cursor] = []

    def open_stream(cursor: Cursor) -> _Stream:
        opened.append(cursor)
        if len(opened) == 2:
            raise ConnectionError("the daemon is restarting")
        return _Stream(_served(log, cursor)[:5], stays=False)

    follower = Follower(Cursor(), open_stream, lambda: True)
    assert _read_all(follower, 40) == b"".join(one.data for one in log)
    assert len(opened) >= 4
    assert str(follower.cursor) == f"{_stamp(19)}/1"
    follower.close()


def test_following_ends_with_the_rank() -> None:
    follower = Follower(Cursor(), lambda _at: _Stream([Message(_stamp(1), b"last")], stays=False), lambda: False)
    follower._thread.join(PATIENCE_S)
    assert not follower._thread.is_alive()
    assert follower.read().data == b"last"
    follower.close()


def test_closing_ends_a_quiet_stream() -> None:
    stream = _Stream([Message(_stamp(1), b"x")], stays=True)
    follower = Follower(Cursor(), lambda _at: stream, lambda: True)
    _read_all(follower, 1)
    follower.close()
    assert stream.closed.is_set()
    assert not follower._thread.is_alive()


def test_a_reader_that_stays_away_bounds_what_is_kept() -> None:
    size = 100_000
    total = 2 * BUFFER_BYTES // size
    log = [Message(_stamp(at), b"x" * size) for at in range(total)]
    follower = Follower(Cursor(), lambda at: _Stream(_served(log, at), stays=True), lambda: True)
    end = time.monotonic() + PATIENCE_S
    while follower._buffered_bytes < BUFFER_BYTES:
        assert time.monotonic() < end
        time.sleep(0.005)
    assert follower._buffered_bytes <= BUFFER_BYTES + size
    assert len(_read_all(follower, total * size)) == total * size
    follower.close()
