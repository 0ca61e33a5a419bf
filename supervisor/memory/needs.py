"""What a bundle's ranks need on each node under the settings: by published figures, or by what was measured here. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from build.bundle import Bundle
from supervisor.configuration import Configuration
from supervisor.memory.figures import PUBLISHED, published
from supervisor.memory.measured import Took, contexts, taken_over
from supervisor.memory.plan import NodePlan

RESERVE = "TENSORFOLD_MEMORY_RESERVE_GIB"


def reserve_differs(one: Configuration) -> str:
    """What to know where the user gives the engine another reserve than the floor; "" where the two agree."""
    asked = dict(one.engine_env).get(RESERVE)
    floor = f"{one.memory.min_avail_gib:g}"
    if asked is None or _same(asked, floor):
        return ""
    return (
        f"{RESERVE} = {asked} is not the floor of {floor} GiB: the engine refuses to start by its own reserve,"
        " the plan and the guards go by the floor; leave it out, or set min_avail_gib to the same"
    )


def _same(asked: str, floor: str) -> bool:
    try:
        return float(asked) == float(floor)
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Needs:
    """``known``: what was measured of this bundle on this machine."""

    configuration: Configuration
    bundle: Bundle
    known: tuple[Took, ...] = ()

    @property
    def shape(self) -> str:
        """What memory depends on beside bundle and context: figures measured under another shape say nothing here."""
        serve = self.configuration.serve
        env = json.dumps(sorted(self.configuration.engine_env))
        return f"{serve.parallel} streams, drafts {serve.drafts}, {hashlib.sha256(env.encode()).hexdigest()[:8]}"

    @property
    def measured_at(self) -> tuple[int, ...]:
        """Contexts at which something was measured."""
        return contexts(self.known, self.shape)

    def plan(self, node: str, ranks: Sequence[int], available_bytes: int, context_tokens: int | None) -> NodePlan:
        """A node's plan: by what was measured at the context, else (and for None) by the figures."""
        figures, memory = published(self.bundle.target), self.configuration.memory
        each = memory.context_bytes_per_token + figures.state_bytes_per_token * self.configuration.serve.parallel
        plan = NodePlan(
            node,
            available_bytes,
            sum(self.bundle.rank_cache_bytes[rank] for rank in ranks),
            each * len(ranks),
            figures.scratch_bytes * len(ranks),
            origin=f"published of {self.bundle.target}" if self.bundle.target in PUBLISHED else "the settings",
        )
        return plan if context_tokens is None else taken_over(plan, self.known, context_tokens, self.shape)
