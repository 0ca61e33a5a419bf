"""What memory does to a gang's context: one rung down with each eviction, and a word once memory is back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from supervisor.gang.board import Board
from supervisor.gang.launch import Blueprint, Plan
from supervisor.gang.rungs import Rungs
from supervisor.machine import Reason

STAGES = {Reason.MEMORY_HARD: "hard", Reason.MEMORY_SLOPE: "slope"}


class Evictions:
    """Those of one supervisor. Without ``rungs`` nothing is bounded. ``short_of_memory``: whose guard acted, or ""."""

    def __init__(
        self,
        rungs: Rungs | None,
        board: Board,
        say: Callable[..., None],
        short_of_memory: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rungs, self._board, self._say, self._clock = rungs, board, say, clock
        self._short_of_memory = short_of_memory
        self._evicted_s: float | None = None

    def bounded(self, one: Blueprint) -> Blueprint:
        """With the context that is left."""
        return replace(one, ladder=self._rungs.ladder) if self._rungs else one

    def step_down(self, plan: Plan, reason: Reason) -> None:
        """A launch has ended: where memory ran short, the next one takes a smaller context, and this says so."""
        if self._rungs is None or not reason.evicts:
            return
        self._evicted_s = self._clock()
        node = self._short_of_memory() or plan.blueprint.nodes[0]
        self._board.add_eviction(self._board.state.launch, node, STAGES.get(reason, "soft"))
        least = plan.blueprint.configuration.memory.context_least
        ladder = self._rungs.evicted(plan.context_tokens, least)
        self._say(
            f"evicted ({reason.value}) at context {plan.context_tokens}: the next launch takes at most {ladder.cap_tokens};"
            " `supervisor restart` goes back to the top",
            "warning",
        )

    def tell_memory_is_back(self) -> None:
        """The first gate since has passed."""
        if self._evicted_s is not None:
            self._say(f"memory was back {self._clock() - self._evicted_s:.1f} s after the eviction")
            self._evicted_s = None
