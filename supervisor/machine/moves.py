"""The moves between phases, each one a pure ``(state, …) -> (state, effects)``.

The gang rule lives here: every rank or none. Whatever ends a launch leads through :func:`clear`, which kills every rank, and
nothing is started again before :func:`cleared` has seen all of them gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from supervisor.machine import reasons
from supervisor.machine.policy import counted, rest_s
from supervisor.machine.types import (
    After,
    Collect,
    Effect,
    Finish,
    Gate,
    KillRank,
    Note,
    Phase,
    Reason,
    StartRank,
    State,
    TerminateRank,
)

Step = tuple[State, tuple[Effect, ...]]


def enter(state: State, phase: Phase, at_s: float, **changes: Any) -> State:
    """The state in another phase, which begins now."""
    return replace(state, phase=phase, since_s=at_s, **changes)


def gate(state: State, at_s: float) -> Step:
    """Begin a launch: nothing of an earlier one is left in the state."""
    fresh = State(
        policy=state.policy,
        launch=state.launch + 1,
        failures=state.failures,
        refusals=state.refusals,
        restarts=state.restarts,
        served=state.served,
        launched=state.launched,
    )
    return enter(fresh, Phase.GATING, at_s), (Gate(fresh.launch),)


def order(state: State, ranks: tuple[int, ...]) -> Step:
    """Have these ranks started."""
    return replace(state, starting=state.starting | set(ranks)), tuple(StartRank(state.launch, rank) for rank in ranks)


def fail(state: State, at_s: float, reason: Reason, detail: str, *, hopeless: bool = False) -> Step:
    """End the launch at once and count the failure."""
    state, effects = clear(reasons.failed(state, reason, detail, hopeless=hopeless), at_s)
    return state, (*effects, Note(f"launch {state.launch} ended: {reason}: {detail}", "error"))


def drain(state: State, at_s: float) -> Step:
    """Stop in order: rank 0 is asked first, and tells the others."""
    state = enter(state, Phase.DRAINING, at_s, head_gone_s=None, terminated=frozenset({0}))
    return state, (TerminateRank(state.launch, 0),)


def clear(state: State, at_s: float) -> Step:
    """Kill every rank that lives or may be about to."""
    return cleared(enter(state, Phase.CLEARING, at_s, killed_at_s=at_s, collecting=False), *kills(state))


def kills(state: State) -> tuple[Effect, ...]:
    """Kill every rank that runs. One whose start is under way is killed when it reports."""
    return tuple(KillRank(state.launch, rank) for rank in sorted(state.up))


def cleared(state: State, *effects: Effect) -> Step:
    """Once every rank is gone, save the logs."""
    if state.alive or state.collecting:
        return state, effects
    assert state.reason is not None
    return replace(state, collecting=True), (*effects, Collect(state.launch, state.reason, state.detail))


def follow(state: State, at_s: float) -> Step:
    """What follows the end of a launch. A replacement is counted here, since its reason is settled only now."""
    if state.after in {After.RELAUNCH, After.PAUSE} and state.reason:
        state = replace(state, restarts=counted(state.restarts, state.reason))
    match state.after:
        case After.STOP:
            return leave(state, at_s)
        case After.RELAUNCH:
            return gate(state, at_s)
        case After.FAIL:
            return enter(state, Phase.GAVE_UP, at_s), (Finish(state.exit_code, reasons.last_words(state)),)
        case After.PAUSE:
            pause_s = rest_s(state)
            return enter(state, Phase.PAUSING, at_s, resume_at_s=at_s + pause_s), (reasons.told_pause(state, pause_s),)


def leave(state: State, at_s: float) -> Step:
    """The supervisor's orderly end."""
    return enter(state, Phase.STOPPED, at_s), (Finish(0),)
