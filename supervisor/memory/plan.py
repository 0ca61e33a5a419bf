"""The memory plan: what a rank needs, and the largest context that leaves the floor alone. Pure.

The pool holds the context's positions for all streams together, so its size does not depend on how many streams share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from build.errors import Refused
from build.units import gib

CONTEXT_STEP = 1024  # contexts that the plan chooses are multiples of this


@dataclass(frozen=True, slots=True)
class NodePlan:
    """Memory of one node: its ranks' weights and what one token of context takes over all of them.

    ``origin`` says for a person where the figures come from. ``measured`` ones hold scratch too in ``weights_bytes``: all
    that was taken when the gang began to serve. ``most_bytes`` is the most that was seen taken then, 0 where nothing was.
    """

    node: str
    available_bytes: int
    weights_bytes: int
    bytes_per_token: int
    other_bytes: int = 0  # kept prompt state and what else is asked for
    origin: str = "the settings"
    most_bytes: int = 0
    measured: bool = False

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


# Every node's plan by the figures for a context: those measured at it, where it was measured. None: by the settings' figures.
PlansAt = Callable[[int | None], tuple[NodePlan, ...]]


def choose_context(
    asked: int | str, plans_at: PlansAt, floor_bytes: int, window_tokens: int, measured_at: Iterable[int] = ()
) -> int:
    """The context to serve: what was asked for, or for "auto" the largest that fits every node.

    ``Refused`` where it does not fit, with the largest that does. A window smaller than what was asked for is no room.
    ``measured_at``: contexts for which ``plans_at`` has measured figures.
    """
    if isinstance(asked, str):
        return _largest(plans_at, floor_bytes, window_tokens, measured_at)
    plans = plans_at(asked)
    tightest, largest = _tightest(plans, floor_bytes, window_tokens)
    if largest <= 0:
        raise _nothing_fits(tightest, floor_bytes)
    if asked > window_tokens:
        raise Refused(f"context = {asked}: the model's window is {window_tokens} tokens")
    if asked > largest:
        raise Refused(
            f"context = {asked} needs {gib(tightest.need_bytes(asked) + floor_bytes)} with the floor on {tightest.node},"
            f" which has {gib(tightest.available_bytes)} available: the largest that fits is {largest}"
        )
    return asked


def fits(plans: Iterable[NodePlan], context_tokens: int, floor_bytes: int) -> bool:
    """Whether a context and the floor fit on every node."""
    return all(plan.need_bytes(context_tokens) + floor_bytes <= plan.available_bytes for plan in plans)


def _largest(plans_at: PlansAt, floor_bytes: int, window_tokens: int, measured_at: Iterable[int]) -> int:
    """By the settings' figures, then by what was measured at that context; or a larger one that was measured and fits."""
    tightest, found = _tightest(plans_at(None), floor_bytes, window_tokens)
    while found > 0:
        tightest, lower = _tightest(plans_at(found), floor_bytes, found)
        if lower == found:
            break
        found = lower
    seen = (one for one in measured_at if found < one <= window_tokens and fits(plans_at(one), one, floor_bytes))
    found = max(seen, default=found)
    if found <= 0:
        raise _nothing_fits(tightest, floor_bytes)
    return found


def _tightest(plans: tuple[NodePlan, ...], floor_bytes: int, window_tokens: int) -> tuple[NodePlan, int]:
    tightest = min(plans, key=lambda plan: plan.largest_context(floor_bytes, window_tokens))
    return tightest, tightest.largest_context(floor_bytes, window_tokens)


def _nothing_fits(tightest: NodePlan, floor_bytes: int) -> Refused:
    need = tightest.need_bytes(CONTEXT_STEP) + floor_bytes
    return Refused(
        f"{tightest.node} has {gib(tightest.available_bytes)} available, and the weights with the floor need {gib(need)}:"
        " stop other programs there, or lower min_avail_gib"
    )
