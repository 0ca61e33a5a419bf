"""What people ask of the gang: a stop, a restart, a handover, other settings."""

from __future__ import annotations

from dataclasses import replace

from supervisor.machine import reasons
from supervisor.machine.moves import Step, clear, drain, enter, gate, leave
from supervisor.machine.policy import rest_s
from supervisor.machine.types import (
    After,
    Finish,
    HandoverAsked,
    Note,
    Phase,
    PolicyChanged,
    Reason,
    RestartAsked,
    State,
    StopAsked,
)


def stop_idle(state: State, event: StopAsked) -> Step:
    """No rank runs: leave at once."""
    return leave(state, event.at_s)


def stop_now(state: State, event: StopAsked) -> Step:
    """Nothing is served yet: no orderly stop is needed."""
    return clear(reasons.ending(state, After.STOP, Reason.STOP), event.at_s)


def stop_serving(state: State, event: StopAsked) -> Step:
    """In order, unless by force."""
    return stop_now(state, event) if event.force else drain(reasons.ending(state, After.STOP, Reason.STOP), event.at_s)


def stop_draining(state: State, event: StopAsked) -> Step:
    """Nothing shall follow this end; by force, it shall also come now."""
    state, _ = stop_clearing(state, event)
    return clear(state, event.at_s) if event.force else (state, ())


def stop_clearing(state: State, _event: StopAsked) -> Step:
    """Nothing shall follow this end. One that is a failure for good stays that, with its exit code."""
    return (state if state.after is After.FAIL else replace(state, after=After.STOP)), ()


def gate_again(state: State, event: RestartAsked) -> Step:
    """No rank runs: a launch with what is wanted now."""
    return gate(state, event.at_s)


def restart_now(state: State, event: RestartAsked) -> Step:
    """Nothing is served yet: no orderly stop is needed."""
    return clear(reasons.ending(state, After.RELAUNCH, event.reason), event.at_s)


def restart_serving(state: State, event: RestartAsked) -> Step:
    """Stop in order, then launch."""
    return drain(reasons.ending(state, After.RELAUNCH, event.reason), event.at_s)


def restart_ending(state: State, _event: RestartAsked) -> Step:
    """Launch without the pause that was to come; a stop or a last failure stands."""
    return (replace(state, after=After.RELAUNCH) if state.after is After.PAUSE else state), ()


def hand_over(state: State, event: HandoverAsked) -> Step:
    """Only a whole gang can be taken over: one that still loads would be removed by the next supervisor."""
    said = Note("handed over: the ranks go on without this supervisor")
    return enter(state, Phase.HANDED_OVER, event.at_s), (said, Finish(0))


def policy_changed(state: State, event: PolicyChanged) -> Step:
    """From now on; a pause under way takes its new length too."""
    policy = replace(event.policy, world_size=state.policy.world_size)
    resume_at_s = state.resume_at_s
    if state.phase is Phase.PAUSING:
        resume_at_s = state.since_s + rest_s(replace(state, policy=policy))
    return replace(state, policy=policy, resume_at_s=resume_at_s), ()
