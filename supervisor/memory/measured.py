"""What launches of a bundle really took of a node's memory, and the plan that takes these figures over. Pure.

All figures are what was available before a launch less what was available in it, so what other programs took or gave back
meanwhile is in them: of several launches the middle one counts. A gang whose contexts were never full proves nothing of full
ones: the share that was not filled is planned by the figures that were measured before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any

from supervisor.memory.plan import NodePlan

LAUNCHES = 5  # of one node, context and shape, the newest
CONTEXTS = 32  # of one bundle, the newest


@dataclass(frozen=True, slots=True)
class Took:
    """One launch on one node, in bytes.

    ``loaded_bytes``: when it began to serve. ``full_bytes``: while its contexts were as full as they came to be, of which
    ``filled`` (0 to 1) is the share. ``most_bytes``: at the lowest sample, which a short need of another program can make too.
    ``said_bytes``: the weights as the ranks there log them, 0 where none does. ``shape``: what else the need depends on.
    ``settled``: the supervisor that measured it has ended. Until then its own launches go on by what it began with: a gang that
    was launched once comes back under the same gate, whatever others took meanwhile.
    """

    launch_id: str
    node: str
    context_tokens: int
    shape: str
    loaded_bytes: int
    full_bytes: int
    most_bytes: int
    filled: float
    said_bytes: int
    at_unix_s: float
    settled: bool = False

    @property
    def key(self) -> tuple[str, int, str]:
        """What is measured together."""
        return self.node, self.context_tokens, self.shape

    @property
    def usable(self) -> bool:
        """Whether it can be true: a gang that took nothing was hidden by somebody who gave more back."""
        return self.loaded_bytes > 0 and self.full_bytes > 0 and 0.0 <= self.filled <= 1.0 and self.context_tokens > 0


def kept(known: Iterable[Took], new: Took) -> tuple[Took, ...]:
    """With one more, in place of an earlier one of the same launch: bounded, oldest first."""
    held = [one for one in known if (one.launch_id, one.node) != (new.launch_id, new.node)]
    ordered = sorted([*held, new], key=lambda one: one.at_unix_s)
    groups: dict[tuple[str, int, str], list[Took]] = {}
    for one in ordered:
        groups.setdefault(one.key, []).append(one)
    newest = sorted(groups.values(), key=lambda group: group[-1].at_unix_s)[-CONTEXTS:]
    return tuple(sorted((one for group in newest for one in group[-LAUNCHES:]), key=lambda one: one.at_unix_s))


def settled(known: Iterable[Took]) -> tuple[Took, ...]:
    """What a launch may be planned by."""
    return tuple(one for one in known if one.settled)


def taken_over(plan: NodePlan, known: Iterable[Took], context_tokens: int, shape: str) -> NodePlan:
    """The plan by what was measured at exactly this context; as it was where nothing was."""
    found = [one for one in known if one.key == (plan.node, context_tokens, shape) and one.usable]
    if not found:
        return plan
    fullest = max(one.filled for one in found)
    near = [one for one in found if one.filled >= 0.9 * fullest]
    loaded = median_low(one.loaded_bytes for one in near)
    grown = max(0, median_low(one.full_bytes for one in near) - loaded)
    unseen = (1.0 - fullest) * context_tokens * plan.bytes_per_token
    return replace(
        plan,
        weights_bytes=loaded,
        other_bytes=0,
        bytes_per_token=math.ceil((grown + unseen) / context_tokens),
        origin=f"measured here in {_launches(len(near))} at this context, which came to be {fullest:.0%} full",
        most_bytes=max(one.most_bytes for one in near),
        measured=True,
    )


def contexts(known: Iterable[Took], shape: str) -> tuple[int, ...]:
    """At which contexts something was measured, the largest first."""
    return tuple(sorted({one.context_tokens for one in known if one.shape == shape and one.usable}, reverse=True))


def from_json(raw: Any) -> tuple[Took, ...]:
    """Out of a file; what is no figure of ours counts as not there."""
    found = []
    for one in raw if isinstance(raw, list) else ():
        try:
            found.append(_took(one))
        except (TypeError, ValueError, KeyError):
            continue
    return tuple(found)


def _took(raw: Mapping[str, Any]) -> Took:
    return Took(
        launch_id=str(raw["launch_id"]),
        node=str(raw["node"]),
        context_tokens=int(raw["context_tokens"]),
        shape=str(raw["shape"]),
        loaded_bytes=int(raw["loaded_bytes"]),
        full_bytes=int(raw["full_bytes"]),
        most_bytes=int(raw["most_bytes"]),
        filled=float(raw["filled"]),
        said_bytes=int(raw["said_bytes"]),
        at_unix_s=float(raw["at_unix_s"]),
        settled=raw["settled"] is True,
    )


def _launches(count: int) -> str:
    return "1 launch" if count == 1 else f"{count} launches"
