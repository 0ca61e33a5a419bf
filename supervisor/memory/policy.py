"""The memory policy: samples in, verdicts out. Pure; the clock is the caller's, in monotonic seconds.

Built as the kubelet's eviction manager is: a chain of pure functions over samples. On a machine whose GPU shares the host's
memory, running out freezes the machine within tenths of a second (seen: 34 to 12.7 GiB in 1.5 s), so the runtime floor
has three stages: soft with a grace period, hard at once, and the slope when the hard floor is less than a moment away.
A sample that is too old never acts.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

# Two neighbouring samples of the slope are at least this far apart: nearer ones measure noise.
SLOPE_STEP_S = 0.09
# The slope's three samples lie within this: older ones say nothing about now.
SLOPE_SPAN_S = 0.6


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of a node's memory. ``at_s`` is when it was read."""

    at_s: float
    available_bytes: int
    free_bytes: int


class Stage(enum.Enum):
    """What a sample calls for. STALE and OK ask for nothing, GRACE waits, the others end the gang."""

    OK = "ok"
    STALE = "stale"
    GRACE = "grace"
    SOFT = "soft"
    HARD = "hard"
    SLOPE = "slope"

    @property
    def stops(self) -> bool:
        """The gang is to be stopped in order."""
        return self is Stage.SOFT

    @property
    def kills(self) -> bool:
        """The ranks are to be killed at once: there is no time for an order."""
        return self in {Stage.HARD, Stage.SLOPE}


@dataclass(frozen=True, slots=True)
class Floor:
    """The runtime floor of one node.

    ``clear_s`` is the hysteresis: a breach is forgotten only once the floor has held for so long, so that memory which swings
    around the floor does not start its grace anew with every swing.
    """

    floor_bytes: int
    hard_floor_bytes: int
    grace_s: float
    horizon_s: float
    stale_s: float
    clear_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FloorWatch:
    """What the floor policy remembers between samples: the newest few, since when the floor is breached, and held again."""

    recent: tuple[Sample, ...] = ()
    under_since_s: float | None = None
    over_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class FloorVerdict:
    """A verdict with its evidence. ``falling_bytes_per_s`` is the sustained fall, 0 where memory does not fall."""

    stage: Stage
    falling_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Gate:
    """What a node must have before a launch. ``on_free`` counts MemFree: page cache is available to Linux, not to CUDA."""

    need_bytes: int
    stable_s: float
    wait_s: float
    stale_s: float
    on_free: bool = False


@dataclass(frozen=True, slots=True)
class GateWatch:
    """When waiting began, and since when the gate has held without a break."""

    began_s: float
    held_since_s: float | None = None
    last_at_s: float | None = None


class GateState(enum.Enum):
    """Open lets the launch go on; refused ends it."""

    OPEN = "open"
    WAITING = "waiting"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The gate's state, and how many bytes are short now (0 where enough are there; None where no fresh sample is)."""

    state: GateState
    short_bytes: int | None


def gate_need_bytes(planned_need_bytes: int, floor_bytes: int, user_gate_bytes: int = 0) -> int:
    """What must be there before a launch: the plan's need and the floor beside it, or more where the user asks for more."""
    return max(planned_need_bytes + floor_bytes, user_gate_bytes)


def watch_floor(floor: Floor, watch: FloorWatch, sample: Sample, now_s: float) -> tuple[FloorWatch, FloorVerdict]:
    """Take one sample in and say what it calls for."""
    if now_s - sample.at_s > floor.stale_s:
        return watch, FloorVerdict(Stage.STALE, 0.0)
    recent = _kept(watch.recent, sample)
    under_since_s, over_since_s = _breach(floor, watch, sample)
    falling = sustained_fall(recent)
    above_hard = sample.available_bytes - floor.hard_floor_bytes
    to_hard_s = max(above_hard, 0) / falling if falling > 0 else None
    under = sample.available_bytes < floor.floor_bytes
    stage = _stage(floor, under_since_s if under else None, above_hard, to_hard_s, now_s)
    return FloorWatch(recent, under_since_s, over_since_s), FloorVerdict(stage, falling)


def sustained_fall(recent: tuple[Sample, ...]) -> float:
    """How fast available memory falls, in bytes a second: the slower of the two newest steps, so that one allocation is no slope.

    0 where it does not fall, or where too few samples are near enough.
    """
    steps = _steps(recent)
    if len(steps) < 3 or steps[0].at_s - steps[2].at_s > SLOPE_SPAN_S:
        return 0.0
    newest, middle, oldest = steps
    return max(0.0, min(_fall(middle, newest), _fall(oldest, middle)))


def watch_gate(gate: Gate, watch: GateWatch, sample: Sample | None, now_s: float) -> tuple[GateWatch, GateVerdict]:
    """Take one sample in and say whether the launch may go on. None, or a stale sample, opens nothing and breaks the row."""
    if sample is None or now_s - sample.at_s > gate.stale_s:
        return replace(watch, held_since_s=None), _waiting(gate, watch, None, now_s)
    there = min(sample.free_bytes, sample.available_bytes) if gate.on_free else sample.available_bytes
    short = max(0, gate.need_bytes - there)
    if short:
        return GateWatch(watch.began_s, None, sample.at_s), _waiting(gate, watch, short, now_s)
    gap = watch.last_at_s is not None and sample.at_s - watch.last_at_s > gate.stale_s
    held_since_s = sample.at_s if watch.held_since_s is None or gap else watch.held_since_s
    after = GateWatch(watch.began_s, held_since_s, sample.at_s)
    if sample.at_s - held_since_s >= gate.stable_s:
        return after, GateVerdict(GateState.OPEN, 0)
    # while it holds, what is left of the stable time is no reason to refuse; samples that never make a row are
    over = now_s - watch.began_s >= gate.wait_s + 2 * gate.stable_s + gate.stale_s
    return after, GateVerdict(GateState.REFUSED if over else GateState.WAITING, 0)


def _waiting(gate: Gate, watch: GateWatch, short_bytes: int | None, now_s: float) -> GateVerdict:
    over = now_s - watch.began_s >= gate.wait_s
    return GateVerdict(GateState.REFUSED if over else GateState.WAITING, short_bytes)


def _stage(floor: Floor, under_since_s: float | None, above_hard: int, to_hard_s: float | None, now_s: float) -> Stage:
    if above_hard < 0:
        return Stage.HARD
    if to_hard_s is not None and to_hard_s < floor.horizon_s:
        return Stage.SLOPE
    if under_since_s is None:
        return Stage.OK
    left_s = floor.grace_s - (now_s - under_since_s)
    about_to_be = to_hard_s is not None and to_hard_s < left_s  # the grace would end below the hard floor
    return Stage.SOFT if left_s <= 0 or about_to_be else Stage.GRACE


def _breach(floor: Floor, watch: FloorWatch, sample: Sample) -> tuple[float | None, float | None]:
    """Since when the floor is breached, and since when it has held again within that breach."""
    if sample.available_bytes < floor.floor_bytes:
        return (sample.at_s if watch.under_since_s is None else watch.under_since_s), None
    if watch.under_since_s is None:
        return None, None
    over_since_s = sample.at_s if watch.over_since_s is None else watch.over_since_s
    if sample.at_s - over_since_s >= floor.clear_s:
        return None, None
    return watch.under_since_s, over_since_s


def _kept(recent: tuple[Sample, ...], sample: Sample) -> tuple[Sample, ...]:
    """Recent samples with the new one last; one that is not newer than the last adds nothing."""
    if recent and sample.at_s <= recent[-1].at_s:
        return recent
    return (*(s for s in recent if sample.at_s - s.at_s <= SLOPE_SPAN_S), sample)


def _steps(recent: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """The newest sample and up to two before it, each a step apart; newest first."""
    steps: list[Sample] = []
    for sample in reversed(recent):
        if not steps or steps[-1].at_s - sample.at_s >= SLOPE_STEP_S:
            steps.append(sample)
    return tuple(steps[:3])


def _fall(before: Sample, after: Sample) -> float:
    return (before.available_bytes - after.available_bytes) / (after.at_s - before.at_s)
