"""Which artefacts are made on another node, and what makes them there: rank caches, where the settings want each on its node."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from build.artefacts import rank_cache
from build.graph.graph import Artefact
from build.nodes.workers import Workers
from build.settings import Places
from build.store.outside import on_node

if TYPE_CHECKING:  # a build that makes nothing elsewhere does not pay for it
    from build.nodes.hosts import Host
    from build.replication.packing import FarPacker

MADE_THERE = frozenset({rank_cache.BUILDER, rank_cache.CHECK_BUILDER})


class Packers:
    """One packer for each worker that has been asked for; ``make`` makes them. Safe to use from threads."""

    def __init__(self, places: Places, workers: Workers, make: Callable[[Host], FarPacker]) -> None:
        self._wanted, self._workers, self._make = places.pack_rank_caches == "node", workers, make
        self._guard = threading.Lock()
        self._made: dict[str, FarPacker] = {}

    def host(self, artefact: Artefact) -> Host | None:
        """The worker that an artefact is made on; None for this host."""
        if not self._wanted or artefact.builder not in MADE_THERE:
            return None
        from build.nodes.hosts import HEAD, hosts

        rank = int(artefact.params["rank"])
        serving = (h for h in hosts(self._workers, int(artefact.params["world"])) if rank in h.ranks)
        return next((h for h in serving if h.name != HEAD), None)

    def packer(self, artefact: Artefact) -> FarPacker | None:
        """What packs and checks there; None for this host."""
        host = self.host(artefact)
        if host is None:
            return None
        with self._guard:
            if host.name not in self._made:
                self._made[host.name] = self._make(host)
            return self._made[host.name]

    def outside(self, artefact: Artefact) -> str:
        """What the record of a rank cache says of where its files are; "" where they are here."""
        host = self.host(artefact) if artefact.builder == rank_cache.BUILDER else None
        return on_node(host.target, host.store) if host else ""

    def note(self, artefact: Artefact) -> str:
        """Said where nodes are to pack for themselves, and there is but this one; else ""."""
        if artefact.builder != rank_cache.BUILDER or not self._wanted or self._workers.worker.split():
            return ""
        return f'note: pack_rank_caches = "node", and `worker` names no host: {artefact.name} is packed here'

    def close(self) -> None:
        """Let connections go."""
        for packer in self._made.values():
            packer.close()
