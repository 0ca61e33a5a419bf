"""The gang's state, the events that reach it and the effects it asks for. Data only.

Times are monotonic seconds and come with the events. A launch is known by its number (1, 2, …) in this supervisor; events
of an earlier launch carry an older number and are told apart by it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Phase(enum.Enum):
    """Where the gang is. The value is its word in logs, status and metrics."""

    STOPPED = "stopped"
    GATING = "gating"  # preflight and the memory gate, before a launch
    LAUNCHING = "launching"  # ranks start, load and find each other
    PROBING = "probing"  # every rank loaded and rank 0 answers; the smoke test decides
    SERVING = "serving"
    DRAINING = "draining"  # an orderly stop: rank 0 first, then the followers, then force
    CLEARING = "clearing"  # every rank is killed; logs are saved once all are gone
    PAUSING = "pausing"  # the back-off before the next launch
    GAVE_UP = "gave_up"
    HANDED_OVER = "handed_over"  # the supervisor leaves and the ranks go on, for the next one to take over

    @property
    def whole(self) -> bool:
        """Every rank has loaded, with the same settings, and nothing ends the gang."""
        return self in {Phase.PROBING, Phase.SERVING}


class After(enum.Enum):
    """What follows once every rank is gone."""

    STOP = "stop"
    PAUSE = "pause"
    RELAUNCH = "relaunch"
    FAIL = "fail"  # end with an exit code: trying again would not help


class Reason(enum.StrEnum):
    """Why a launch ended: few words, since they label a metric. A detail says the rest."""

    RANK_EXIT = "rank exit"
    START_FAILED = "start failed"
    NOT_READY = "not ready in time"
    PARITY = "settings differ"
    SMOKE = "smoke test"
    NO_PROGRESS = "no progress"
    MEMORY_HARD = "memory hard floor"
    MEMORY_SLOPE = "memory slope"  # the hard floor was less than a moment away
    MEMORY_SOFT = "memory soft floor"
    PEER_SILENT = "peer silent"  # a worker's guard heard the head's on no path
    SUPERVISOR_SILENT = "supervisor silent"
    GUARD_LOST = "guard lost"
    GATE = "gate"
    ASKED = "asked"
    LADDER = "ladder"  # a quiet time has passed since an eviction: one rung up
    STOP = "stop"

    @property
    def evicts(self) -> bool:
        """Memory ran short: the next launch takes a smaller context."""
        return self in {Reason.MEMORY_HARD, Reason.MEMORY_SLOPE, Reason.MEMORY_SOFT}


@dataclass(frozen=True, slots=True)
class Policy:
    """What the machine decides by. Times in seconds; ``restart_limit`` failures in a row are borne, one more gives up."""

    world_size: int
    wait_timeout_s: float = 1800.0
    stop_timeout_s: float = 30.0
    follower_grace_s: float = 2.0  # rank 0 tells the others to end (contract); after that they are asked
    kill_again_s: float = 2.0
    kill_limit_s: float = 30.0
    restart_limit: int = 10
    pause_first_s: float = 0.5
    pause_max_s: float = 300.0
    stable_s: float = 3600.0
    once: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """The whole state of the gang.

    ``starting`` ranks were ordered and have not reported, ``up`` ranks run, ``loaded`` ranks have logged so. ``failures``
    counts failed launches since the gang was last stable, ``refusals`` gates in a row that let no launch through; ``restarts``
    counts every replacement by reason and never falls. ``stuck``: it was said that a rank resists being ended.
    """

    policy: Policy
    phase: Phase = Phase.STOPPED
    since_s: float = 0.0
    launch: int = 0
    starting: frozenset[int] = frozenset()
    up: frozenset[int] = frozenset()
    loaded: frozenset[int] = frozenset()
    ready_logged: bool = False
    terminated: frozenset[int] = frozenset()  # ranks that were sent SIGTERM
    head_gone_s: float | None = None
    killed_at_s: float = 0.0
    collecting: bool = False
    after: After = After.STOP
    reason: Reason | None = None
    detail: str = ""
    exit_code: int = 0
    failures: int = 0
    refusals: int = 0
    stuck: bool = False
    resume_at_s: float = 0.0
    restarts: tuple[tuple[Reason, int], ...] = ()
    served: bool = False  # some launch of this supervisor has served
    launched: bool = False  # some launch of this supervisor passed its gate

    @property
    def alive(self) -> frozenset[int]:
        """Ranks that run or may be about to."""
        return self.starting | self.up


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a monotonic time."""

    at_s: float


class IllegalEvent(Exception):
    """An event that cannot come in this phase: a fault of the supervisor itself."""


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """Time has passed; nothing else happened."""


@dataclass(frozen=True, slots=True)
class Begin(Event):
    """The supervisor's first event. ``adopt``: a healthy gang of the same spec was found running and is taken over."""

    adopt: bool = False


@dataclass(frozen=True, slots=True)
class StopAsked(Event):
    """End in order; ``force`` kills instead of waiting. A second one forces."""

    force: bool = False


@dataclass(frozen=True, slots=True)
class HandoverAsked(Event):
    """Leave without stopping a rank: another supervisor is to take the gang over."""


@dataclass(frozen=True, slots=True)
class PolicyChanged(Event):
    """Settings that count at once have changed; the number of ranks stays what it is."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class RestartAsked(Event):
    """A new launch is wanted: a person asked, maybe with other settings, or the ladder may go up."""

    reason: Reason = Reason.ASKED


@dataclass(frozen=True, slots=True)
class LaunchEvent(Event):
    """Something about one launch."""

    launch: int


@dataclass(frozen=True, slots=True)
class GatePassed(LaunchEvent):
    """Preflight and the memory gate let the launch through."""


@dataclass(frozen=True, slots=True)
class GateRefused(LaunchEvent):
    """They did not, after all the waiting that is allowed. ``exit_code`` is the supervisor's where this is its first launch."""

    why: str
    exit_code: int = 3


@dataclass(frozen=True, slots=True)
class RankEvent(LaunchEvent):
    """Something about one rank of one launch."""

    rank: int


@dataclass(frozen=True, slots=True)
class RankStarted(RankEvent):
    """The rank runs."""


@dataclass(frozen=True, slots=True)
class StartFailed(RankEvent):
    """The rank could not be started. ``hopeless``: another try would end the same."""

    why: str
    hopeless: bool = False


@dataclass(frozen=True, slots=True)
class RankExited(RankEvent):
    """The rank has ended. ``hopeless``: by a fault that another try would meet again, such as a usage error.

    ``reason`` is another than "rank exit" where its guard ended it.
    """

    how: str
    hopeless: bool = False
    reason: Reason = Reason.RANK_EXIT


@dataclass(frozen=True, slots=True)
class RankLoaded(RankEvent):
    """The rank logged that its weights are loaded."""


@dataclass(frozen=True, slots=True)
class ServerReady(LaunchEvent):
    """Rank 0 logged that it serves."""


@dataclass(frozen=True, slots=True)
class Parity(LaunchEvent):
    """What the ranks logged of their settings was compared; ``differences`` is empty when they agree."""

    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Smoke(LaunchEvent):
    """The smoke test's verdict."""

    passed: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Stalled(LaunchEvent):
    """The progress watch has lost patience."""

    why: str


@dataclass(frozen=True, slots=True)
class MemoryBreach(LaunchEvent):
    """A node is under its floor. ``hard`` means now; else the gang has time for an orderly stop."""

    hard: bool
    why: str
    slope: bool = False  # not under it yet: it will be in a moment


@dataclass(frozen=True, slots=True)
class GuardLost(LaunchEvent):
    """A rank's guard is gone and cannot be replaced: the gang does not run unguarded."""

    why: str


@dataclass(frozen=True, slots=True)
class Collected(LaunchEvent):
    """The launch's logs are saved and its ranks removed; ``problem`` says what went wrong with it, if anything."""

    problem: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """Something to do."""


@dataclass(frozen=True, slots=True)
class Gate(Effect):
    """Check everything that must hold before launch number ``launch``; answer with GatePassed or GateRefused."""

    launch: int


@dataclass(frozen=True, slots=True)
class StartRank(Effect):
    """Start a rank; answer with RankStarted or StartFailed."""

    launch: int
    rank: int


@dataclass(frozen=True, slots=True)
class TerminateRank(Effect):
    """Ask a rank to end."""

    launch: int
    rank: int


@dataclass(frozen=True, slots=True)
class KillRank(Effect):
    """End a rank at once."""

    launch: int
    rank: int


@dataclass(frozen=True, slots=True)
class RunSmoke(Effect):
    """Run the smoke test; answer with Smoke."""

    launch: int


@dataclass(frozen=True, slots=True)
class Announce(Effect):
    """The gang serves: say so."""

    launch: int


@dataclass(frozen=True, slots=True)
class Collect(Effect):
    """Every rank is gone: save the logs with the reason, remove the ranks; answer with Collected."""

    launch: int
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Note(Effect):
    """A line for the supervisor's log."""

    text: str
    level: str = "info"


@dataclass(frozen=True, slots=True)
class Finish(Effect):
    """The supervisor's work is done: leave with this exit code."""

    exit_code: int
    why: str = ""
