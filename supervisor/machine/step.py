"""One step of the gang: ``step(state, event)`` gives the next state and the effects to carry out. Pure.

What each event does in each phase stands in :mod:`supervisor.machine.table`.
"""

from __future__ import annotations

from supervisor.machine import asking
from supervisor.machine.moves import Step
from supervisor.machine.table import IGNORED, TABLE
from supervisor.machine.types import Event, IllegalEvent, LaunchEvent, PolicyChanged, State


def step(state: State, event: Event) -> Step:
    """The next state and what to do. Events of an earlier launch change nothing; one that cannot come is an ``IllegalEvent``."""
    if isinstance(event, LaunchEvent) and event.launch != state.launch:
        return state, ()
    if isinstance(event, PolicyChanged):
        return asking.policy_changed(state, event)
    if handler := TABLE[state.phase].get(type(event)):
        return handler(state, event)
    if (state.phase, type(event)) in IGNORED:
        return state, ()
    raise IllegalEvent(f"{type(event).__name__} while {state.phase.value}: {event}")
