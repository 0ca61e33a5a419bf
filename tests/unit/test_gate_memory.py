"""The gate's wait for memory: what passes beside the gate's other questions, and what is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from build.errors import Refused
from build.units import GIB
from supervisor.gang.gate import Cancelled, MemoryWait
from supervisor.gang.launch import Blueprint
from tests.testing.node_tool import ProcTree
from tests.testing.waiting import until

NEED = 8 * GIB


@dataclass
class Clock:
    """Stands until it is moved."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


def a_blueprint(proc: Path, **memory: Any) -> Blueprint:
    given = {"gate_stable_s": 0.5, "gate_wait_s": 60.0, "sample_stale_s": 4.0, "sample_period_s": 0.01, "min_avail_gib": 4.0}
    configuration = SimpleNamespace(memory=SimpleNamespace(proc_root=proc, **given | memory))
    plan = SimpleNamespace(need_bytes=NEED)
    one = SimpleNamespace(asked_context=8192, configuration=configuration, gate_on_free=False, running_at=lambda _context: plan)
    return cast(Blueprint, one)


@contextmanager
def waiting(
    proc: Path, available: int, passed_s: float, cancelled: threading.Event, say: Callable[[str], None] = pytest.fail
) -> Iterator[MemoryWait]:
    """A wait that has looked once, so long ago."""
    clock = Clock()
    with MemoryWait(a_blueprint(ProcTree(proc, available).root), cancelled, say, clock) as memory:
        until("a look", lambda: memory._watch.last_at_s is not None)
        clock.now_s += passed_s
        yield memory


def test_the_stable_time_passes_while_the_gate_asks_for_other_things(tmp_path: Path) -> None:
    asked = threading.Event()
    with waiting(tmp_path / "proc", NEED, 1.0, asked) as memory:
        asked.wait = pytest.fail  # type: ignore[assignment] # there is nothing left to wait for
        memory.wait()


def test_a_launch_that_nobody_waits_for_any_more_does_not_pass(tmp_path: Path) -> None:
    cancelled = threading.Event()
    with waiting(tmp_path / "proc", NEED, 1.0, cancelled) as memory:
        cancelled.set()
        with pytest.raises(Cancelled):
            memory.wait()


def test_memory_that_was_short_meanwhile_is_waited_for_from_then_on(tmp_path: Path) -> None:
    cancelled, said = threading.Event(), list[str]()

    def say(line: str) -> None:
        said.append(line)
        cancelled.set()

    # the other questions took an hour: the wait counts from its own beginning
    with waiting(tmp_path / "proc", NEED - GIB, 3600.0, cancelled, say) as memory, pytest.raises(Cancelled):
        memory.wait()
    assert said == ["waiting for memory, at most 60 s: 8.00 GiB must be available, 1.00 GiB are short"]


def test_memory_that_does_not_come_is_refused(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path / "proc", NEED - GIB)
    for pid, name, gib in ((7, "sh", 0), (40, "trainer", 3), (41, "llama-server", 61), (9, "kthreadd", None)):
        (tree.root / str(pid)).mkdir()
        resident = "" if gib is None else f"VmRSS:\t{gib << 20} kB\n"
        (tree.root / str(pid) / "status").write_text(f"Name:\t{name}\nUmask:\t0022\n{resident}")
    largest = r"llama-server, pid 41, 61\.0 GiB; trainer, pid 40, 3\.0 GiB"
    with (
        pytest.raises(Refused, match=rf"1\.00 GiB are short after 0 s: stop other programs \(the largest: {largest}\), or lower"),
        MemoryWait(a_blueprint(tree.root, gate_wait_s=0.0), threading.Event(), pytest.fail) as memory,
    ):
        memory.wait()
