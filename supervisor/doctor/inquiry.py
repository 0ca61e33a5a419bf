"""What to ask of which node, and what a launch wants of it: from the settings and the current generation. Starts nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from build.bundle import Bundle, Needs, needed
from build.errors import UsageError
from build.nodes import named as forms
from build.nodes import node as nodes
from build.nodes.hosts import HEAD, Host, hosts
from build.nodes.node import DOCKER_SOCKET, LocalNode, Node, SshNode
from build.nodes.ssh_link import Destination
from build.replication.beside import beside
from build.store import generations
from build.store.generations import Generation
from build.store.store import Store
from supervisor.configuration import Configuration
from supervisor.doctor.gids import Indexes
from supervisor.doctor.links import Wish
from supervisor.doctor.nfs import Export
from supervisor.doctor.rules import NodeWish, Wanted
from supervisor.doctor.script import Query
from supervisor.fleet.address import lookup
from supervisor.gang import identity
from supervisor.gang.takings import Takings
from supervisor.memory.measured import Took, settled
from supervisor.memory.needs import Needs as MemoryNeeds
from supervisor.memory.policy import gate_need_bytes

if TYPE_CHECKING:
    from supervisor.doctor.unbuilt import Unbuilt

INDEXES = "links.json"  # in the run folder: the GID indexes of the last launch
LEAST_CONTEXT = 1024


@dataclass(frozen=True, slots=True)
class Inquiry:
    """Everything needed to ask and to judge. ``generation`` is None where nothing was built yet.

    ``unbuilt`` is then what a first build brings, where the pins tell.
    """

    configuration: Configuration
    generation: Generation | None
    hosts: tuple[Host, ...]
    addresses: Mapping[str, str]  # of workers, as far as the user's words tell
    unbuilt: Unbuilt | None = None
    owner: str = ""  # the state folder's id; "" where it has none yet

    @property
    def bundle(self) -> Bundle | None:
        """What would be launched."""
        return self.generation.bundle if self.generation else None

    @property
    def known(self) -> tuple[Took, ...]:
        """What launches of the bundle took of the nodes' memory."""
        if self.generation is None:
            return ()
        return settled(Takings(self.configuration.state_dir).of(self.generation.bundle_entry))

    @property
    def needs(self) -> Needs:
        """What a rank asks of its node. Before the first build every target but the demo is taken for one that needs it all."""
        if self.bundle:
            return self.bundle.needs
        return Needs() if self.configuration.places.target == "demo" else Needs(gpu=True, infiniband=True, memlock=True)

    @property
    def wish(self) -> Wish:
        """What is asked of the link."""
        one = self.configuration
        rdma = self.needs.infiniband and len(self.hosts) > 1
        return Wish(one.links.rails, one.serve.master_addr, rdma, one.links.engine_gid or ("one" if rdma else "each"))

    def entries(self, host: Host) -> Mapping[str, int]:
        """Store entries that the node needs, with their bytes as the head's store has them.

        Before the first build they are the places of the hub's files on the head.
        """
        if self.generation is None:
            return self.unbuilt.files if self.unbuilt and host.name == HEAD else {}
        store, bundle = Store(self.generation.store), self.generation.bundle
        processes = self.configuration.serve.runner == "process"
        names = {entry for rank in host.ranks for entry in needed(bundle, rank, processes=processes)}
        records = {name: store.find(name) for name in sorted(names)}
        found = {name: record.size_bytes if record else 0 for name, record in records.items()}
        if host.name != HEAD and not self.nfs and all(records.values()):
            found |= {one.entry: one.size_bytes for one in beside(store, names)}
        return found

    def query(self, host: Host) -> Query:
        """What to ask of one node."""
        one, head = self.configuration, host.name == HEAD
        cache = self.unbuilt.cache if self.unbuilt and head else ""
        return Query(
            store=host.store,
            proc_root=str(one.memory.proc_root) if head else one.links.worker_proc_root,
            sys_root=str(one.memory.sys_root) if head else one.links.worker_sys_root,
            docker_socket=self._docker_socket(host) if self.docker else "",
            peers=tuple(address for address in self.addresses.values() if head and address),
            paths=tuple(dict.fromkeys(path for path in (host.store, cache, self.engram(host)) if path)),
            entries=tuple(self.entries(host)),
            images=tuple(image.tag for image in self.bundle.image.values()) if self.bundle and self.docker else (),
            volume=one.storage.nfs_volume if self.nfs and not head and "/" not in one.storage.nfs_volume else "",
        )

    @property
    def docker(self) -> bool:
        """Whether ranks run in containers."""
        return self.configuration.serve.runner == "docker" or self.needs.gpu

    @property
    def nfs(self) -> bool:
        """Whether workers read the head's store over NFS."""
        return self.configuration.storage.storage == "nfs"

    def export(self, server: str) -> Export:
        """What workers read over NFS; ``server`` is the head's address on the link."""
        one = self.configuration.storage
        path = one.nfs_path or self.hosts[0].store
        engram = self.bundle is not None and self.bundle.engram is not None
        return Export(one.nfs_server or server, path, one.nfs_volume, engram, one.engram_on_network)

    def engram(self, host: Host) -> str:
        """Where the node reads its Engram tables; "" where the bundle has none."""
        if self.bundle is None or self.bundle.engram is None:
            return ""
        return str(PurePosixPath(host.store) / self.bundle.engram.entry)

    def wanted(self, present: Mapping[str, frozenset[str]], *, serving: bool) -> Wanted:
        """What a launch wants, given what each node's store holds already."""
        one = self.configuration
        serve = one.serve
        open_to = "" if serve.api_key_file or _loopback(serve.host) else f"{serve.host}:{serve.port}"
        wishes = {host.name: self._node_wish(host, present.get(host.name, frozenset())) for host in self.hosts}
        return Wanted(
            needs=self.needs,
            docker=self.docker,
            clock_cap_mhz=one.links.clock_cap_mhz,
            gate_wait_s=one.memory.gate_wait_s,
            engram_on_network=one.storage.engram_on_network,
            api_open=open_to,
            serving=serving,
            container_name=serve.container_name,
            owner=self.owner,
            nodes=wishes,
        )

    def _node_wish(self, host: Host, present: frozenset[str]) -> NodeWish:
        copied = host.name == HEAD or not self.nfs
        missing = self._missing(host, present) if copied else {}
        heard = host.ranks if self.docker and host.name != HEAD else ()
        ports = tuple(self.configuration.links.lease_port + rank for rank in heard)
        return NodeWish(self._need_bytes(host), missing, self.engram(host), ports)

    def _missing(self, host: Host, present: frozenset[str]) -> dict[str, int]:
        """Bytes still to come to the node by where they go."""
        if self.unbuilt:
            return self.unbuilt.missing(host.store, len(host.ranks), present, head=host.name == HEAD)
        missing = sum(size for entry, size in self.entries(host).items() if entry not in present)
        return {host.store: missing} if missing else {}

    def _need_bytes(self, host: Host) -> int:
        """The launch gate of a node: its ranks at the context asked for, the least one where that is found at the launch."""
        memory, bundle = self.configuration.memory, self.bundle
        if bundle is None:
            return 0
        asked = self.configuration.serve.context
        context = LEAST_CONTEXT if isinstance(asked, str) else asked
        plan = MemoryNeeds(self.configuration, bundle, self.known).plan(host.name, host.ranks, 0, context)
        return gate_need_bytes(plan.need_bytes(context), memory.floor_bytes, memory.launch_gate_bytes)

    def _docker_socket(self, host: Host) -> str:
        return host.docker_socket or str(self.configuration.serve.docker_socket or DOCKER_SOCKET)

    def open(self) -> dict[str, Node]:
        """A node each. The caller closes them."""
        one = self.configuration.workers
        opened: dict[str, Node] = {}
        for host in self.hosts:
            if not host.target:
                opened[host.name] = LocalNode(host.name, Path(host.store))
                continue
            destination = Destination(host.name, host.target, config=one.ssh_config)
            opened[host.name] = SshNode(destination, PurePosixPath(host.store), docker_socket=host.docker_socket)
        return opened

    def asked(self, opened: Mapping[str, Node]) -> dict[str, tuple[Node, Query]]:
        """Each node with what is asked of it."""
        return {host.name: (opened[host.name], self.query(host)) for host in self.hosts}

    def with_head(self, opened: Mapping[str, Node]) -> dict[str, Node]:
        """The workers' nodes that someone else has open, and this host."""
        return {HEAD: LocalNode(HEAD, Path(self.hosts[0].store)), **opened}

    def last_indexes(self) -> Indexes:
        """The GID indexes that the last launch used; none where there was none."""
        try:
            found = json.loads((self.configuration.run_dir / INDEXES).read_text(encoding="utf-8"))
            return {str(n): {str(d): int(i) for d, i in devices.items()} for n, devices in found.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}


def inquire(one: Configuration) -> Inquiry:
    """The inquiry of these settings. ``UsageError`` where a worker is named in a form that cannot work."""
    generation = generations.chosen_or_none(one.state_dir, one.places.target, one.places.variant)
    found = _hosts(one, generation.bundle.world_size if generation else None)
    addresses = {host.name: _address(one, host) for host in found if host.target}
    owner = known.id if (known := identity.read(one.state_dir)) else ""
    if generation:
        return Inquiry(one, generation, found, addresses, owner=owner)
    from supervisor.doctor import unbuilt  # reads locks, which nothing else here needs

    return Inquiry(one, None, found, addresses, unbuilt.read(one.places), owner)


def _hosts(one: Configuration, world: int | None) -> tuple[Host, ...]:
    """The fleet's hosts, with the store of each as it is seen there."""
    count = len(one.workers.worker.split()) + 1
    head, *workers = hosts(one.workers, world or count)
    return (replace(head, store=str(one.state_dir / "store")), *workers)


def _address(one: Configuration, host: Host) -> str:
    """The worker's address on the link as it can be told from the user's words; "" where the nodes must be asked."""
    if host.fabric:
        judged = forms.judge(forms.Target("192.0.2.1", "", 22), host.fabric, (), lookup)
        if judged.problem and "/" in host.fabric:
            raise UsageError(judged.problem)
        return judged.fabric or host.fabric  # a name without an address is a finding among the others
    printed = nodes.probe_target(Destination(host.name, host.target, config=one.workers.ssh_config))
    return forms.judge(forms.read_target(printed, ""), "", (IPv4Network("0.0.0.0/0"),), lambda _name: None).fabric


def _loopback(host: str) -> bool:
    try:
        return IPv4Address(host).is_loopback
    except ValueError:
        return host in {"::1", "localhost"}
