"""Who hears whom: the guard of a rank on a worker hears the guard of rank 0, over every path between the two hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from build.nodes.hosts import HEAD, Host
from supervisor.guard.spec import Lease

MOST_PATHS = 8  # that the node tool takes


def lease(rank: int, node: str, hosts: Iterable[Host], paths: Callable[[Host], tuple[str, ...]], port: int) -> Lease:
    """A rank's part. Rank N hears at ``port`` + N on each of its host's addresses; rank 0 tells them all."""
    if rank and node == HEAD:
        return Lease()
    workers = [host for host in hosts if host.name != HEAD]
    if rank:
        return Lease(listens=tuple(_at(address, port, rank) for host in workers if host.name == node for address in paths(host)))
    reached = [(at, address, other) for host in workers for at, address in enumerate(paths(host)) for other in host.ranks]
    told = [(_at(address, port, other), "") for _, address, other in sorted(reached, key=lambda one: one[0])]
    return Lease(sends=tuple(told[:MOST_PATHS]))


def _at(address: str, port: int, rank: int) -> str:
    return f"{address}:{port + rank}"
