"""The loop: one queue of events, one machine, and whoever carries out its effects.

Watchers and workers only post events; the loop alone steps the machine. Slow effects are carried out elsewhere and answer
with events of their own, so nothing here waits but for the queue.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Protocol

from supervisor.machine import Effect, Event, IllegalEvent, State, step, wake_at_s
from supervisor.machine.types import Finish, Note, Tick

# Time alone is looked at this often even with no deadline: a suspended machine's clock may have jumped.
LONGEST_SLEEP_S = 5.0


class Actions(Protocol):
    """Carries effects out; returns at once and never raises."""

    def carry_out(self, effect: Effect) -> None:
        """Begin the effect."""

    def changed(self, before: State, after: State) -> None:
        """The machine has stepped."""


class Loop:
    """Steps the machine until it finishes. :meth:`post` may be called from any thread and from signal handlers."""

    def __init__(
        self,
        state: State,
        actions: Actions,
        clock: Callable[[], float] = time.monotonic,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._state = state
        self._actions = actions
        self._clock = clock
        self._beat = beat  # called at each turn: who hears it no more knows that this loop hangs
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()  # its put is reentrant: a signal handler may use it

    def post(self, event: Event) -> None:
        """Queue an event."""
        self._queue.put(event)

    def run(self) -> Finish:
        """Take events until the machine says that it is over."""
        while True:
            event = self._next()
            self._beat()
            finish = self._step(event)
            if finish is not None:
                return finish

    def _next(self) -> Event:
        wake = wake_at_s(self._state)
        sleep = LONGEST_SLEEP_S if wake is None else min(LONGEST_SLEEP_S, max(0.0, wake - self._clock()))
        try:
            return self._queue.get(timeout=sleep) if sleep > 0 else self._queue.get_nowait()
        except queue.Empty:
            return Tick(self._clock())

    def _step(self, event: Event) -> Finish | None:
        before = self._state
        try:
            self._state, effects = step(before, event)
        except IllegalEvent as fault:  # a fault of ours must not take a serving gang down
            self._actions.carry_out(Note(f"ignored, and should not have come: {fault}", "error"))
            return None
        if self._state is not before:
            self._actions.changed(before, self._state)
        finish = None
        for effect in effects:
            if isinstance(effect, Finish):
                finish = effect
            else:
                self._actions.carry_out(effect)
        return finish
