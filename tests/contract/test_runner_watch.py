"""The rank watch over real processes that print what the engine prints."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.engine.contract import RankCommand
from supervisor.gang.rank_watch import RankWatch
from supervisor.machine import Event
from supervisor.machine.types import Parity, RankExited, RankLoaded, RankStarted, ServerReady
from supervisor.runners.process import ProcessRunner
from supervisor.runners.protocol import RankSpec

PATIENCE_S = 30.0
CONTEXT = 4096
READY = f"[tensorfold] serving m at http://127.0.0.1:1/v1 (sampling: greedy; drafts: on; context: {CONTEXT}; loaded in 0.1s)"
STAY = "; while :; do sleep 0.05; done"


def loaded(pool: int, drafts: str = "true") -> str:
    return f'{{"rank": 1, "loaded_s": 0.1, "pool": {pool}, "drafts": {drafts}, "arena_used": 1}}'


class Gang:
    """Two ranks that are shell scripts, and what their watch posts."""

    def __init__(self, run_dir: Path) -> None:
        self.runner = ProcessRunner(run_dir)
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.watch = RankWatch(self.runner, self.events.put, 1, world_size=2, asked=(CONTEXT, True))
        self.watch.start()

    def rank(self, number: int, script: str) -> None:
        command = RankCommand(number, ("/bin/sh", "-c", script), ())
        self.watch.started(self.runner.start(RankSpec("l1", number, 2, "head", command, "hash", "entry", CONTEXT)))

    def next(self, kind: type[Event]) -> Event:
        while not isinstance(event := self.events.get(timeout=PATIENCE_S), kind):
            pass
        return event

    def close(self) -> None:
        self.watch.stop()
        self.watch.join(PATIENCE_S)
        for handle in self.watch.handles:
            self.runner.kill(handle)
            self.runner.wait([handle], PATIENCE_S)
            self.runner.remove(handle)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    gang = Gang(tmp_path / "run")
    yield gang
    gang.close()


def test_a_start_is_told_before_all_that_follows_and_parity_after_every_rank_has_loaded(gang: Gang) -> None:
    gang.rank(1, f"echo '{loaded(CONTEXT)}'{STAY}")
    gang.rank(0, f"echo '{READY}'{STAY}")
    seen = [gang.events.get(timeout=PATIENCE_S) for _ in range(5)]
    assert {type(event) for event in seen[:-1]} == {RankStarted, RankLoaded, ServerReady}
    assert isinstance(seen[0], RankStarted)
    assert isinstance(seen[-1], Parity)
    assert seen[-1].differences == ()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (loaded(2048), "rank 1 has pool 2048, the gang was asked for 4096"),
        (loaded(CONTEXT, "false"), "rank 1 has drafts off, the gang was asked for on"),
    ],
)
def test_a_rank_that_loaded_with_other_settings_is_named(gang: Gang, line: str, named: str) -> None:
    gang.rank(1, f"echo '{line}'{STAY}")
    gang.rank(0, f"echo '{READY}'{STAY}")
    event = gang.next(Parity)
    assert isinstance(event, Parity)
    assert event.differences == (named,)


@pytest.mark.parametrize(
    ("script", "how", "hopeless"),
    [
        ("echo 'error.NoRankCache' >&2; exit 1", "exit 1: error.NoRankCache", True),
        ("echo 'error.ConnectFailed' >&2; exit 1", "exit 1: error.ConnectFailed", False),
        ("exit 2", "exit 2", True),
        ("exit 1", "exit 1", False),
        ("kill -9 $$", "signal 9", False),
    ],
)
def test_a_failed_start_says_why_and_whether_another_try_could_work(gang: Gang, script: str, how: str, hopeless: bool) -> None:
    gang.rank(1, script)
    event = gang.next(RankExited)
    assert isinstance(event, RankExited)
    assert (event.rank, event.how, event.hopeless) == (1, how, hopeless)
