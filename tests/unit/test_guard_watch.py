"""Guards that are lost: replaced, given up after vain tries in a row, forgiven where they lasted."""

from __future__ import annotations

from typing import cast

import pytest

from supervisor.guard.host import GuardHost
from supervisor.guard.spec import GuardSpec, Lease, Limits
from supervisor.guard.watch import LASTS_S, STARTS, GuardWatch
from supervisor.machine import Event
from supervisor.machine.types import GuardLost

SPEC = GuardSpec(
    launch_id="l1",
    rank=1,
    node="worker",
    pid=1,
    start_ticks=1,
    limits=Limits(hard_bytes=1, soft_bytes=2, horizon_s=0.5, period_s=0.1, proc="/proc", orphan_s=600, stop_timeout_s=30),
    supervised=False,
    lease=Lease(),
)


class Host:
    """A node whose guards start well and are gone at once."""

    silent_s = 15.0

    def __init__(self) -> None:
        self.started = 0

    def start(self, _spec: GuardSpec, _secret: bytes) -> None:
        self.started += 1

    def running(self, _launch_id: str, _rank: int) -> bool:
        return False

    def connect(self, _launch_id: str, _rank: int) -> None:
        return None

    def kill(self, _launch_id: str, _rank: int) -> None:
        """Nothing runs."""


@pytest.mark.parametrize(("apart_s", "lost"), [(1.0, True), (LASTS_S + 1.0, False)])
def test_only_guards_that_are_lost_in_a_row_end_the_gang(apart_s: float, lost: bool) -> None:
    now, told, host = [0.0], list[Event](), Host()
    watch = GuardWatch(
        {"worker": cast("GuardHost", host)}, 1, b"s", post=told.append, say=lambda _text, _level: None, clock=lambda: now[0]
    )
    watch.guard(SPEC)
    for _ in range(2 * STARTS):
        now[0] += apart_s
        watch._keep_up(watch.kept[0])
    assert any(isinstance(event, GuardLost) for event in told) is lost
    assert host.started == (STARTS if lost else 2 * STARTS + 1)
