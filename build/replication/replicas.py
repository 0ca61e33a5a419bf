"""The workers' stores as the head keeps them: filled for a bundle, verified, mended, and rid of what nothing needs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from build.bundle import Bundle, NodeTool, needed
from build.errors import Refused
from build.machine import platform_of
from build.nodes.hosts import HEAD, Host, hosts
from build.nodes.node import SshNode
from build.nodes.ssh_link import Destination
from build.nodes.workers import Workers
from build.replication import far_lock, replicate
from build.replication.beside import Beside, beside
from build.replication.bulk import Sender
from build.replication.far_store import FarStore
from build.replication.replica import Finding
from build.replication.replicate import Replication, Report, Want
from build.store.outside import is_on_node
from build.store.store import Store

ASK_S = 15.0
# The store's place with no link in it, who we are there, and what the machine is.
ASK = 'readlink -m -- "$1" && id -u && id -g && uname -m'

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Place:
    """What a worker says of itself: its store's absolute path, the ssh user as ``uid:gid``, its platform."""

    store: Path
    user: str
    platform: str


class Replica:
    """One worker's store. ``store`` is the head's."""

    def __init__(self, host: Host, ssh_config: Path | None, store: Store, say: Say) -> None:
        self.host, self._store, self._say = host, store, say
        destination = Destination(host.name, host.target, config=ssh_config)
        self.node = SshNode(destination, PurePosixPath(host.store), docker_socket=host.docker_socket)
        self._rooted: frozenset[str] = frozenset()
        self._sources: dict[str, Path] = {}  # of entries that the head's store does not have as such

    def place(self) -> Place:
        """Ask it."""
        said = self.node.run(["sh", "-c", ASK, "place", self.host.store], ASK_S).text.split("\n")
        return Place(Path(said[0]), f"{said[1]}:{said[2]}", platform_of(said[3]))

    def fill(self, bundle: Bundle, platform: str, *, thorough: bool = False) -> Report:
        """Bring what its ranks need, and keep it from garbage collection until the next bundle is brought."""
        far, wanted = self._far(bundle, platform), self._wants(bundle)
        entries = frozenset(want.entry for want in wanted)
        if entries != self._rooted:
            with far_lock.held(self.node, self._say):
                far.set_root(root_name(), entries)
            self._rooted = entries
        return self.to(far).run(wanted, thorough=thorough)

    def require(self, bundle: Bundle, platform: str) -> None:
        """``Refused`` where something is missing or damaged; nothing is copied."""
        far = self._far(bundle, platform, send_tool=False)
        replicate.require(self.host.name, replicate.check(far, self._wants(bundle)))

    def verify(self, bundle: Bundle, platform: str) -> tuple[Finding, ...]:
        """Read every byte of what is there and known here; findings that are not good."""
        far = self._far(bundle, platform)
        return tuple(found for found in replicate.verify(far, self._known(far, bundle)) if not found.good)

    def repair(self, bundle: Bundle, platform: str, pack_again: Callable[[str], None]) -> Report:
        """The same, and mend what is damaged; ``pack_again`` an entry that only this worker had."""
        far = self._far(bundle, platform)
        known, to = self._known(far, bundle), self.to(far)
        packed_there = [want for want in known if want.made_there]
        if packed_there:
            for finding in filter(replicate.lost, replicate.verify(far, packed_there)):
                pack_again(finding.entry)
            to.run(packed_there)
        return to.run([want for want in known if not want.made_there], thorough=True)

    def collect(self, bundle: Bundle, platform: str, kept: Iterable[Bundle], *, dry_run: bool) -> tuple[str, ...]:
        """Remove what no kept bundle's ranks here need, and no root there names; the entries."""
        far = self._far(bundle, platform)
        stay = {entry for one in kept for entry in (*self.needed(one), *(b.entry for b in self._beside(one)))}
        with far_lock.held(self.node, self._say):
            rooted = {entry for entries in far.roots().values() for entry in entries}
            go = tuple(e for e in far.entries() if e not in stay | rooted and not self._only_there(e))
            for entry in () if dry_run else go:
                far.remove(entry)
        return go

    def _only_there(self, entry: str) -> bool:
        """True where the head has but the record of an entry, and keeps it."""
        known = self._store.find(entry)
        return known is not None and is_on_node(known.outside)

    def needed(self, bundle: Bundle) -> frozenset[str]:
        """Store entries that its ranks of a bundle read."""
        ranks = (rank for rank in self.host.ranks if rank < bundle.world_size)
        return frozenset(entry for rank in ranks for entry in needed(bundle, rank))

    def _beside(self, bundle: Bundle) -> tuple[Beside, ...]:
        """What they read besides."""
        return beside(self._store, self.needed(bundle))

    def _wants(self, bundle: Bundle) -> tuple[Want, ...]:
        """All that they read."""
        return (*replicate.wants(self._store, self.needed(bundle), there=True), *self.wanted(self._beside(bundle)))

    def wanted(self, files: Iterable[Beside]) -> tuple[Want, ...]:
        """They are sent from where they lie here."""
        more = tuple(one.want(self._store.hash_file) for one in files)
        self._sources |= {want.entry: want.source for want in more}
        return more

    def tool(self, bundle: Bundle, platform: str) -> NodeTool:
        """The node tool for it, out of a bundle."""
        if platform not in bundle.node_tool:
            raise Refused(f"{self.host.name} is {platform}, and the bundle has no node tool for it: run `doit`")
        return bundle.node_tool[platform]

    def close(self) -> None:
        """Let the connection go."""
        self.node.close()

    def to(self, far: FarStore) -> Replication:
        """What brings entries there, alone at that store while it does."""
        sender = Sender(self.node.destination, far.root, lambda entry: self._sources.get(entry) or self._store.path(entry))
        return Replication(far, sender, self._say, lambda: far_lock.held(self.node, self._say), self.host.hub_cache)

    def _known(self, far: FarStore, bundle: Bundle) -> tuple[Want, ...]:
        """What is there and has a record here, and what is there of the bundle's files beside the store."""
        there = set(far.entries())
        packed_there = {entry for entry in self.needed(bundle) if self._only_there(entry)}
        entries = [entry for entry in there | packed_there if self._store.find(entry) is not None]
        known = replicate.wants(self._store, entries, there=True)
        return (*known, *self.wanted(one for one in self._beside(bundle) if one.entry in there))

    def _far(self, bundle: Bundle, platform: str, *, send_tool: bool = True) -> FarStore:
        return FarStore(self.node, self.tool(bundle, platform).program.under(self._store.root), send_tool=send_tool)


def replicas(workers: Workers, world: int, store: Store, say: Say) -> tuple[Replica, ...]:
    """One for each worker of the settings; the caller closes them."""
    return tuple(Replica(host, workers.ssh_config, store, say) for host in hosts(workers, world) if host.name != HEAD)


def root_name() -> str:
    """The name of this head's root on a worker: what it brought last."""
    return "head-" + "".join(c if c.isalnum() or c in ".-" else "-" for c in socket.gethostname())
