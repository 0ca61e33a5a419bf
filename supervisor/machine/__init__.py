"""The gang's state machine: ``step(state, event) -> (state, effects)``, without a clock and without I/O."""

from __future__ import annotations

from supervisor.machine.policy import pause_s, wake_at_s
from supervisor.machine.step import step
from supervisor.machine.table import IGNORED
from supervisor.machine.types import After, Effect, Event, IllegalEvent, Phase, Policy, Reason, State

__all__ = [
    "IGNORED",
    "After",
    "Effect",
    "Event",
    "IllegalEvent",
    "Phase",
    "Policy",
    "Reason",
    "State",
    "pause_s",
    "step",
    "wake_at_s",
]
