"""A kind of fault as data: how it is made and undone, and what must come of it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from bench.soak.rig import LaunchSeen, Rig
from supervisor.machine import Reason

Act = Callable[[Rig, LaunchSeen], None]


def nothing(_rig: Rig, _hit: LaunchSeen) -> None:
    """It heals by itself, or its making was all there is to it."""


def no_complaint(_rig: Rig, _hit: LaunchSeen) -> str:
    """Nothing more to look at."""
    return ""


class Heal(enum.Enum):
    """When a fault is undone, beside the time that it lasts at least."""

    HELD = "after its time"
    SAFE = "once no rank of the launch is left"
    SERVING = "once a new launch serves"


class Expect(enum.Enum):
    """What becomes of the launch that is hit. The value is its word in the table."""

    SERVES_ON = "serves on"
    COMES_BACK = "ends whole, and a new launch serves"
    EITHER = "serves on, or ends whole and comes back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``inject`` may take its time; ``heal`` follows ``hold_s`` (least, most) after its beginning, and not before ``heal_at``.

    ``reasons`` are those that the launch may be saved under, none for any; ``check`` gives a complaint or "".
    """

    name: str
    inject: Act
    expect: Expect
    heal: Act = nothing
    reasons: frozenset[Reason] = frozenset()
    hold_s: tuple[float, float] = (0.0, 0.0)
    heal_at: Heal = Heal.HELD
    evidence: bool = False  # some rank's guard must have left its words
    logs: bool = True  # every rank's log must be there
    check: Callable[[Rig, LaunchSeen], str] = no_complaint
    safe_limit_s: float = 60.0
    back_limit_s: float = 120.0
    quick: bool = True  # cheap enough for the test suite


def ends(*reasons: Reason) -> frozenset[Reason]:
    """The reasons that a launch may end for."""
    return frozenset(reasons)
