"""Which hosts take part, and which ranks run on each: from the settings, before anything is asked. Pure.

The head is first, then the workers in the order of the settings; ranks are shared out evenly in that order, so with a worker for
each further rank, rank N runs on worker N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from build.errors import UsageError
from build.nodes.workers import Workers, each, unsafe

HEAD = "head"


@dataclass(frozen=True, slots=True)
class Host:
    """One host as the settings name it. ``target`` is what ssh is told, "" for the head; ``fabric`` what was said of its address.

    ``store``, ``docker_socket`` and ``hub_cache`` are a worker's own, as seen there; the last is "" where none is named.
    """

    name: str
    ranks: tuple[int, ...]
    target: str = ""
    fabric: str = ""
    store: str = ""
    docker_socket: str = ""
    hub_cache: str = ""


def hosts(workers: Workers, world: int) -> tuple[Host, ...]:
    """The head and its workers. ``UsageError`` where ranks cannot be shared out, or a list is too short."""
    targets = workers.worker.split()
    for target in targets:
        if problem := unsafe(target):
            raise UsageError(f"worker = {target} {problem}")
    shares = _shares(world, len(targets) + 1)
    fabrics = each("fabric_peer", workers.fabric_peer, len(targets), shared=False)
    stores = each("worker_store", workers.worker_store, len(targets))
    sockets = each("worker_docker_socket", workers.worker_docker_socket, len(targets))
    caches = each("worker_hf_cache", workers.worker_hf_cache, len(targets))
    names = ["worker"] if len(targets) == 1 else [f"worker{at}" for at in range(1, len(targets) + 1)]
    rows = zip(names, shares[1:], targets, fabrics, stores, sockets, caches, strict=True)
    return (Host(HEAD, shares[0]), *(Host(*row) for row in rows))


def nodes_of(found: Sequence[Host]) -> tuple[str, ...]:
    """The name of each rank's node, by rank."""
    by_rank = {rank: host.name for host in found for rank in host.ranks}
    return tuple(name for _, name in sorted(by_rank.items()))


def _shares(world: int, count: int) -> list[tuple[int, ...]]:
    if world % count:
        raise UsageError(f"{world} ranks cannot be shared out over {count} hosts: `worker` names {count - 1}, so name fewer")
    share = world // count
    return [tuple(range(at * share, (at + 1) * share)) for at in range(count)]
