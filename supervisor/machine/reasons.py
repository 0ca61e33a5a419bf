"""Why a launch ended and what shall follow: the bookkeeping of failures, and the words for it. Pure."""

from __future__ import annotations

from dataclasses import replace

from supervisor.machine.policy import after_failure, after_refusal
from supervisor.machine.types import After, Note, RankExited, Reason, State


def ending(state: State, after: After, reason: Reason, detail: str = "") -> State:
    """The launch is to end for this reason, with this to follow."""
    return replace(state, after=after, reason=reason, detail=detail)


def failed(state: State, reason: Reason, detail: str, *, hopeless: bool = False) -> State:
    """Count the failure and decide what follows. ``hopeless``: another launch would end the same."""
    failures = state.failures + 1
    after, exit_code = after_failure(state.policy, failures, hopeless)
    return replace(ending(state, after, reason, detail), failures=failures, exit_code=exit_code)


def refused(state: State, why: str) -> State:
    """A gate that lets nothing through counts apart from launches that failed: nothing was started."""
    after, exit_code = after_refusal(state.policy)
    return replace(ending(state, after, Reason.GATE, why), refusals=state.refusals + 1, exit_code=exit_code)


def traced(state: State, event: RankExited) -> State:
    """The launch's reason where a guard turns out to have ended a rank.

    A rank that misses its peer ends within milliseconds, and may be seen before the one that the guard killed: whichever
    exit is told first, the guard's reason stands. Trying again is then as good as after any kill.
    """
    if state.reason is not Reason.RANK_EXIT or event.reason is Reason.RANK_EXIT or state.after is After.STOP:
        return state
    found = ending(state, state.after, event.reason, told_exit(event))
    if state.after is not After.FAIL:
        return found
    after, exit_code = after_failure(state.policy, state.failures, hopeless=False)
    return replace(found, after=after, exit_code=exit_code)


def told_exit(event: RankExited) -> str:
    """Which rank ended, and how."""
    return f"rank {event.rank}: {event.how}"


def told_pause(state: State, pause_s: float) -> Note:
    """When the next launch, or the next look at the gate, comes."""
    if state.reason is Reason.GATE:
        return Note(f"no launch: {state.detail}; the next look is in {pause_s:.1f} s", "warning")
    return Note(f"next launch in {pause_s:.1f} s (failure {state.failures} of {state.policy.restart_limit} in a row)")


def missing(state: State) -> str:
    """What a launch still waits for: a start, a load, the ready line of rank 0 (which waits for its peers), or the smoke test."""
    ranks = frozenset(range(state.policy.world_size))
    if waiting := ranks - state.up:
        return f"{_named(waiting)} not started"
    if waiting := ranks - state.loaded - {0}:
        return f"{_named(waiting)} not loaded"
    return "the smoke test has not ended" if state.ready_logged else "rank 0 has not logged that it serves"


def resisting(state: State) -> str:
    """Which ranks could not be ended."""
    return f"{_named(state.alive)} could not be ended within {state.policy.kill_limit_s:g} s"


def last_words(state: State) -> str:
    """Why the supervisor gives up."""
    ended = f"{state.reason}: {state.detail}" if state.detail else f"{state.reason}"
    if state.reason is Reason.GATE:
        return f"the launch was refused: {state.detail}"
    if state.exit_code == 5:
        return f"gave up after {state.failures} failures in a row; the last: {ended}"
    return f"the launch failed: {ended}"


def _named(ranks: frozenset[int]) -> str:
    return ", ".join(f"rank {rank}" for rank in sorted(ranks))
