"""The gang's transitions, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.machine import IGNORED, IllegalEvent, Phase, Policy, Reason, State, pause_s, step, wake_at_s
from supervisor.machine.types import (
    Announce,
    Begin,
    Collect,
    Collected,
    Effect,
    Event,
    Finish,
    Gate,
    GatePassed,
    GateRefused,
    KillRank,
    MemoryBreach,
    Note,
    Parity,
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

POLICY = Policy(world_size=2, wait_timeout_s=60, stop_timeout_s=10, restart_limit=2, pause_first_s=0.5, stable_s=100)


def run(state: State, *events: Event) -> tuple[State, list[Effect]]:
    """The state after all events, and the last event's effects without notes."""
    effects: tuple[Effect, ...] = ()
    for event in events:
        state, effects = step(state, event)
    return state, [e for e in effects if not isinstance(e, Note)]


def launching(policy: Policy = POLICY) -> State:
    return run(State(policy), Begin(0.0), GatePassed(0.0, 1))[0]


def serving(policy: Policy = POLICY, at_s: float = 2.0) -> State:
    ranks = [RankStarted(1.0, 1, rank) for rank in range(policy.world_size - 1, -1, -1)]
    loaded = [RankLoaded(1.0, 1, rank) for rank in range(1, policy.world_size)]
    state, _ = run(launching(policy), *ranks, *loaded, ServerReady(1.0, 1), Parity(1.0, 1), Smoke(at_s, 1, passed=True))
    assert state.phase is Phase.SERVING
    return state


def test_followers_start_before_rank_0() -> None:
    state, effects = run(State(replace(POLICY, world_size=4)), Begin(0.0))
    assert effects == [Gate(1)]
    state, effects = run(state, GatePassed(0.0, 1))
    assert effects == [StartRank(1, 3), StartRank(1, 2), StartRank(1, 1)]
    state, effects = run(state, RankStarted(1.0, 1, 3), RankStarted(1.0, 1, 1))
    assert effects == []
    state, effects = run(state, RankStarted(1.0, 1, 2))
    assert effects == [StartRank(1, 0)]


def test_a_gang_of_one_starts_rank_0_at_once() -> None:
    assert run(State(Policy(world_size=1)), Begin(0.0), GatePassed(0.0, 1))[1] == [StartRank(1, 0)]


def test_ready_needs_every_rank_loaded_parity_and_the_smoke_test() -> None:
    state, _ = run(launching(), RankStarted(1.0, 1, 1), RankStarted(1.0, 1, 0), ServerReady(2.0, 1))
    with pytest.raises(IllegalEvent):
        step(state, Parity(2.0, 1))
    state, effects = run(state, RankLoaded(3.0, 1, 1), Parity(3.0, 1))
    assert (state.phase, effects) == (Phase.PROBING, [RunSmoke(1)])
    state, effects = run(state, Smoke(4.0, 1, passed=True))
    assert (state.phase, effects) == (Phase.SERVING, [Announce(1)])


@pytest.mark.parametrize("dead", [0, 1, 2, 3])
def test_the_exit_of_any_rank_kills_the_others_in_the_same_step(dead: int) -> None:
    state, effects = run(serving(replace(POLICY, world_size=4)), RankExited(5.0, 1, dead, "signal 9"))
    assert state.phase is Phase.CLEARING
    assert effects == [KillRank(1, rank) for rank in range(4) if rank != dead]
    gone = [RankExited(5.1, 1, rank, "signal 9") for rank in range(4) if rank != dead]
    assert run(state, *gone, Collected(5.2, 1))[0].restarts == ((Reason.RANK_EXIT, 1),)


@pytest.mark.parametrize("reason", [Reason.MEMORY_HARD, Reason.MEMORY_SLOPE, Reason.PEER_SILENT, Reason.SUPERVISOR_SILENT])
@pytest.mark.parametrize("hopeless", [False, True])
def test_a_guards_kill_that_is_told_after_the_exit_it_caused_is_the_reason(reason: Reason, hopeless: bool) -> None:
    state, _ = run(serving(), RankExited(5.0, 1, 0, "exit 1: the peer is gone", hopeless))
    state, effects = run(state, RankExited(5.1, 1, 1, "signal 9, ended by its guard", reason=reason))
    detail = "rank 1: signal 9, ended by its guard"
    assert effects == [Collect(1, reason, detail)]
    state, _ = run(state, Collected(5.2, 1))
    assert (state.phase, state.failures, state.restarts) == (Phase.PAUSING, 1, ((reason, 1),))


def test_a_stop_that_was_asked_for_keeps_its_reason() -> None:
    state, _ = run(serving(), StopAsked(5.0, force=True), RankExited(5.0, 1, 0, "signal 9"))
    state, effects = run(state, RankExited(5.1, 1, 1, "signal 9, ended by its guard", reason=Reason.MEMORY_HARD))
    assert effects == [Collect(1, Reason.STOP, "")]


def test_logs_are_collected_once_all_are_gone_and_only_then_a_launch_follows() -> None:
    state, _ = run(serving(), RankExited(5.0, 1, 1, "signal 9"))
    state, effects = run(state, RankExited(5.1, 1, 0, "signal 9"))
    assert effects == [Collect(1, Reason.RANK_EXIT, "rank 1: signal 9")]
    state, effects = run(state, Collected(5.2, 1))
    assert state.phase is Phase.PAUSING
    assert state.resume_at_s - 5.2 <= POLICY.pause_first_s
    state, effects = run(state, Tick(state.resume_at_s))
    assert (state.phase, state.launch, effects) == (Phase.GATING, 2, [Gate(2)])


def test_a_rank_whose_start_was_under_way_is_killed_when_it_reports() -> None:
    state, _ = run(launching(replace(POLICY, world_size=3)), RankStarted(1.0, 1, 2), RankExited(1.1, 1, 2, "exit 1"))
    assert (state.phase, state.starting) == (Phase.CLEARING, {1})
    state, effects = run(state, RankStarted(1.2, 1, 1))
    assert effects == [KillRank(1, 1)]
    assert run(state, RankExited(1.3, 1, 1, "signal 9"))[1] == [Collect(1, Reason.RANK_EXIT, "rank 2: exit 1")]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Stalled(5.0, 1, "no token for 10 s"), Reason.NO_PROGRESS),
        (MemoryBreach(5.0, 1, hard=True, why="1 GiB"), Reason.MEMORY_HARD),
        (Parity(5.0, 1, ("rank 1 has pool 1",)), Reason.PARITY),
    ],
)
def test_what_ends_a_serving_gang_at_once_is_counted_with_its_reason(event: Event, reason: Reason) -> None:
    state, effects = run(serving(), event)
    assert state.phase is Phase.CLEARING
    assert effects == [KillRank(1, 0), KillRank(1, 1)]
    state, _ = run(state, RankExited(5.1, 1, 0, "signal 9"), RankExited(5.1, 1, 1, "signal 9"), Collected(5.2, 1))
    assert state.restarts == ((reason, 1),)


def test_a_soft_breach_stops_in_order_and_comes_back() -> None:
    state, effects = run(serving(), MemoryBreach(5.0, 1, hard=False, why="3 GiB"))
    assert (state.phase, effects) == (Phase.DRAINING, [TerminateRank(1, 0)])
    state, _ = run(state, RankExited(6.0, 1, 0, "exit 0"), RankExited(6.1, 1, 1, "exit 0"), Collected(6.2, 1))
    assert (state.phase, state.restarts) == (Phase.PAUSING, ((Reason.MEMORY_SOFT, 1),))


def test_a_hard_breach_cuts_an_orderly_stop_short() -> None:
    state, effects = run(serving(), StopAsked(5.0), MemoryBreach(5.1, 1, hard=True, why="1 GiB"))
    assert (state.phase, effects) == (Phase.CLEARING, [KillRank(1, 0), KillRank(1, 1)])


def test_a_stop_ends_rank_0_first_then_asks_the_followers_then_forces() -> None:
    state, effects = run(serving(), StopAsked(5.0))
    assert (state.phase, effects) == (Phase.DRAINING, [TerminateRank(1, 0)])
    state, effects = run(state, RankExited(6.0, 1, 0, "exit 0"))
    assert (effects, wake_at_s(state)) == ([], 6.0 + POLICY.follower_grace_s)
    state, effects = run(state, Tick(8.0))
    assert effects == [TerminateRank(1, 1)]
    assert run(state, Tick(9.0))[1] == []
    state, effects = run(state, Tick(15.0))
    assert (state.phase, effects) == (Phase.CLEARING, [KillRank(1, 1)])
    state, effects = run(state, RankExited(15.1, 1, 1, "signal 9"), Collected(15.2, 1))
    assert (state.phase, effects) == (Phase.STOPPED, [Finish(0)])


def test_a_forced_stop_kills_every_rank() -> None:
    assert run(serving(), StopAsked(5.0), StopAsked(5.1, force=True))[1] == [KillRank(1, 0), KillRank(1, 1)]


@pytest.mark.parametrize("phase", ["gating", "pausing"])
def test_a_stop_between_launches_ends_at_once(phase: str) -> None:
    if phase == "gating":
        state, _ = run(State(POLICY), Begin(0.0))
    else:
        state, _ = run(serving(), RankExited(5.0, 1, 1, "x"), RankExited(5.0, 1, 0, "x"), Collected(5.0, 1))
    assert state.phase.value == phase
    assert run(state, StopAsked(6.0))[1] == [Finish(0)]


def test_a_restart_drains_and_launches_again_without_a_pause() -> None:
    state, _ = run(serving(), RestartAsked(5.0))
    assert state.phase is Phase.DRAINING
    state, effects = run(state, RankExited(6.0, 1, 0, "exit 0"), RankExited(6.0, 1, 1, "exit 0"), Collected(6.1, 1))
    assert (effects, state.failures, state.restarts) == ([Gate(2)], 0, ((Reason.ASKED, 1),))


def test_a_refused_first_gate_is_the_end_and_a_later_one_a_failure() -> None:
    state, effects = run(State(POLICY), Begin(0.0), GateRefused(9.0, 1, "too little memory"))
    assert effects == [Finish(3, "too little memory")]
    state, _ = run(serving(), RankExited(5.0, 1, 1, "x"), RankExited(5.0, 1, 0, "x"), Collected(5.0, 1))
    state, _ = run(state, Tick(9.0), GateRefused(10.0, 2, "too little memory"))
    assert (state.phase, state.restarts) == (Phase.PAUSING, ((Reason.GATE, 1), (Reason.RANK_EXIT, 1)))


def test_restarts_are_bounded_and_giving_up_is_a_state() -> None:
    state = serving()
    for launch in range(1, POLICY.restart_limit + 2):
        state, effects = run(
            state, *[RankExited(5.0, launch, rank, "exit 1") for rank in sorted(state.up)], Collected(5.0, launch)
        )
        if state.phase is Phase.PAUSING:
            state, _ = run(state, Tick(state.resume_at_s), GatePassed(6.0, launch + 1), RankStarted(6.0, launch + 1, 1))
    assert state.phase is Phase.GAVE_UP
    assert [type(e) for e in effects] == [Finish]
    assert effects[0] == Finish(5, "gave up after 3 failures in a row; the last: rank exit: rank 1: exit 1")


def test_a_hopeless_failure_is_not_tried_again() -> None:
    state, _ = run(launching(), RankStarted(1.0, 1, 1), RankExited(1.0, 1, 1, "exit 2", hopeless=True))
    assert run(replace(state, up=frozenset(), starting=frozenset()), Collected(2.0, 1))[1] == [
        Finish(4, "the launch failed: rank exit: rank 1: exit 2")
    ]


def test_once_means_one_launch() -> None:
    state, _ = run(serving(replace(POLICY, once=True)), RankExited(5.0, 1, 0, "exit 1"), RankExited(5.0, 1, 1, "exit 1"))
    assert run(state, Collected(6.0, 1))[1] == [Finish(4, "the launch failed: rank exit: rank 0: exit 1")]


def test_failures_are_forgotten_after_a_stable_time() -> None:
    state = replace(serving(), failures=2)
    assert wake_at_s(state) == 102.0
    assert run(state, Tick(101.0))[0].failures == 2
    assert run(state, Tick(102.0))[0].failures == 0


def test_a_launch_that_is_not_ready_in_time_is_replaced() -> None:
    state, effects = run(launching(), RankStarted(1.0, 1, 1), RankStarted(1.0, 1, 0), Tick(60.0))
    assert (state.reason, effects) == (Reason.NOT_READY, [KillRank(1, 0), KillRank(1, 1)])


@pytest.mark.parametrize(
    ("events", "missing"),
    [
        ((), "rank 0, rank 1 not started"),
        ((RankStarted(1.0, 1, 1), RankStarted(1.0, 1, 0)), "rank 1 not loaded"),
        ((RankStarted(1.0, 1, 1), RankStarted(1.0, 1, 0), RankLoaded(2.0, 1, 1)), "rank 0 has not logged that it serves"),
    ],
)
def test_a_launch_that_is_not_ready_in_time_says_what_it_waited_for(events: tuple[Event, ...], missing: str) -> None:
    assert run(launching(), *events, Tick(60.0))[0].detail == f"not serving after 60 s: {missing}"


def test_a_stop_gives_up_on_a_rank_that_cannot_be_killed() -> None:
    state, _ = run(serving(), StopAsked(5.0, force=True), RankExited(5.0, 1, 0, "signal 9"))
    assert run(state, Tick(7.0))[1] == [KillRank(1, 1)]
    state, effects = run(state, Tick(35.0))
    assert state.phase is Phase.GAVE_UP
    assert effects == [Finish(5, "rank 1 could not be ended within 30 s: end it by hand, then start again")]


def test_a_gang_that_shall_come_back_waits_for_a_rank_that_is_out_of_reach() -> None:
    state, _ = run(serving(), Stalled(5.0, 1, "hang"), RankExited(5.0, 1, 0, "signal 9"))
    state, told = step(state, Tick(35.0))
    assert (state.phase, state.detail) == (Phase.CLEARING, "hang; rank 1 could not be ended within 30 s")
    assert told == (Note("rank 1 could not be ended within 30 s: trying on, and nothing starts before it is gone", "error"),)
    for _ in range(500):
        state, effects = run(state, Tick(wake_at_s(state) or 0.0))
        assert (state.phase, effects) == (Phase.CLEARING, [KillRank(1, 1)])
    assert state.killed_at_s > 1000.0
    state, _ = run(state, RankExited(2000.0, 1, 1, "signal 9"), Collected(2001.0, 1))
    assert state.phase is Phase.PAUSING
    assert run(state, Tick(state.resume_at_s))[1] == [Gate(2)]


def test_a_stop_ends_the_waiting_for_a_rank_that_is_out_of_reach() -> None:
    state, _ = run(serving(), Stalled(5.0, 1, "hang"), RankExited(5.0, 1, 0, "x"), Tick(35.0), Tick(500.0), StopAsked(501.0))
    assert wake_at_s(state) == 35.0
    assert run(state, Tick(501.0))[1] == [Finish(5, "rank 1 could not be ended within 30 s: end it by hand, then start again")]


def test_gates_that_refuse_are_looked_at_again_without_end_and_cost_no_restart() -> None:
    state, _ = run(serving(), RankExited(5.0, 1, 1, "x"), RankExited(5.0, 1, 0, "x"), Collected(5.0, 1))
    for _ in range(20 * POLICY.restart_limit):
        state, _ = run(state, Tick(state.resume_at_s), GateRefused(state.resume_at_s + 1.0, state.launch + 1, "no answer"))
        assert (state.phase, state.failures) == (Phase.PAUSING, 1)
        assert state.resume_at_s - state.since_s <= 30.0
    state, _ = run(state, Tick(state.resume_at_s), GatePassed(state.resume_at_s, state.launch + 1))
    assert (state.phase, state.refusals) == (Phase.LAUNCHING, 0)


@pytest.mark.parametrize(("policy", "code"), [(replace(POLICY, once=True), 4), (replace(POLICY, restart_limit=0), 5)])
def test_a_refused_gate_is_the_end_where_nothing_more_was_asked(policy: Policy, code: int) -> None:
    state, _ = run(serving(policy), RestartAsked(5.0), *[RankExited(6.0, 1, rank, "exit 0") for rank in (0, 1)])
    state, _ = run(state, Collected(6.0, 1))
    assert run(state, GateRefused(7.0, 2, "memory"))[1] == [Finish(code, "the launch was refused: memory")]


def test_saving_logs_that_hangs_does_not_hold_up_the_gang() -> None:
    state, _ = run(serving(), RankExited(5.0, 1, 0, "x"), RankExited(5.0, 1, 1, "x"))
    assert wake_at_s(state) == 35.0
    assert run(state, Tick(35.0))[0].phase is Phase.PAUSING
    assert run(state, Tick(35.0), Collected(36.0, 1))[0].phase is Phase.PAUSING


def test_a_gang_that_runs_is_taken_over_and_probed() -> None:
    state, effects = run(State(POLICY), Begin(0.0, adopt=True))
    assert (state.phase, state.up, effects) == (Phase.PROBING, {0, 1}, [RunSmoke(1)])
    state, _ = run(state, RankLoaded(0.1, 1, 1), ServerReady(0.1, 1), Parity(0.1, 1), Smoke(1.0, 1, passed=True))
    assert state.phase is Phase.SERVING


def test_a_gang_that_hangs_in_its_smoke_test_is_ended_without_waiting_for_the_tests_end() -> None:
    state, _ = run(State(POLICY), Begin(0.0, adopt=True))
    state, effects = run(state, Stalled(12.0, 1, "nothing has moved for 10 s"))
    assert (state.phase, state.reason) == (Phase.CLEARING, Reason.NO_PROGRESS)
    assert effects == [KillRank(1, 0), KillRank(1, 1)]
    assert run(state, Smoke(12.1, 1, passed=False, why="broke off")) == (state, [])


def test_events_of_an_earlier_launch_change_nothing() -> None:
    state = replace(serving(), launch=2)
    assert step(state, RankExited(5.0, 1, 0, "late")) == (state, ())
    assert step(state, Stalled(5.0, 1, "late")) == (state, ())


def test_an_impossible_event_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(IllegalEvent, match="GatePassed while serving"):
        step(serving(), GatePassed(5.0, 1))
    with pytest.raises(IllegalEvent, match="Begin while serving"):
        step(serving(), Begin(5.0))
    with pytest.raises(IllegalEvent, match="StartFailed while serving"):
        step(serving(), StartFailed(5.0, 1, 0, "x"))


def test_every_ignored_event_has_a_reason() -> None:
    assert all(len(why) > 5 for why in IGNORED.values())


@pytest.mark.parametrize("failures", range(1, 12))
def test_pauses_grow_stay_bounded_and_do_not_beat_in_step(failures: int) -> None:
    policy = Policy(world_size=2, pause_first_s=0.5, pause_max_s=30.0)
    full = min(30.0, 0.5 * 2 ** (failures - 1))
    assert 0.75 * full <= pause_s(policy, failures) <= full
    assert pause_s(policy, failures) == pause_s(policy, failures)
    assert len({pause_s(replace(policy, seed=seed), failures) for seed in range(5)}) > 1
