"""A served gang and its guards: kills at the floors with their reasons, lost guards, a lost supervisor."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testing.cases import case
from tests.testing.demo import demo_state
from tests.testing.node_tool import GIB, ProcTree
from tests.testing.supervised import Supervised, kill
from tests.testing.waiting import exists, until

pytestmark = pytest.mark.timeout(1500)
ROOMY = 20 * GIB


class Guarded(Supervised):
    """A gang whose node's memory is a file that the test writes."""

    def __init__(self, tmp_path: Path, **settings: object) -> None:
        self.proc = ProcTree(tmp_path / "proc", ROOMY)
        given = {"proc_root": self.proc.root, "min_avail_gib": 4, "gate_stable_s": 0.2, **settings}
        super().__init__(demo_state(tmp_path), tmp_path, **given)

    def end(self, launch: int = 1) -> dict[str, Any]:
        """How the n-th launch ended, as saved."""
        names = until(
            "a saved end", lambda: (found := [n for n in self.logs() if n.endswith("-end.json")])[launch - 1 :] and found
        )
        ended: dict[str, Any] = json.loads((self.state / "logs" / names[launch - 1]).read_text())
        return ended

    def end_seen(self) -> bool:
        """Whether a launch has ended."""
        return any(name.endswith("-end.json") for name in self.logs())

    def evidence(self, rank: int) -> list[dict[str, Any]]:
        """What was kept of a rank's guard with the newest launch that has any."""
        names = [name for name in self.logs() if name.endswith(f"-guard{rank}.jsonl")]
        return [json.loads(line) for line in (self.state / "logs" / names[-1]).read_text().splitlines()]


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Guarded]:
    gang = Guarded(tmp_path)
    try:
        yield gang
    finally:
        gang.close()


def test_the_hard_floor_ends_the_gang_with_its_name_and_the_samples_before_it(gang: Guarded) -> None:
    gang.start().wait_ready()
    assert gang.guards().keys() == {0, 1}
    guards = set(gang.guards().values())
    gang.proc.set(1 * GIB)
    end = gang.end()
    assert end["reason"] == "memory hard floor"
    killed = next(found for rank in (0, 1) if "event" in (found := gang.evidence(rank))[0])  # the other may have been faster
    kill_, *samples, dead = killed
    assert (kill_["event"], kill_["cause"], dead["event"]) == ("kill", "hard", "dead")
    assert samples[-1]["available_bytes"] == 1 * GIB
    assert samples[0]["available_bytes"] == ROOMY
    until("the guards' end", lambda: not any(exists(pid) for pid in guards))
    gang.proc.set(ROOMY)
    gang.wait_ready(times=2)
    assert {one["reason"]: one["count"] for one in gang.wait_state("serving", launch=2)["restarts"]} == {"memory hard floor": 1}


def test_the_collapse_from_the_field_is_met_before_memory_is_gone_with_the_supervisor_stopped(tmp_path: Path) -> None:
    gang = Guarded(tmp_path, min_avail_gib=5)
    rows = [
        [float(cell) for cell in line.split("\t")] for line in case("memory-collapse-series").text("input.tsv").splitlines()[1:]
    ]
    try:
        gang.proc.set(int(rows[0][1]) << 10)
        gang.start().wait_ready()
        pids = gang.pids()
        gang.signal(signal.SIGSTOP)
        began, written = time.monotonic(), 0.0
        for at_s, available_kb, free_kb, _ in rows:
            time.sleep(max(0.0, began + at_s - time.monotonic()))
            if not any(exists(pid) for pid in pids.values()):
                break
            gang.proc.set(int(available_kb) << 10, int(free_kb) << 10)
            written = at_s
        until("both ranks' end", lambda: not any(exists(pid) for pid in pids.values()))
        assert 0.6 < written <= 2.6
        gang.signal(signal.SIGCONT)
        assert gang.end()["reason"] in {"memory slope", "memory hard floor"}
        assert all(line["available_bytes"] > 0 for line in gang.evidence(0) if "sample" in line)
    finally:
        gang.signal(signal.SIGCONT)
        gang.proc.set(ROOMY)
        gang.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_guard_that_is_lost_is_replaced_and_the_gang_serves_on(gang: Guarded, number: signal.Signals) -> None:
    gang.start().wait_ready()
    before, ranks = gang.guards(), gang.pids()
    kill(before[1], number)
    until("another guard", lambda: gang.guards()[1] != before[1])
    until("the lost one's end", lambda: not exists(before[1]))
    assert gang.guards()[0] == before[0]
    assert gang.pids() == ranks
    assert gang.ask("What is 6 times 7?")[0] == 200
    gang.proc.set(1 * GIB)
    assert gang.end()["reason"] == "memory hard floor"


def test_a_gang_does_not_run_unguarded(gang: Guarded) -> None:
    gang.start().wait_ready()
    for _ in range(8):
        pid = gang.guards().get(1)
        if pid is None or gang.end_seen():
            break
        kill(pid)
        until("another guard, or the end", lambda before=pid: gang.end_seen() or gang.guards().get(1) != before)
    assert gang.end()["reason"] == "guard lost"


def test_a_supervisor_that_is_lost_leaves_gang_and_guards_to_the_next(gang: Guarded) -> None:
    gang.start().wait_ready()
    ranks, guards = gang.pids(), gang.guards()
    gang.signal(signal.SIGKILL)
    gang.ended()
    assert gang.ask("What is 6 times 7?")[0] == 200
    gang.start().wait_ready()
    assert (gang.pids(), gang.guards()) == (ranks, guards)
    gang.proc.set(1 * GIB)
    assert gang.end()["reason"] == "memory hard floor"
    assert "kill" in {gang.evidence(rank)[0].get("event") for rank in (0, 1)}


def test_without_a_supervisor_the_gang_serves_for_orphan_s_and_then_ends_in_order(tmp_path: Path) -> None:
    gang = Guarded(tmp_path, orphan_s=10)
    try:
        gang.start().wait_ready()
        ranks = gang.pids()
        gang.signal(signal.SIGKILL)
        gang.ended()
        lost_s = time.monotonic()
        while time.monotonic() < lost_s + 8:
            assert gang.ask("What is 6 times 7?")[0] == 200
        until("the gang's end", lambda: not any(exists(pid) for pid in ranks.values()))
        assert time.monotonic() - lost_s > 9
        log = next((gang.state / "run").glob("*/rank1.log")).read_text()
        assert '"followed": true' in log
        gang.start().wait_ready()
        assert gang.end()["reason"] == "supervisor silent"
    finally:
        gang.close()


def test_the_gate_counts_free_memory_after_our_own_pages_are_dropped(tmp_path: Path) -> None:
    gang = Guarded(tmp_path, gate_on_free=True, gate_wait_s=60)
    try:
        gang.proc.set(ROOMY, free_bytes=1 * GIB)
        gang.start()
        until("a gate that waits", lambda: "waiting for memory" in gang.err)
        assert gang.pids() == {}
        gang.proc.set(ROOMY)
        gang.wait_ready()
        assert "could not be dropped" not in gang.err
        shown = gang.command("plan")
        assert shown.returncode == 0, shown.stderr
        assert "needed before a launch" in shown.stdout
        assert "min_avail_gib" in shown.stdout
        assert gang.command("plan", "--json", "--set", "context=4096").returncode == 0
        refused = gang.command("plan", TWINFOLD_MIN_AVAIL_GIB="64")
        assert refused.returncode == 3
        assert "more must be available" in refused.stdout
    finally:
        gang.proc.set(ROOMY)
        gang.close()
