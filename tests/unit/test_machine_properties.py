"""What holds for the machine whatever happens, in a world whose ranks start late, die at any time and ignore signals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from supervisor.machine import Phase, Policy, State, step, wake_at_s
from supervisor.machine.policy import due
from supervisor.machine.types import (
    Begin,
    Collect,
    Collected,
    Effect,
    Event,
    Finish,
    Gate,
    GatePassed,
    GateRefused,
    HandoverAsked,
    KillRank,
    MemoryBreach,
    Parity,
    PolicyChanged,
    RankExited,
    RankLoaded,
    RankStarted,
    RestartAsked,
    RunSmoke,
    ServerReady,
    Smoke,
    Stalled,
    StartFailed,
    StartRank,
    StopAsked,
    TerminateRank,
    Tick,
)

TOGETHER = (Phase.PROBING, Phase.SERVING)


class World(RuleBasedStateMachine):
    """Carries out effects in its own time; ``living`` is the truth about ranks, whatever the machine believes."""

    @initialize(world_size=st.sampled_from([1, 2, 4]), limit=st.integers(0, 3), once=st.booleans())
    def begin(self, world_size: int, limit: int, once: bool) -> None:
        policy = Policy(world_size, wait_timeout_s=60, stop_timeout_s=10, restart_limit=limit, stable_s=500, once=once)
        self.now = 0.0
        self.state = State(policy)
        self.living: set[tuple[int, int]] = set()
        self.starting: list[tuple[int, int]] = []
        self.doomed: set[tuple[int, int]] = set()
        self.gates: list[int] = []
        self.smokes: list[int] = []
        self.collects: list[int] = []
        self.finished: Finish | None = None
        self.send(Begin(self.now))

    def send(self, event: Event) -> None:
        if self.finished is None:
            self.state, effects = step(self.state, event)
            for effect in effects:
                self.carry_out(effect)

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case Gate(launch):
                self.gates.append(launch)
            case StartRank(launch, rank):
                others = {key for key in self.living | set(self.starting) if key[0] != launch}
                assert not others, "a rank was started while another launch's rank lived"
                followers = {(launch, r) for r in range(1, self.state.policy.world_size)}
                assert rank or followers <= self.living, "rank 0 was started before its followers"
                self.starting.append((launch, rank))
            case KillRank(launch, rank) | TerminateRank(launch, rank):
                self.doomed.add((launch, rank))
            case RunSmoke(launch):
                self.smokes.append(launch)
            case Collect(launch, _, _):
                assert not [key for key in self.living if key[0] == launch], "logs were collected while a rank lived"
                self.collects.append(launch)
            case Finish():
                self.finished = effect

    @rule(seconds=st.floats(0.01, 200))
    def time_passes(self, seconds: float) -> None:
        """The loop wakes at the machine's own deadlines."""
        end = self.now + seconds
        while (wake := wake_at_s(self.state)) is not None and wake <= end and self.finished is None:
            self.now = max(self.now, wake)
            before = self.state
            self.send(Tick(self.now))
            assert self.state != before or wake_at_s(self.state) != wake, "the machine asked to be woken for nothing"
        self.now = end

    @precondition(lambda self: self.gates)
    @rule(passed=st.booleans())
    def gate_answers(self, passed: bool) -> None:
        launch = self.gates.pop(0)
        self.send(GatePassed(self.now, launch) if passed else GateRefused(self.now, launch, "memory"))

    @precondition(lambda self: self.starting)
    @rule(index=st.integers(0, 3), works=st.sampled_from([True, True, True, False]), hopeless=st.booleans())
    def start_reports(self, index: int, works: bool, hopeless: bool) -> None:
        launch, rank = self.starting.pop(index % len(self.starting))
        if works:
            self.living.add((launch, rank))
            self.send(RankStarted(self.now, launch, rank))
        else:
            self.send(StartFailed(self.now, launch, rank, "no", hopeless))

    @precondition(lambda self: self.state.phase is Phase.LAUNCHING and len(self.living) == self.state.policy.world_size)
    @rule(agree=st.sampled_from([True, True, False]))
    def gang_loads(self, agree: bool) -> None:
        launch = self.state.launch
        for rank in range(1, self.state.policy.world_size):
            self.send(RankLoaded(self.now, launch, rank))
        self.send(ServerReady(self.now, launch))
        self.send(Parity(self.now, launch, () if agree else ("pool",)))

    @precondition(lambda self: self.smokes)
    @rule(passed=st.sampled_from([True, True, False]))
    def smoke_answers(self, passed: bool) -> None:
        self.send(Smoke(self.now, self.smokes.pop(0), passed))

    @precondition(lambda self: self.doomed & self.living)
    @rule(index=st.integers(0, 3))
    def a_signalled_rank_dies(self, index: int) -> None:
        keys = sorted(self.doomed & self.living)
        self.die(keys[index % len(keys)])

    @precondition(lambda self: self.living)
    @rule(index=st.integers(0, 3))
    def any_rank_dies(self, index: int) -> None:
        keys = sorted(self.living)
        self.die(keys[index % len(keys)])

    def die(self, key: tuple[int, int]) -> None:
        self.living.discard(key)
        self.doomed.discard(key)
        self.send(RankExited(self.now, *key, "signal 9"))

    @precondition(lambda self: self.collects)
    @rule()
    def logs_are_saved(self) -> None:
        self.send(Collected(self.now, self.collects.pop(0)))

    @rule(
        kind=st.sampled_from(["stall", "hard", "soft", "stop", "force", "restart", "handover", "policy"]), late=st.integers(0, 1)
    )
    def something_is_seen(self, kind: str, late: int) -> None:
        launch = max(1, self.state.launch - late)
        events = {
            "stall": Stalled(self.now, launch, "hang"),
            "hard": MemoryBreach(self.now, launch, hard=True, why="low"),
            "soft": MemoryBreach(self.now, launch, hard=False, why="low"),
            "stop": StopAsked(self.now),
            "force": StopAsked(self.now, force=True),
            "restart": RestartAsked(self.now),
            "handover": HandoverAsked(self.now),
            "policy": PolicyChanged(
                self.now, replace(self.state.policy, pause_first_s=self.state.policy.pause_first_s / 2 + 0.1)
            ),
        }
        self.send(events[kind])

    @invariant()
    def every_rank_or_none(self) -> None:
        if self.state.phase in TOGETHER:
            assert {rank for _, rank in self.living} == set(range(self.state.policy.world_size))
        if self.state.phase is Phase.CLEARING:
            assert self.living <= self.doomed, "a rank was left alone and unsignalled"

    @invariant()
    def an_orderly_stop_has_an_end(self) -> None:
        if self.state.phase is Phase.DRAINING:
            assert self.now - self.state.since_s <= self.state.policy.stop_timeout_s

    @invariant()
    def restarts_are_bounded(self) -> None:
        assert self.state.failures <= self.state.policy.restart_limit + 1
        if self.state.phase is Phase.PAUSING:
            assert self.state.failures <= self.state.policy.restart_limit

    def teardown(self) -> None:
        """Whatever came before: a stop leads to an end, with no rank alive but one that could not be killed."""
        if not hasattr(self, "state"):
            return
        self.send(StopAsked(self.now))
        for _ in range(50):
            while self.starting:
                self.start_reports(0, True, False)
            for key in sorted(self.doomed & self.living):
                self.die(key)
            while self.collects:
                self.logs_are_saved()
            if self.finished:
                break
            self.time_passes(5.0)
        assert self.finished is not None
        assert self.state.phase in (Phase.STOPPED, Phase.GAVE_UP, Phase.HANDED_OVER)
        if self.state.phase is Phase.HANDED_OVER:
            assert not self.doomed, "a rank was signalled, then handed over"
        if self.state.phase is Phase.STOPPED:
            assert not self.living


World.TestCase.settings = settings(max_examples=max(150, settings.default.max_examples), stateful_step_count=40)
TestWorld = World.TestCase


@pytest.mark.parametrize("since_s", [0.01, 0.1, 62.01, 1e6 + 0.1])
def test_a_tick_at_the_very_deadline_counts_as_due(since_s: float) -> None:
    """(62.01 + 2.0) - 62.01 is less than 2.0: only the sum that the wake-up is computed with tells the deadline."""
    assert due(since_s + 2.0, since_s, 2.0)
    assert not due(since_s + 1.9, since_s, 2.0)
