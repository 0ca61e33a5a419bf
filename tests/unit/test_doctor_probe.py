"""What the node tool says of its probes, as an outcome."""

from __future__ import annotations

import json

import pytest

from supervisor.doctor.probe import outcome


def said(**counts: int) -> str:
    return json.dumps({"size": 8972, "sent": 5, "received": 0, "lost": 0, "too_big": 0, "refused": 0, "unreachable": 0} | counts)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (said(received=5), "ok"),
        (said(received=1, lost=4), "ok"),  # a busy machine loses packets; a path that is too narrow loses all of them
        (said(lost=5), "5 lost"),
        (said(received=1, too_big=4), "4 too_big"),
        (said(refused=3, unreachable=2), "3 refused, 2 unreachable"),
        (said(), "lost"),
        ("", "no answer"),
        ("no such file\n", "no answer 'no such file'"),
    ],
)
def test_the_outcome_of_probes(printed: str, expected: str) -> None:
    assert outcome(printed) == expected
