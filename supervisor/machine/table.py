"""The whole machine at a glance: what each event does in each phase.

:data:`TABLE` names the handler of every event that a phase acts on, :data:`IGNORED` the reason for every other that may
come. What stands in neither cannot come in that phase. Other settings (PolicyChanged) count in every phase, and stand in no row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from supervisor.machine import asking, ending, failing, starting
from supervisor.machine.moves import Step
from supervisor.machine.types import (
    Begin,
    Collected,
    Event,
    GatePassed,
    GateRefused,
    GuardLost,
    HandoverAsked,
    MemoryBreach,
    Parity,
    Phase,
    RankExited,
    RankLoaded,
    RankStarted,
    RestartAsked,
    ServerReady,
    Smoke,
    Stalled,
    StartFailed,
    State,
    StopAsked,
    Tick,
)

Handler = Callable[[State, Any], Step]

TABLE: dict[Phase, dict[type[Event], Handler]] = {
    Phase.STOPPED: {
        Begin: starting.begin,
    },
    Phase.GATING: {
        GatePassed: starting.start_followers,
        GateRefused: starting.gate_refused,
        StopAsked: asking.stop_idle,
        RestartAsked: asking.gate_again,
    },
    Phase.LAUNCHING: {
        RankStarted: starting.rank_started,
        StartFailed: starting.start_failed,
        RankLoaded: starting.rank_loaded,
        ServerReady: starting.server_ready,
        Parity: starting.probe_if_equal,
        Tick: starting.not_ready,
        RankExited: failing.rank_exited,
        MemoryBreach: failing.memory_kill,
        GuardLost: failing.guard_lost,
        StopAsked: asking.stop_now,
        RestartAsked: asking.restart_now,
    },
    Phase.PROBING: {
        Smoke: starting.serve_if_sound,
        Parity: starting.settings_differ,
        Stalled: failing.stalled,
        Tick: starting.not_ready,
        RankExited: failing.rank_exited,
        MemoryBreach: failing.memory_kill,
        GuardLost: failing.guard_lost,
        StopAsked: asking.stop_now,
        RestartAsked: asking.restart_now,
        HandoverAsked: asking.hand_over,
    },
    Phase.SERVING: {
        Parity: starting.settings_differ,
        Stalled: failing.stalled,
        RankExited: failing.rank_exited,
        MemoryBreach: failing.memory_breach,
        GuardLost: failing.guard_lost_serving,
        Tick: failing.forget_failures,
        StopAsked: asking.stop_serving,
        RestartAsked: asking.restart_serving,
        HandoverAsked: asking.hand_over,
    },
    Phase.DRAINING: {
        RankExited: ending.rank_drained,
        MemoryBreach: ending.cut_short,
        Tick: ending.force_if_late,
        StopAsked: asking.stop_draining,
        RestartAsked: asking.restart_ending,
    },
    Phase.CLEARING: {
        RankStarted: ending.kill_late_start,
        StartFailed: ending.late_start_failed,
        RankExited: ending.rank_cleared,
        Collected: ending.logs_saved,
        Tick: ending.kill_again,
        StopAsked: asking.stop_clearing,
        RestartAsked: asking.restart_ending,
    },
    Phase.PAUSING: {
        Tick: ending.pause_over,
        StopAsked: asking.stop_idle,
        RestartAsked: asking.gate_again,
    },
    Phase.GAVE_UP: {},
    Phase.HANDED_OVER: {},
}

_SEEN = (RankLoaded, ServerReady, Parity, Smoke, Stalled, MemoryBreach, GuardLost, RankExited)  # what watchers see of a launch
_ENDS = (Phase.STOPPED, Phase.GAVE_UP)
_BETWEEN = (Phase.GATING, Phase.PAUSING)

UNUSED: tuple[tuple[str, tuple[Phase, ...], tuple[type[Event], ...]], ...] = (
    ("no deadline runs", (*_ENDS, Phase.GATING, Phase.HANDED_OVER), (Tick,)),
    ("nothing runs", (*_ENDS, *_BETWEEN), (*_SEEN, Collected)),
    ("it has stopped already", _ENDS, (StopAsked,)),
    ("the supervisor is leaving", _ENDS, (RestartAsked, GatePassed, GateRefused, RankStarted, StartFailed)),
    (
        "no gang serves that could be handed over",
        (*_ENDS, *_BETWEEN, Phase.LAUNCHING, Phase.DRAINING, Phase.CLEARING),
        (HandoverAsked,),
    ),
    ("no rank is asked for anything yet: other limits hold", (Phase.LAUNCHING,), (Stalled,)),
    (
        "the log of a gang that was taken over is read again from its start",
        (Phase.PROBING, Phase.SERVING),
        (RankLoaded, ServerReady),
    ),
    (
        "the launch is ending already",
        (Phase.DRAINING, Phase.CLEARING),
        (RankLoaded, ServerReady, Parity, Smoke, Stalled, GuardLost),
    ),
    ("every rank is being killed already", (Phase.CLEARING,), (MemoryBreach,)),
    ("the supervisor has left", (Phase.HANDED_OVER,), (*_SEEN, StopAsked, RestartAsked, HandoverAsked)),
)

IGNORED: dict[tuple[Phase, type[Event]], str] = {
    (phase, kind): why for why, phases, kinds in UNUSED for phase in phases for kind in kinds
}
