"""`supervisor status --watch`: frames of a terminal's width, with curves of what was seen."""

from __future__ import annotations

import io
from typing import Any

import pytest

from supervisor.status.watch import Curves, bars, frame, watch
from tests.testing.browser import pair


def status(**changes: Any) -> dict[str, Any]:
    return {**pair(1000.0).status, **changes}


def test_bars_go_from_nothing_to_the_highest() -> None:
    assert bars([0.0, 4.0, 8.0], 10) == " ▄█"
    assert bars([1.0, 2.0, -1.0], 2) == "█!"
    assert bars([0.0, 0.0], 4) == "  "
    assert bars([], 4) == ""


def test_a_frame_shows_state_curves_and_ends_within_the_width() -> None:
    curves = Curves()
    for rate in (10.0, 40.0):
        curves.add(status(throughput={**pair(1000.0).status["throughput"], "decode_tokens_per_s": rate}))
    shown = frame(status(), curves, 80)
    assert shown.startswith("serving for 3 h 12 min")
    assert "▂█ 40.0" in shown
    assert "headroom spark-b" in shown
    assert "rank exit rank 1: signal 9 (rank 0: signal 9" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_stopped_gang_can_be_watched_too() -> None:
    curves = Curves()
    curves.add({"state": "stopped", "ranks": []})
    assert frame({"state": "stopped", "ranks": []}, curves, 60).startswith("stopped")


def test_watching_goes_on_until_it_is_interrupted() -> None:
    out, turns = io.StringIO(), iter([None, None])

    def sleep(_seconds: float) -> None:
        if next(turns, "end") == "end":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(status, out, sleep=sleep)
    assert out.getvalue().count("serving for") == 3
    assert "\x1b" not in out.getvalue()
