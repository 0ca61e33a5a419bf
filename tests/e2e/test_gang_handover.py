"""A supervisor that leaves for the next one: the same ranks and guards serve on, and requests under way are answered."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testing.demo import demo_state
from tests.testing.supervised import Supervised, kill
from tests.testing.waiting import exists, until

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Supervised]:
    gang = Supervised(demo_state(tmp_path), tmp_path, TF_STANDIN_ROUND_MS="50")
    try:
        yield gang
    finally:
        gang.close()


def test_a_handover_keeps_ranks_guards_requests_and_the_bundle_and_the_next_run_takes_them_over(gang: Supervised) -> None:
    gang.start().wait_ready()
    ranks, guards = gang.pids(), gang.guards()
    roots = [path.name for path in (gang.state / "run" / "roots").glob("*.json")]
    request = gang.ask_in_background("Tell me about memory.", temperature=1.0, seed=7, max_tokens=300, ignore_eos=True)
    left = gang.command("handover")
    assert (left.returncode, left.stderr) == (0, "")
    assert left.stdout.startswith("2 ranks serve on: `supervisor run` takes them over")
    assert gang.ended() == 0
    assert all(exists(pid) for pid in (*ranks.values(), *guards.values()))
    assert [path.name for path in (gang.state / "run" / "roots").glob("*.json")] == roots
    assert "READY" in gang.start().wait_ready().out
    outcome = request.outcome()
    assert not isinstance(outcome, Exception)
    assert outcome[0] == 200
    assert outcome[1]["usage"]["completion_tokens"] == 300
    assert (gang.pids(), gang.guards()) == (ranks, guards)
    assert gang.wait_state("serving")["restarts"] == []
    kill(ranks[1])
    until("the other rank's end", lambda: not exists(ranks[0]))  # the next one watches what it took over
    gang.wait_ready(times=2)


def test_a_gang_that_hangs_already_is_found_out_by_who_takes_it_over(gang: Supervised) -> None:
    gang.start().wait_ready()
    request = gang.ask_in_background("Tell me about memory.", max_tokens=3000, ignore_eos=True)
    until("a request that runs", lambda: sum(gang.series("twinfold_requests_running").values()) > 0)
    kill(gang.pids()[1], signal.SIGSTOP)
    assert gang.command("handover").returncode == 0
    assert gang.ended() == 0
    gang.start().wait_ready()
    outcome = request.outcome()
    assert isinstance(outcome, Exception) or outcome[0] == 500
    assert gang.wait_state("serving", launch=2)["restarts"] == [{"reason": "no progress", "count": 1}]


def test_nothing_is_handed_over_before_a_gang_serves(tmp_path: Path) -> None:
    gang = Supervised(demo_state(tmp_path), tmp_path, launch_gate_gib=4096, gate_wait_s=600)
    try:
        assert gang.command("handover").returncode == 3
        gang.start()
        gang.wait_state("gating")
        refused = gang.command("handover")
        assert refused.returncode == 3
        assert "no gang serves that could be handed over (gating)" in refused.stderr
        assert gang.running.poll() is None
    finally:
        gang.close()
