"""Every node's sections, read side by side: one script a node, over plain ssh. Nothing is written or started there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from build.nodes.node import Node, SshNode
from build.nodes.ssh_errors import NodeError
from supervisor.doctor.facts import NodeFacts, Trouble, read
from supervisor.doctor.script import Query, Section, command, sections

DEADLINE_S = 15.0


@dataclass(frozen=True, slots=True)
class Raw:
    """What one node printed. ``read_at_s`` is the head's clock, in seconds since the epoch, when it had answered."""

    sections: Mapping[str, Section] = field(default_factory=dict)
    read_at_s: float | None = None
    trouble: Trouble | None = None

    def facts(self, name: str) -> NodeFacts:
        """What it means."""
        return NodeFacts(name, self.trouble) if self.trouble else read(name, self.sections, self.read_at_s)


def collect(asked: Mapping[str, tuple[Node, Query]], clock: Callable[[], float] = time.time) -> dict[str, Raw]:
    """Ask all nodes at once; a node that cannot be asked is a :class:`Trouble` and keeps no other waiting."""
    with ThreadPoolExecutor(max(1, len(asked))) as pool:
        futures = {name: pool.submit(_ask, node, query, clock) for name, (node, query) in asked.items()}
        return {name: future.result() for name, future in futures.items()}


def _ask(node: Node, query: Query, clock: Callable[[], float]) -> Raw:
    try:
        done = node.run(command(query), DEADLINE_S, check=False)
    except NodeError as error:
        target = node.destination.target if isinstance(node, SshNode) else ""
        return Raw(trouble=Trouble(type(error).__name__, str(error), target))
    return Raw(sections(done.text), clock())
