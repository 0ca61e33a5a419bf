"""The memory plan: what a rank needs, and the largest context that leaves the floor alone. Pure.

The pool holds the context's positions for all streams together, so its size does not depend on how many streams share it.
"""

from __future__ import annotations

from dataclasses import dataclass

from build.errors import Refused
from build.units import gib

CONTEXT_STEP = 1024  # contexts that the plan chooses are multiples of this


@dataclass(frozen=True, slots=True)
class NodePlan:
    """Memory of one node: its ranks' weights and what one token of context takes over all of them."""

    node: str
    available_bytes: int
    weights_bytes: int
    bytes_per_token: int
    other_bytes: int = 0  # kept prompt state and what else is asked for

    def need_bytes(self, context_tokens: int) -> int:
        """What the node's ranks take at a context, the floor not counted."""
        return self.weights_bytes + self.other_bytes + context_tokens * self.bytes_per_token

    def largest_context(self, floor_bytes: int, window_tokens: int) -> int:
        """The largest context that leaves the floor, at most the model's window; 0 where not even the weights fit."""
        room = self.available_bytes - floor_bytes - self.weights_bytes - self.other_bytes
        if room < 0:
            return 0
        if self.bytes_per_token == 0 or room >= window_tokens * self.bytes_per_token:
            return window_tokens
        return room // self.bytes_per_token // CONTEXT_STEP * CONTEXT_STEP


def choose_context(asked: int | str, plans: tuple[NodePlan, ...], floor_bytes: int, window_tokens: int) -> int:
    """The context to serve: what was asked for, or for "auto" the largest that fits every node.

    ``Refused`` where it does not fit, with the largest that does. A window smaller than what was asked for is no room.
    """
    tightest = min(plans, key=lambda plan: plan.largest_context(floor_bytes, window_tokens))
    largest = tightest.largest_context(floor_bytes, window_tokens)
    if largest <= 0:
        need = tightest.need_bytes(CONTEXT_STEP) + floor_bytes
        raise Refused(
            f"{tightest.node} has {gib(tightest.available_bytes)} available, and the weights with the floor need {gib(need)}:"
            " stop other programs there, or lower min_avail_gib"
        )
    if isinstance(asked, str):
        return largest
    if asked > window_tokens:
        raise Refused(f"context = {asked}: the model's window is {window_tokens} tokens")
    if asked > largest:
        raise Refused(
            f"context = {asked} needs {gib(tightest.need_bytes(asked) + floor_bytes)} with the floor on {tightest.node},"
            f" which has {gib(tightest.available_bytes)} available: the largest that fits is {largest}"
        )
    return asked
