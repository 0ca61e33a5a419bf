"""A served gang that loses a rank: every rank or none, and serving again soon."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.runners.process import ProcessRunner
from tests.contract.test_runner_process import FOREVER, spec
from tests.testing.demo import demo_state
from tests.testing.supervised import Supervised, kill
from tests.testing.waiting import exists, until

pytestmark = pytest.mark.timeout(1500)
BACK_S = 50.0  # ten times the goal of 5 s: two shared cores
SLOW = {"TF_STANDIN_ROUND_MS": "50"}
LONG = {"temperature": 1.0, "seed": 7, "max_tokens": 2000, "ignore_eos": True}
PROMPT = "Tell me all you know about memory, links and reproducible builds."


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Supervised]:
    gang = Supervised(demo_state(tmp_path), tmp_path, stall_s=2, idle_probe_s=3600, **SLOW)
    try:
        yield gang
    finally:
        gang.close()


def tokens(gang: Supervised) -> int:
    """Tokens generated so far, those of running requests among them; waits for the first reading."""
    return int(until("a reading of the engine", lambda: gang.status()["throughput"].get("generated_tokens")))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_takes_the_other_down_and_both_come_back(gang: Supervised, rank: int) -> None:
    gang.start().wait_ready()
    before = gang.pids()
    _, answer = gang.ask("What is 6 times 7?")
    request = gang.ask_in_background(PROMPT, **LONG)
    killed_s = time.monotonic()
    kill(before[rank])
    other = before[1 - rank]
    until("the other rank's end", lambda: not exists(other), 10)
    gang.wait_ready(times=2)
    assert time.monotonic() - killed_s < BACK_S
    outcome = request.outcome()
    assert isinstance(outcome, Exception) or outcome[0] == 500, "a live request fails instead of hanging"
    status = gang.wait_state("serving", launch=2)
    assert status["restarts"] == [{"reason": "rank exit", "count": 1}]
    assert set(gang.pids().values()).isdisjoint(before.values())
    again = gang.ask("What is 6 times 7?")[1]
    assert again["choices"][0]["message"]["content"] == answer["choices"][0]["message"]["content"]
    assert again["tensorfold"]["token_sha"] == answer["tensorfold"]["token_sha"]


def test_a_stopped_rank_is_found_from_missing_progress(gang: Supervised) -> None:
    gang.start().wait_ready()
    before = tokens(gang)
    request = gang.ask_in_background(PROMPT, **LONG)
    until("tokens of the request that runs", lambda: tokens(gang) > before + 4)
    kill(gang.pids()[1], signal.SIGSTOP)
    gang.wait_ready(times=2)
    outcome = request.outcome()
    assert isinstance(outcome, Exception) or outcome[0] == 500
    assert gang.wait_state("serving", launch=2)["restarts"] == [{"reason": "no progress", "count": 1}]


def test_a_request_that_comes_to_a_stopped_rank_ends_and_does_not_hang(tmp_path: Path) -> None:
    gang = Supervised(demo_state(tmp_path), tmp_path, stall_s=2, probe_period_s=0.2)
    try:
        gang.start().wait_ready()
        kill(gang.pids()[1], signal.SIGSTOP)
        request = gang.ask_in_background(PROMPT, **LONG)
        gang.wait_ready(times=2)
        outcome = request.outcome()
        assert isinstance(outcome, Exception) or outcome[0] == 500
        assert gang.wait_state("serving", launch=2)["restarts"] == [{"reason": "no progress", "count": 1}]
    finally:
        gang.close()


def test_a_stopped_rank_of_an_idle_gang_is_found_by_asking_for_a_token(tmp_path: Path) -> None:
    gang = Supervised(demo_state(tmp_path), tmp_path, stall_s=1, idle_probe_s=1, probe_misses=2, probe_period_s=0.2)
    try:
        gang.start().wait_ready()
        kill(gang.pids()[1], signal.SIGSTOP)
        gang.wait_ready(times=2)
        assert gang.wait_state("serving", launch=2)["restarts"] == [{"reason": "no progress", "count": 1}]
    finally:
        gang.close()


def test_a_gang_that_keeps_dying_is_given_up(tmp_path: Path) -> None:
    gang = Supervised(demo_state(tmp_path), tmp_path, restart_limit=1, restart_pause_s=0.1)
    try:
        gang.start().wait_ready()
        kill(gang.pids()[0])
        gang.wait_ready(times=2)
        kill(gang.pids()[1])
        assert gang.ended() == 5
        assert "error: gave up after 2 failures in a row; the last: rank exit: rank 1: signal 9" in gang.err
        assert len([name for name in gang.logs() if name.endswith("-end.json")]) == 2
        assert gang.pids() == {}
    finally:
        gang.close()


def test_once_means_one_launch(tmp_path: Path) -> None:
    gang = Supervised(demo_state(tmp_path), tmp_path)
    try:
        gang.start("--once").wait_ready()
        kill(gang.pids()[1])
        assert gang.ended() == 4
    finally:
        gang.close()


def test_a_launch_that_cannot_work_is_not_tried_again(tmp_path: Path) -> None:
    gang = Supervised(demo_state(tmp_path), tmp_path, TF_STANDIN_DIALECT="nonsense")
    try:
        assert gang.start().ended() == 4
        assert "TF_STANDIN_DIALECT=nonsense" in gang.err.splitlines()[-1]
        assert "launch 2" not in gang.err
    finally:
        gang.close()


def test_a_supervisor_that_is_killed_leaves_the_gang_serving_and_the_next_one_adopts_it(gang: Supervised) -> None:
    gang.start().wait_ready()
    before = gang.pids()
    gang.signal(signal.SIGKILL)
    gang.ended()
    assert gang.ask("What is 6 times 7?")[0] == 200
    shown = gang.command("status")
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[0] == "no supervisor"
    assert "rank 1 | " in gang.command("logs").stdout
    gang.start().wait_ready()
    assert gang.pids() == before
    assert "taking over" in gang.err
    kill(before[1])
    gang.wait_ready(times=2)
    assert gang.pids().keys() == {0, 1}


def test_a_lone_rank_that_was_left_is_removed_and_its_log_saved(gang: Supervised) -> None:
    gang.start().wait_ready()
    before = gang.pids()
    gang.signal(signal.SIGKILL)
    gang.ended()
    kill(before[0], signal.SIGSTOP)  # so that rank 1 does not see it go
    kill(before[1])
    gang.start().wait_ready()
    assert not exists(before[0])
    assert set(gang.pids().values()).isdisjoint(before.values())
    assert len([name for name in gang.logs() if name.endswith(".log.gz")]) == 2


def test_a_gang_without_a_supervisor_can_be_stopped(gang: Supervised) -> None:
    gang.start().wait_ready()
    before = gang.pids()
    gang.signal(signal.SIGKILL)
    gang.ended()
    done = gang.command("stop")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "stopped")
    assert not any(exists(pid) for pid in before.values())
    assert gang.pids() == {}
    assert not any((gang.state / "run" / "roots").iterdir())
    assert gang.command("stop").stdout == "nothing runs\n"


def test_a_rank_that_nobody_was_told_of_is_ended_and_its_log_saved_before_the_next_launch(gang: Supervised) -> None:
    """As one whose start was ordered over a link that broke before the answer."""
    gang.start().wait_ready()
    ranks = gang.pids()
    runner = ProcessRunner(gang.state / "run")
    stray = runner.start(spec(f"echo hello; {FOREVER}"))
    kill(ranks[1])
    gang.wait_ready(times=2)
    assert runner.poll(stray) is not None
    assert "removing what was left behind: rank 0 of launch" in gang.err
    assert any(stray.launch_id in name and name.endswith("rank0.log.gz") for name in gang.logs())
    assert gang.pids().keys() == {0, 1}
