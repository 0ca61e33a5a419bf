"""From the first event to a gang that serves: the gate, the ranks' starts, the comparison of their settings, the smoke test."""

from __future__ import annotations

from dataclasses import replace

from supervisor.machine import reasons
from supervisor.machine.moves import Step, enter, fail, follow, gate, order
from supervisor.machine.policy import due
from supervisor.machine.types import (
    Announce,
    Begin,
    Finish,
    GatePassed,
    GateRefused,
    IllegalEvent,
    Note,
    Parity,
    Phase,
    RankLoaded,
    RankStarted,
    Reason,
    RunSmoke,
    ServerReady,
    Smoke,
    StartFailed,
    State,
    Tick,
)


def begin(state: State, event: Begin) -> Step:
    """Launch a gang, or take over the one that runs."""
    if state.launch:
        raise IllegalEvent(f"a second Begin: {event}")
    if not event.adopt:
        return gate(state, event.at_s)
    ranks = frozenset(range(state.policy.world_size))
    taken = enter(state, Phase.PROBING, event.at_s, launch=1, up=ranks, loaded=ranks, ready_logged=True, launched=True)
    return taken, (Note("taking over the gang that runs"), RunSmoke(taken.launch))


def start_followers(state: State, event: GatePassed) -> Step:
    """Every rank but 0, which starts last; a gang of one starts at once."""
    followers = range(state.policy.world_size - 1, 0, -1)
    return order(enter(state, Phase.LAUNCHING, event.at_s, launched=True, refusals=0), tuple(followers) or (0,))


def gate_refused(state: State, event: GateRefused) -> Step:
    """The end where no gang has run yet, since whoever asked waits for the answer; later another look, after a pause."""
    if not state.launched:
        return enter(state, Phase.STOPPED, event.at_s, exit_code=event.exit_code), (Finish(event.exit_code, event.why),)
    return follow(reasons.refused(state, event.why), event.at_s)


def rank_started(state: State, event: RankStarted) -> Step:
    """Rank 0 follows once all the others run."""
    state = replace(state, starting=state.starting - {event.rank}, up=state.up | {event.rank})
    followers = frozenset(range(1, state.policy.world_size))
    return order(state, (0,)) if followers <= state.up and 0 not in state.alive else (state, ())


def start_failed(state: State, event: StartFailed) -> Step:
    """No rank without the others."""
    state = replace(state, starting=state.starting - {event.rank})
    return fail(state, event.at_s, Reason.START_FAILED, event.why, hopeless=event.hopeless)


def rank_loaded(state: State, event: RankLoaded) -> Step:
    """Remembered until every rank has loaded."""
    return replace(state, loaded=state.loaded | {event.rank}), ()


def server_ready(state: State, _event: ServerReady) -> Step:
    """Rank 0's ready line says that it has loaded too."""
    return replace(state, ready_logged=True, loaded=state.loaded | {0}), ()


def probe_if_equal(state: State, event: Parity) -> Step:
    """Ranks with equal settings are put to the smoke test."""
    if event.differences:
        return settings_differ(state, event)
    if not state.ready_logged or len(state.loaded) < state.policy.world_size:
        raise IllegalEvent("parity was judged before every rank had loaded")
    return enter(state, Phase.PROBING, event.at_s), (RunSmoke(state.launch),)


def settings_differ(state: State, event: Parity) -> Step:
    """Ranks that run with different settings hang or diverge; equal ones go on."""
    return fail(state, event.at_s, Reason.PARITY, "; ".join(event.differences)) if event.differences else (state, ())


def serve_if_sound(state: State, event: Smoke) -> Step:
    """A gang that passes the smoke test serves."""
    if not event.passed:
        return fail(state, event.at_s, Reason.SMOKE, event.why)
    return enter(state, Phase.SERVING, event.at_s, served=True), (Announce(state.launch),)


def not_ready(state: State, event: Tick) -> Step:
    """A launch that takes too long is replaced."""
    wait_s = state.policy.wait_timeout_s
    if not due(event.at_s, state.since_s, wait_s):
        return state, ()
    return fail(state, event.at_s, Reason.NOT_READY, f"not serving after {wait_s:g} s: {reasons.missing(state)}")
