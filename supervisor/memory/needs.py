"""What the ranks of one node take of its memory, by the bundle and the settings: for a launch and the doctor alike. Pure."""

from __future__ import annotations

from build.bundle import Bundle
from build.nodes.hosts import Host
from supervisor.memory.figures import published
from supervisor.memory.plan import NodePlan
from supervisor.settings import Memory, Serve


def node_plan(bundle: Bundle, host: Host, memory: Memory, serve: Serve, available_bytes: int = 0) -> NodePlan:
    """The plan of one host; ``available_bytes`` is what it has now."""
    figures = published(bundle.target)
    each = memory.context_bytes_per_token + figures.state_bytes_per_token * serve.parallel
    weights = sum(bundle.rank_cache_bytes[rank] for rank in host.ranks)
    return NodePlan(host.name, available_bytes, weights, each * len(host.ranks), figures.scratch_bytes * len(host.ranks))
