"""A streamed answer that its reader drops: closed once, and quiet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from build.image.docker_api import Stream


class Answer:
    """As far as a stream needs it: its socket is gone once it was closed."""

    status_code = 200

    def __init__(self) -> None:
        self.closed = 0

    def iter_content(self, _size: Any) -> Iterator[bytes]:
        yield b"one"
        yield b"two"

    def close(self) -> None:
        self.closed += 1


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_reader_that_goes_away_after_the_stream_was_closed_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Answer()
    stream = Stream(answer)
    shut = []

    def close() -> None:
        shut.append(True)
        if len(shut) > 1:
            raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(stream._chunks, "close", close)
    reader = iter(stream)
    assert next(reader) == b"one"
    stream.close()
    reader.close()  # type: ignore[attr-defined] # what the collector does
    assert len(shut) == 1
    assert answer.closed >= 1
