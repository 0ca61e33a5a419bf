"""The gang's transitions: ``step(state, event)`` gives the next state and the effects to carry out. Pure.

The gang rule lives here: every rank or none. Whatever ends a launch leads through CLEARING, which kills every rank, and
nothing is started again before all of them are known to be gone.

An event that a phase has no use for is either listed in :data:`IGNORED` with the reason, or an :class:`IllegalEvent`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from supervisor.machine.policy import GOES_ON, after_failure, after_refusal, counted, rest_s
from supervisor.machine.types import (
    After,
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
    GuardLost,
    HandoverAsked,
    KillRank,
    LaunchEvent,
    MemoryBreach,
    Note,
    Parity,
    Phase,
    PolicyChanged,
    RankExited,
    RankLoaded,
    RankStarted,
    Reason,
    RestartAsked,
    RunSmoke,
    ServerReady,
    Smoke,
    Stalled,
    StartFailed,
    StartRank,
    State,
    StopAsked,
    TerminateRank,
    Tick,
)

Step = tuple[State, tuple[Effect, ...]]

_ENDING = "the launch is ending already"
_IDLE = "nothing runs"
_ADOPTED = "the log of a gang that was taken over is read again from its start"
_LATE: tuple[type[Event], ...] = (
    StopAsked,
    RestartAsked,
    HandoverAsked,
    RankLoaded,
    ServerReady,
    Parity,
    Smoke,
    Stalled,
    MemoryBreach,
    GuardLost,
    RankExited,
)
IGNORED: dict[tuple[Phase, type[Event]], str] = {
    **{(phase, Tick): "no deadline has passed" for phase in Phase},
    **{(phase, StopAsked): "it has stopped already" for phase in (Phase.STOPPED, Phase.GAVE_UP)},
    **{(phase, RestartAsked): "the supervisor is leaving" for phase in (Phase.STOPPED, Phase.GAVE_UP)},
    **{(phase, kind): _ADOPTED for phase in (Phase.PROBING, Phase.SERVING) for kind in (RankLoaded, ServerReady)},
    **{
        (phase, kind): _ENDING
        for phase in (Phase.DRAINING, Phase.CLEARING)
        for kind in (RankLoaded, ServerReady, Parity, Smoke, Stalled, MemoryBreach, GuardLost)
    },
    **{
        (phase, kind): _IDLE
        for phase in (Phase.STOPPED, Phase.GATING, Phase.PAUSING, Phase.GAVE_UP)
        for kind in (RankLoaded, ServerReady, Parity, Smoke, Stalled, MemoryBreach, GuardLost, Collected, RankExited)
    },
    **{
        (phase, HandoverAsked): "no gang serves that could be handed over"
        for phase in Phase
        if phase not in (Phase.PROBING, Phase.SERVING, Phase.HANDED_OVER)
    },
    **{(phase, Stalled): "the gang does not serve yet: other limits hold" for phase in (Phase.LAUNCHING, Phase.PROBING)},
    **{
        (phase, kind): "the supervisor is leaving"
        for phase in (Phase.STOPPED, Phase.GAVE_UP)
        for kind in (GatePassed, GateRefused, RankStarted, StartFailed)
    },
    **{(Phase.HANDED_OVER, kind): "the supervisor has left" for kind in _LATE},
}


class IllegalEvent(Exception):
    """An event that cannot come in this phase: a fault of the supervisor itself."""


def step(state: State, event: Event) -> Step:
    """The next state and what to do. Events of an earlier launch change nothing."""
    if isinstance(event, LaunchEvent) and event.launch != state.launch:
        return state, ()
    return _HANDLERS[type(event)](state, event)


def _unused(state: State, event: Event) -> Step:
    if (state.phase, type(event)) in IGNORED:
        return state, ()
    raise IllegalEvent(f"{type(event).__name__} while {state.phase.value}: {event}")


def _begin(state: State, event: Begin) -> Step:
    if state.phase is not Phase.STOPPED or state.launch:
        return _unused(state, event)
    if not event.adopt:
        return _gate(state, event.at_s)
    ranks = frozenset(range(state.policy.world_size))
    taken = _enter(state, Phase.PROBING, event.at_s, launch=1, up=ranks, loaded=ranks, ready_logged=True, launched=True)
    return taken, (Note("taking over the gang that runs"), RunSmoke(taken.launch))


def _gate_passed(state: State, event: GatePassed) -> Step:
    if state.phase is not Phase.GATING:
        return _unused(state, event)
    followers = range(state.policy.world_size - 1, 0, -1)
    state = _enter(state, Phase.LAUNCHING, event.at_s, launched=True, refusals=0)
    return _order(state, tuple(followers) or (0,))


def _gate_refused(state: State, event: GateRefused) -> Step:
    if state.phase is not Phase.GATING:
        return _unused(state, event)
    if not state.launched:
        return _enter(state, Phase.STOPPED, event.at_s, exit_code=event.exit_code), (Finish(event.exit_code, event.why),)
    return _next(_refused(state, event.why), event.at_s)


def _rank_started(state: State, event: RankStarted) -> Step:
    if state.phase not in (Phase.LAUNCHING, Phase.CLEARING):
        return _unused(state, event)
    state = replace(state, starting=state.starting - {event.rank}, up=state.up | {event.rank})
    if state.phase is Phase.CLEARING:
        return state, (KillRank(state.launch, event.rank),)
    followers = frozenset(range(1, state.policy.world_size))
    return _order(state, (0,)) if followers <= state.up and 0 not in state.alive else (state, ())


def _start_failed(state: State, event: StartFailed) -> Step:
    if state.phase not in (Phase.LAUNCHING, Phase.CLEARING):
        return _unused(state, event)
    state = replace(state, starting=state.starting - {event.rank})
    if state.phase is Phase.CLEARING:
        return _cleared(state)
    return _fail(state, event.at_s, Reason.START_FAILED, event.why, event.hopeless)


def _rank_exited(state: State, event: RankExited) -> Step:
    gone = replace(state, starting=state.starting - {event.rank}, up=state.up - {event.rank})
    match state.phase:
        case Phase.LAUNCHING | Phase.PROBING | Phase.SERVING:
            return _fail(gone, event.at_s, event.reason, f"rank {event.rank}: {event.how}", event.hopeless)
        case Phase.DRAINING:
            if event.rank == 0:
                gone = replace(gone, head_gone_s=event.at_s)
            return (gone, ()) if gone.alive else _clear(gone, event.at_s)
        case Phase.CLEARING:
            traced = _traced(gone, event)
            said = () if traced.reason is gone.reason else (Note(f"it was {traced.reason}: {traced.detail}", "error"),)
            return _cleared(traced, *said)
        case _:
            return _unused(state, event)


def _traced(state: State, event: RankExited) -> State:
    """The launch's reason where a guard turns out to have ended a rank.

    A rank that misses its peer ends within milliseconds, and may be seen before the one that the guard killed: whichever
    exit is told first, the guard's reason stands. Trying again is then as good as after any kill.
    """
    if state.reason is not Reason.RANK_EXIT or event.reason is Reason.RANK_EXIT or state.after is After.STOP:
        return state
    traced = _ending(state, state.after, event.reason, f"rank {event.rank}: {event.how}")
    if state.after is not After.FAIL:
        return traced
    after, exit_code = after_failure(state.policy, state.failures, hopeless=False)
    return replace(traced, after=after, exit_code=exit_code)


def _rank_loaded(state: State, event: RankLoaded) -> Step:
    if state.phase is not Phase.LAUNCHING:
        return _unused(state, event)
    return replace(state, loaded=state.loaded | {event.rank}), ()


def _server_ready(state: State, event: ServerReady) -> Step:
    if state.phase is not Phase.LAUNCHING:
        return _unused(state, event)
    return replace(state, ready_logged=True, loaded=state.loaded | {0}), ()  # its ready line says that it has loaded


def _parity(state: State, event: Parity) -> Step:
    if state.phase not in (Phase.LAUNCHING, Phase.PROBING, Phase.SERVING):
        return _unused(state, event)
    if event.differences:
        return _fail(state, event.at_s, Reason.PARITY, "; ".join(event.differences))
    if state.phase is not Phase.LAUNCHING:
        return state, ()
    if not state.ready_logged or len(state.loaded) < state.policy.world_size:
        raise IllegalEvent("parity was judged before every rank had loaded")
    return _enter(state, Phase.PROBING, event.at_s), (RunSmoke(state.launch),)


def _smoke(state: State, event: Smoke) -> Step:
    if state.phase is not Phase.PROBING:
        return _unused(state, event)
    if not event.passed:
        return _fail(state, event.at_s, Reason.SMOKE, event.why)
    return _enter(state, Phase.SERVING, event.at_s, served=True), (Announce(state.launch),)


def _stalled(state: State, event: Stalled) -> Step:
    if state.phase is not Phase.SERVING:
        return _unused(state, event)
    return _fail(state, event.at_s, Reason.NO_PROGRESS, event.why)


def _memory_breach(state: State, event: MemoryBreach) -> Step:
    """Hard: kill now, also in the middle of an orderly stop. Soft: an orderly stop where requests may run."""
    match state.phase:
        case Phase.SERVING if not event.hard:
            return _drain(_failed(state, Reason.MEMORY_SOFT, event.why, hopeless=False), event.at_s)
        case Phase.LAUNCHING | Phase.PROBING | Phase.SERVING:
            hard = Reason.MEMORY_SLOPE if event.slope else Reason.MEMORY_HARD
            return _fail(state, event.at_s, hard if event.hard else Reason.MEMORY_SOFT, event.why)
        case Phase.DRAINING if event.hard:
            return _clear(state, event.at_s)
        case _:
            return _unused(state, event)


def _guard_lost(state: State, event: GuardLost) -> Step:
    match state.phase:
        case Phase.SERVING:
            return _drain(_failed(state, Reason.GUARD_LOST, event.why, hopeless=False), event.at_s)
        case Phase.LAUNCHING | Phase.PROBING:
            return _fail(state, event.at_s, Reason.GUARD_LOST, event.why)
        case _:
            return _unused(state, event)


def _collected(state: State, event: Collected) -> Step:
    if state.phase is not Phase.CLEARING:
        return _unused(state, event)
    noted = (Note(event.problem, "warning"),) if event.problem else ()
    state, effects = _next(replace(state, collecting=False), event.at_s)
    return state, (*noted, *effects)


def _stop_asked(state: State, event: StopAsked) -> Step:
    match state.phase:
        case Phase.GATING | Phase.PAUSING:
            return _enter(state, Phase.STOPPED, event.at_s), (Finish(0),)
        case Phase.SERVING if not event.force:
            return _drain(_ending(state, After.STOP, Reason.STOP), event.at_s)
        case Phase.LAUNCHING | Phase.PROBING | Phase.SERVING:
            return _clear(_ending(state, After.STOP, Reason.STOP), event.at_s)
        case Phase.DRAINING | Phase.CLEARING:
            if state.after is not After.FAIL:
                state = replace(state, after=After.STOP)
            return _clear(state, event.at_s) if event.force and state.phase is Phase.DRAINING else (state, ())
        case _:
            return _unused(state, event)


def _handover_asked(state: State, event: HandoverAsked) -> Step:
    """Only a whole gang can be taken over: one that still loads would be removed by the next supervisor."""
    if state.phase not in (Phase.PROBING, Phase.SERVING):
        return _unused(state, event)
    return _enter(state, Phase.HANDED_OVER, event.at_s), (Note("handed over: the ranks go on without this supervisor"), Finish(0))


def _policy_changed(state: State, event: PolicyChanged) -> Step:
    """From now on; a pause under way takes its new length too."""
    policy = replace(event.policy, world_size=state.policy.world_size)
    resume_at_s = state.resume_at_s
    if state.phase is Phase.PAUSING:
        resume_at_s = state.since_s + rest_s(replace(state, policy=policy))
    return replace(state, policy=policy, resume_at_s=resume_at_s), ()


def _restart_asked(state: State, event: RestartAsked) -> Step:
    match state.phase:
        case Phase.GATING | Phase.PAUSING:
            return _gate(state, event.at_s)
        case Phase.SERVING:
            return _drain(_asked(state, event.reason), event.at_s)
        case Phase.LAUNCHING | Phase.PROBING:
            return _clear(_asked(state, event.reason), event.at_s)
        case Phase.DRAINING | Phase.CLEARING:
            return (replace(state, after=After.RELAUNCH) if state.after is After.PAUSE else state), ()
        case _:
            return _unused(state, event)


def _tick(state: State, event: Tick) -> Step:
    at_s, policy = event.at_s, state.policy
    match state.phase:
        case Phase.LAUNCHING | Phase.PROBING if _due(at_s, state.since_s, policy.wait_timeout_s):
            return _fail(state, at_s, Reason.NOT_READY, f"not serving after {policy.wait_timeout_s:g} s")
        case Phase.SERVING if state.failures and _due(at_s, state.since_s, policy.stable_s):
            return replace(state, failures=0), (Note("the gang is stable: failures are counted afresh"),)
        case Phase.DRAINING:
            return _draining_tick(state, at_s)
        case Phase.CLEARING:
            return _clearing_tick(state, at_s)
        case Phase.PAUSING if at_s >= state.resume_at_s:
            return _gate(state, at_s)
        case _:
            return _unused(state, event)


def _due(at_s: float, since_s: float, after_s: float) -> bool:
    """Whether a deadline has come. The same sum as in ``wake_at_s``: a difference would round otherwise, and wake for nothing."""
    return at_s >= since_s + after_s


def _draining_tick(state: State, at_s: float) -> Step:
    """Force after the stop time. Before it: rank 0 has ended and should have told the others; those that stay are asked once."""
    if _due(at_s, state.since_s, state.policy.stop_timeout_s):
        state, effects = _clear(state, at_s)
        return state, (Note(f"no orderly end within {state.policy.stop_timeout_s:g} s: killing", "warning"), *effects)
    left = state.up - state.terminated
    if state.head_gone_s is None or not _due(at_s, state.head_gone_s, state.policy.follower_grace_s) or not left:
        return state, ()
    asked = tuple(TerminateRank(state.launch, rank) for rank in sorted(left))
    return replace(state, terminated=state.terminated | left), asked


def _clearing_tick(state: State, at_s: float) -> Step:
    """Kill again what still lives; go on where only the logs hang.

    A rank that resists, or whose node cannot be reached, is the end only where nothing is to follow: a gang that shall come back
    waits for it, since a worker that boots or a link that is mended says sooner or later that the rank is gone.
    """
    over = _due(at_s, state.since_s, state.policy.kill_limit_s)
    if state.collecting:
        return _collected(state, Collected(at_s, state.launch, "saving the logs took too long")) if over else (state, ())
    if over and state.after not in GOES_ON:
        why = f"{_resisting(state)}: end it by hand, then start again"
        return _enter(state, Phase.GAVE_UP, at_s, exit_code=5), (Finish(5, why),)
    if over and not state.stuck:
        said = f"{_resisting(state)}: trying on, and nothing starts before it is gone"
        return replace(state, stuck=True, detail=f"{state.detail}; {_resisting(state)}"), (Note(said, "error"),)
    if not _due(at_s, state.killed_at_s, state.policy.kill_again_s):
        return state, ()
    return replace(state, killed_at_s=at_s), _kills(state)


def _resisting(state: State) -> str:
    ranks = ", ".join(f"rank {rank}" for rank in sorted(state.alive))
    return f"{ranks} could not be ended within {state.policy.kill_limit_s:g} s"


def _enter(state: State, phase: Phase, at_s: float, **changes: Any) -> State:
    return replace(state, phase=phase, since_s=at_s, **changes)


def _gate(state: State, at_s: float) -> Step:
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
    return _enter(fresh, Phase.GATING, at_s), (Gate(fresh.launch),)


def _order(state: State, ranks: tuple[int, ...]) -> Step:
    return replace(state, starting=state.starting | set(ranks)), tuple(StartRank(state.launch, rank) for rank in ranks)


def _ending(state: State, after: After, reason: Reason, detail: str = "") -> State:
    return replace(state, after=after, reason=reason, detail=detail)


def _asked(state: State, reason: Reason) -> State:
    return _ending(state, After.RELAUNCH, reason)


def _failed(state: State, reason: Reason, detail: str, hopeless: bool) -> State:
    """Count the failure and decide what follows."""
    failures = state.failures + 1
    after, exit_code = after_failure(state.policy, failures, hopeless)
    return replace(_ending(state, after, reason, detail), failures=failures, exit_code=exit_code)


def _refused(state: State, why: str) -> State:
    """A gate that lets nothing through counts apart from launches that failed: nothing was started."""
    after, exit_code = after_refusal(state.policy)
    return replace(_ending(state, after, Reason.GATE, why), refusals=state.refusals + 1, exit_code=exit_code)


def _fail(state: State, at_s: float, reason: Reason, detail: str, hopeless: bool = False) -> Step:
    state, effects = _clear(_failed(state, reason, detail, hopeless), at_s)
    return state, (*effects, Note(f"launch {state.launch} ended: {reason}: {detail}", "error"))


def _drain(state: State, at_s: float) -> Step:
    state = _enter(state, Phase.DRAINING, at_s, head_gone_s=None, terminated=frozenset({0}))
    return state, (TerminateRank(state.launch, 0),)


def _clear(state: State, at_s: float) -> Step:
    """Kill every rank that lives or may be about to."""
    return _cleared(_enter(state, Phase.CLEARING, at_s, killed_at_s=at_s, collecting=False), *_kills(state))


def _kills(state: State) -> tuple[Effect, ...]:
    return tuple(KillRank(state.launch, rank) for rank in sorted(state.up))


def _cleared(state: State, *effects: Effect) -> Step:
    """Once every rank is gone, save the logs."""
    if state.alive or state.collecting:
        return state, effects
    assert state.reason is not None
    return replace(state, collecting=True), (*effects, Collect(state.launch, state.reason, state.detail))


def _next(state: State, at_s: float) -> Step:
    """What follows the end of a launch. A replacement is counted here, since its reason is settled only now."""
    if state.after in {After.RELAUNCH, After.PAUSE} and state.reason:
        state = replace(state, restarts=counted(state.restarts, state.reason))
    match state.after:
        case After.STOP:
            return _enter(state, Phase.STOPPED, at_s), (Finish(0),)
        case After.RELAUNCH:
            return _gate(state, at_s)
        case After.FAIL:
            return _enter(state, Phase.GAVE_UP, at_s), (Finish(state.exit_code, _last_words(state)),)
        case After.PAUSE:
            pause = rest_s(state)
            return _enter(state, Phase.PAUSING, at_s, resume_at_s=at_s + pause), _told_pause(state, pause)


def _told_pause(state: State, pause: float) -> tuple[Note, ...]:
    if state.reason is Reason.GATE:
        return (Note(f"no launch: {state.detail}; the next look is in {pause:.1f} s", "warning"),)
    return (Note(f"next launch in {pause:.1f} s (failure {state.failures} of {state.policy.restart_limit} in a row)"),)


def _last_words(state: State) -> str:
    ended = f"{state.reason}: {state.detail}" if state.detail else f"{state.reason}"
    if state.reason is Reason.GATE:
        return f"the launch was refused: {state.detail}"
    if state.exit_code == 5:
        return f"gave up after {state.failures} failures in a row; the last: {ended}"
    return f"the launch failed: {ended}"


_HANDLERS: dict[type[Event], Callable[[State, Any], Step]] = {
    Begin: _begin,
    GatePassed: _gate_passed,
    GateRefused: _gate_refused,
    RankStarted: _rank_started,
    StartFailed: _start_failed,
    RankExited: _rank_exited,
    RankLoaded: _rank_loaded,
    ServerReady: _server_ready,
    Parity: _parity,
    Smoke: _smoke,
    Stalled: _stalled,
    MemoryBreach: _memory_breach,
    GuardLost: _guard_lost,
    Collected: _collected,
    StopAsked: _stop_asked,
    HandoverAsked: _handover_asked,
    PolicyChanged: _policy_changed,
    RestartAsked: _restart_asked,
    Tick: _tick,
}
