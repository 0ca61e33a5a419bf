"""Keeps what a launch took of each node's memory, for the plans of later launches of the same bundle."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from supervisor.gang.launch import Plan
from supervisor.gang.takings import Meter, Takings
from supervisor.gang.watchers import Watcher
from supervisor.memory.measured import Took


def keep(
    plan: Plan, launch_id: str, meter: Meter, said_bytes: Mapping[int, int], wall: Callable[[], float] = time.time
) -> tuple[Took, ...]:
    """What was kept, a node each; nothing before the gang served. ``said_bytes`` are the weights as ranks log them.

    ``OSError`` where the state folder cannot be written to.
    """
    one, takings = plan.blueprint, Takings(plan.blueprint.configuration.state_dir)
    found = []
    for node in meter.nodes:
        figures = meter.took(node)
        if figures is None:
            continue
        loaded, full, most, filled = figures
        said = sum(said_bytes.get(rank, 0) for rank, at in enumerate(one.nodes) if at == node)
        new = Took(launch_id, node, plan.context_tokens, one.needs.shape, loaded, full, most, filled, said, wall())
        if new.usable:
            takings.keep(one.bundle_entry, new)
            found.append(new)
    return tuple(found)


class MeasureWatch(Watcher):
    """Keeps what a serving gang takes, now and then: a supervisor that is lost tells nobody at its end."""

    PERIOD_S = 60.0

    def __init__(self, keep_now: Callable[[], None], launch: int) -> None:
        super().__init__(f"measure-{launch}")
        self._keep_now = keep_now

    def _watch(self) -> None:
        self._keep_now()
        while not self._stopped.wait(self.PERIOD_S):
            self._keep_now()
