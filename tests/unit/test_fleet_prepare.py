"""Workers are made ready at once, and a launch that is no longer wanted waits for none of them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from build.errors import Refused
from build.replication.replicate import Report, told_report
from supervisor.fleet.fleet import Fleet
from supervisor.fleet.site import head_site

PATIENCE_S = 60.0
STUCK = """
import threading, sys
sys.path.insert(0, ".")
from tests.unit.test_fleet_prepare import Slow, fleet, ready
cancelled = threading.Event()
threading.Timer(0.3, cancelled.set).start()
ready(fleet(Slow("worker")), cancelled)
print("let go")
"""


class Slow:
    """A worker whose making ready ends when it is told to, as far as a fleet sees of one."""

    def __init__(self, name: str, trouble: Exception | None = None, free: bool = False) -> None:
        self.host, self.runner, self._trouble = SimpleNamespace(name=name), None, trouble
        self.may_end, self.ended = threading.Event(), False
        if free:
            self.may_end.set()

    def prepare(self, _bundle: object) -> None:
        self.may_end.wait()
        self.ended = True
        if self._trouble:
            raise self._trouble


def fleet(*workers: Slow) -> Fleet:
    return Fleet(head_site("head", Path("/s")), cast(Any, None), cast(Any, workers))


def ready(one: Fleet, cancelled: threading.Event) -> None:
    one.prepare(cast(Any, SimpleNamespace(bundle=None)), cancelled)


def test_the_first_trouble_in_the_workers_order_is_raised_when_all_are_done() -> None:
    late, early = Slow("worker1", Refused("first")), Slow("worker2", Refused("second"), free=True)
    threading.Timer(0.3, late.may_end.set).start()
    with pytest.raises(Refused, match="first"):
        ready(fleet(late, early), threading.Event())
    assert late.ended
    assert early.ended


def test_a_launch_that_is_no_longer_wanted_waits_for_no_worker() -> None:
    slow, cancelled = Slow("worker"), threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    began = time.monotonic()
    ready(fleet(slow), cancelled)
    assert time.monotonic() - began < 10  # the goal is 1 s
    assert not slow.ended
    slow.may_end.set()


def test_a_worker_that_is_still_being_made_ready_keeps_no_process_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout) == (0, "let go\n"), done.stderr


def test_what_was_whole_is_said_with_the_time_that_looking_took() -> None:
    assert told_report(Report("worker", (), (), 0, 0.42, 0.42)).endswith("(checked in 0.4 s)")
    assert "1 copied" in told_report(Report("worker", ("e",), (), 1 << 20, 0.4, 1.0))
