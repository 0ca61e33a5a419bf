"""What ends a gang that runs, and the stable time after which its failures are forgotten."""

from __future__ import annotations

from dataclasses import replace

from supervisor.machine import reasons
from supervisor.machine.moves import Step, drain, fail
from supervisor.machine.policy import due
from supervisor.machine.types import GuardLost, MemoryBreach, Note, RankExited, Reason, Stalled, State, Tick


def rank_exited(state: State, event: RankExited) -> Step:
    """One rank's end is every rank's."""
    return fail(without(state, event), event.at_s, event.reason, reasons.told_exit(event), hopeless=event.hopeless)


def without(state: State, event: RankExited) -> State:
    """The state when the rank is gone."""
    return replace(state, starting=state.starting - {event.rank}, up=state.up - {event.rank})


def stalled(state: State, event: Stalled) -> Step:
    """A gang that hangs does not come back by itself."""
    return fail(state, event.at_s, Reason.NO_PROGRESS, event.why)


def memory_kill(state: State, event: MemoryBreach) -> Step:
    """Nothing is served yet, or the hard floor is near: no time for an orderly stop."""
    return fail(state, event.at_s, _breached(event), event.why)


def memory_breach(state: State, event: MemoryBreach) -> Step:
    """Requests may run: an orderly stop where the soft floor leaves time for it."""
    if event.hard:
        return memory_kill(state, event)
    return drain(reasons.failed(state, Reason.MEMORY_SOFT, event.why), event.at_s)


def _breached(event: MemoryBreach) -> Reason:
    if not event.hard:
        return Reason.MEMORY_SOFT
    return Reason.MEMORY_SLOPE if event.slope else Reason.MEMORY_HARD


def guard_lost(state: State, event: GuardLost) -> Step:
    """Nothing is served yet: end at once."""
    return fail(state, event.at_s, Reason.GUARD_LOST, event.why)


def guard_lost_serving(state: State, event: GuardLost) -> Step:
    """Requests may run: an orderly stop."""
    return drain(reasons.failed(state, Reason.GUARD_LOST, event.why), event.at_s)


def forget_failures(state: State, event: Tick) -> Step:
    """After a stable time the restarts are bounded afresh."""
    if not state.failures or not due(event.at_s, state.since_s, state.policy.stable_s):
        return state, ()
    return replace(state, failures=0), (Note("the gang is stable: failures are counted afresh"),)
