"""While a launch ends: the orderly stop (draining), then the certainty that every rank is gone (clearing), then the pause."""

from __future__ import annotations

from dataclasses import replace

from supervisor.machine import reasons
from supervisor.machine.failing import without
from supervisor.machine.moves import Step, clear, cleared, enter, follow, gate, kills
from supervisor.machine.policy import GOES_ON, due
from supervisor.machine.types import (
    Collected,
    Finish,
    KillRank,
    MemoryBreach,
    Note,
    Phase,
    RankExited,
    RankStarted,
    StartFailed,
    State,
    TerminateRank,
    Tick,
)


def rank_drained(state: State, event: RankExited) -> Step:
    """One rank less; the moment when rank 0 ended counts, since it tells the others."""
    state = without(state, event)
    if event.rank == 0:
        state = replace(state, head_gone_s=event.at_s)
    return (state, ()) if state.alive else clear(state, event.at_s)


def cut_short(state: State, event: MemoryBreach) -> Step:
    """The hard floor leaves no time for an orderly stop; the soft one does."""
    return clear(state, event.at_s) if event.hard else (state, ())


def force_if_late(state: State, event: Tick) -> Step:
    """Force after the stop time. Before it: rank 0 has ended and should have told the others; those that stay are asked once."""
    policy = state.policy
    if due(event.at_s, state.since_s, policy.stop_timeout_s):
        state, effects = clear(state, event.at_s)
        return state, (Note(f"no orderly end within {policy.stop_timeout_s:g} s: killing", "warning"), *effects)
    left = state.up - state.terminated
    if state.head_gone_s is None or not due(event.at_s, state.head_gone_s, policy.follower_grace_s) or not left:
        return state, ()
    asked = tuple(TerminateRank(state.launch, rank) for rank in sorted(left))
    return replace(state, terminated=state.terminated | left), asked


def kill_late_start(state: State, event: RankStarted) -> Step:
    """A rank whose start was under way when the launch ended."""
    state = replace(state, starting=state.starting - {event.rank}, up=state.up | {event.rank})
    return state, (KillRank(state.launch, event.rank),)


def late_start_failed(state: State, event: StartFailed) -> Step:
    """One rank less to wait for."""
    return cleared(replace(state, starting=state.starting - {event.rank}))


def rank_cleared(state: State, event: RankExited) -> Step:
    """One rank less to wait for; its end may tell why the others ended."""
    gone = without(state, event)
    traced = reasons.traced(gone, event)
    said = () if traced.reason is gone.reason else (Note(f"it was {traced.reason}: {traced.detail}", "error"),)
    return cleared(traced, *said)


def logs_saved(state: State, event: Collected) -> Step:
    """The launch is over: on to what follows it."""
    noted = (Note(event.problem, "warning"),) if event.problem else ()
    state, effects = follow(replace(state, collecting=False), event.at_s)
    return state, (*noted, *effects)


def kill_again(state: State, event: Tick) -> Step:
    """Kill again what still lives; go on where only the logs hang.

    A rank that resists, or whose node cannot be reached, is the end only where nothing is to follow: a gang that shall come back
    waits for it, since a worker that boots or a link that is mended says sooner or later that the rank is gone.
    """
    at_s, over = event.at_s, due(event.at_s, state.since_s, state.policy.kill_limit_s)
    if state.collecting:
        return logs_saved(state, Collected(at_s, state.launch, "saving the logs took too long")) if over else (state, ())
    resisting = reasons.resisting(state)
    if over and state.after not in GOES_ON:
        why = f"{resisting}: end it by hand, then start again"
        return enter(state, Phase.GAVE_UP, at_s, exit_code=5), (Finish(5, why),)
    if over and not state.stuck:
        said = f"{resisting}: trying on, and nothing starts before it is gone"
        return replace(state, stuck=True, detail=f"{state.detail}; {resisting}"), (Note(said, "error"),)
    if not due(at_s, state.killed_at_s, state.policy.kill_again_s):
        return state, ()
    return replace(state, killed_at_s=at_s), kills(state)


def pause_over(state: State, event: Tick) -> Step:
    """The next launch."""
    return gate(state, event.at_s) if event.at_s >= state.resume_at_s else (state, ())
