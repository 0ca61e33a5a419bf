"""From the current generation and the settings to what one launch starts: commands, paths, mounts, and the spec's hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from build.bundle import Bundle, StoreRef
from build.errors import Refused, StoreDamaged, UsageError
from build.nodes.hosts import HEAD, Host, hosts, nodes_of
from build.store import generations
from build.store.outside import IN_CONTAINER, ON_NODE, is_on_node
from build.store.store import Store
from supervisor.configuration import Configuration
from supervisor.doctor.links import Links
from supervisor.engine.contract import RankCommand, RankPaths, gang_commands, spec_hash
from supervisor.fleet import address
from supervisor.fleet.site import Site
from supervisor.gang.outside import outside_mounts
from supervisor.gang.takings import Takings
from supervisor.memory.ladder import Ladder
from supervisor.memory.measured import Took
from supervisor.memory.needs import Needs
from supervisor.memory.plan import NodePlan, choose_context
from supervisor.memory.policy import gate_need_bytes
from supervisor.runners.protocol import Mount, RankSpec
from supervisor.settings import Probes

if TYPE_CHECKING:
    from supervisor.status.view import Serving

LOOPBACK = "127.0.0.1"
CONTAINER_BINARIES = ("/usr/local/bin/tensorfold-native", "/usr/local/bin/tf-dsv41-lanes")
KEY_IN_CONTAINER = "/run/api-key"
CACHE_IN_CONTAINER = "/cache"


@dataclass(frozen=True, slots=True)
class Blueprint:
    """All of a launch that can be known before a node is asked, and the links, which are found anew at each launch.

    ``known`` is what earlier launches of the bundle took of the nodes' memory.
    """

    configuration: Configuration
    generation: int
    bundle: Bundle
    bundle_entry: str
    store: Path
    hosts: tuple[Host, ...]
    links: Links = Links()
    ladder: Ladder = Ladder()
    known: tuple[Took, ...] = ()

    @property
    def asked_context(self) -> int | str:
        """What may be asked for on the ladder's rung."""
        return self.ladder.bounded(self.configuration.serve.context, self.bundle.window_tokens)

    @property
    def loaded_paths(self) -> tuple[Path, ...]:
        """What this node's ranks read when they start."""
        ranks = next(host.ranks for host in self.hosts if host.name == HEAD)
        return tuple(sorted({ref.under(self.store) for rank in ranks for ref in self._refs(rank)}))

    @property
    def gate_on_free(self) -> bool:
        """Whether page cache counts for nothing at the gate: on unified memory a device allocation cannot have it."""
        wanted = self.configuration.memory.gate_on_free
        return self.bundle.needs.gpu if wanted is None else wanted

    @property
    def nodes(self) -> tuple[str, ...]:
        """The node of each rank."""
        return nodes_of(self.hosts)

    @property
    def served_name(self) -> str:
        """The model id that clients use."""
        return self.configuration.serve.served_name or self.bundle.served_name

    @property
    def url(self) -> str:
        """The API's base address as this machine reaches it."""
        from supervisor.engine.facts import connectable

        serve = self.configuration.serve
        return f"http://{connectable(serve.host)}:{serve.port}/v1"

    @property
    def in_containers(self) -> bool:
        """Whether ranks see the store at another place than this process."""
        return self.configuration.serve.runner == "docker"

    @property
    def master(self) -> str:
        """Rank 0's IPv4 address for the other ranks: as found at this launch, else as the way to the workers is now."""
        if found := self.configuration.serve.master_addr or self.links.master:
            return found
        return address.master(self.hosts[1:], self.configuration.workers.ssh_config) if len(self.hosts) > 1 else LOOPBACK

    @property
    def spec_hash(self) -> str:
        """The canonical launch spec: a context that is found at each launch ("auto") does not count, nor do the links."""
        serve, anywhere = self.configuration.serve, replace(self, links=Links())
        asked = serve.context
        context = self.bundle.window_tokens if isinstance(asked, str) else asked
        commands = anywhere.commands(context, serve.master_addr or LOOPBACK)
        return spec_hash(commands, self.bundle_entry, str(asked), self.configuration.serve.runner)

    def commands(self, context_tokens: int, master: str = "") -> tuple[RankCommand, ...]:
        """Every rank's command at a context; ``master`` in place of the address that the ranks meet at."""
        configuration, engine = self.configuration, self.bundle.engine
        here = (str(engine.server.under(self.store)), str(engine.follower.under(self.store)))
        return gang_commands(
            self.bundle,
            configuration.serve,
            context_tokens,
            tuple(self._paths(rank) for rank in range(self.bundle.world_size)),
            binaries=CONTAINER_BINARIES if self.in_containers else here,
            master=master or self.master,
            node_locals=tuple(self.links.local(node) for node in self.nodes) if self.links.rails else (),
            engine_env=configuration.engine_env,
            reserve_gib=configuration.memory.min_avail_gib,
        )

    def mounts(self, rank: int, site: Site) -> tuple[Mount, ...]:
        """What a container of the rank mounts: each store entry it needs, and the key; a process needs none."""
        if not self.in_containers:
            return ()
        entries = () if site.volume else sorted({ref.entry for ref in self._refs(rank)})
        mounts = [Mount(site.store / entry, str(IN_CONTAINER / entry)) for entry in entries]
        outside = outside_mounts(self.store, self._refs(rank), site.store, shared=bool(site.volume))
        mounts += [Mount(at, inside) for at, inside in outside]
        if site.volume:
            mounts.append(Mount(Path(site.volume), str(IN_CONTAINER), volume=True))
        if site.cache:
            mounts.append(Mount(site.cache, CACHE_IN_CONTAINER, read_only=False))
        key = self.configuration.serve.api_key_file
        return (*mounts, Mount(key.absolute(), KEY_IN_CONTAINER)) if key and rank == 0 else tuple(mounts)

    def check_store(self) -> None:
        """``StoreDamaged`` naming the first thing that a launch needs and that is not there."""
        refs = [ref for rank in range(self.bundle.world_size) for ref in self._refs(rank)]
        for ref in [*refs, self.bundle.engine.server, self.bundle.engine.follower]:
            if not ref.under(self.store).exists():
                raise StoreDamaged(f"{ref.under(self.store)} is not there, which generation {self.generation} needs: run `doit`")
        for rank, node in enumerate(self.nodes):
            if node == HEAD or not self.in_containers:
                self._check_here(rank)

    def _check_here(self, rank: int) -> None:
        """``Refused`` where a rank that runs on this host has its weight file on another."""
        known = Store(self.store).find(self.bundle.rank_caches[rank].entry)
        if known is not None and is_on_node(known.outside):
            where = known.outside.removeprefix(ON_NODE)
            raise Refused(
                f"rank {rank} is to run on this host, and its weight file was packed on {where} and lies there alone: "
                'set pack_rank_caches = "head" and run `doit`, or let the rank run there'
            )

    @property
    def needs(self) -> Needs:
        """What its ranks need of a node's memory."""
        return Needs(self.configuration, self.bundle, self.known)

    def check_world(self, world_size: int) -> None:
        """``Refused`` where the generation has another number of ranks than the supervisor keeps."""
        if self.bundle.world_size != world_size:
            raise Refused(
                f"generation {self.generation} has {self.bundle.world_size} ranks, this supervisor keeps {world_size}:"
                " `supervisor stop`, then `supervisor run`"
            )

    def node_plan(self, available_bytes: int, node: str = HEAD, context_tokens: int | None = None) -> NodePlan:
        """What the ranks of a node need: by what was measured at the context, else (and for None) by the figures."""
        ranks = next(host.ranks for host in self.hosts if host.name == node)
        return self.needs.plan(node, ranks, available_bytes, context_tokens)

    def need_bytes(self, context_tokens: int) -> int:
        """What must be available here before a launch: the plan's need, the floor beside it, or what the user asks for."""
        memory = self.configuration.memory
        return gate_need_bytes(
            self.node_plan(0, HEAD, context_tokens).need_bytes(context_tokens), memory.floor_bytes, memory.launch_gate_bytes
        )

    def plans_at(self, available: Mapping[str, int], context_tokens: int | None) -> tuple[NodePlan, ...]:
        """The plans of nodes by name, each with what it has available."""
        return tuple(self.node_plan(count, node, context_tokens) for node, count in available.items())

    def at(self, available: Mapping[str, int]) -> Plan:
        """The plan of a launch now. ``Refused`` where the context asked for, or the weights, do not fit one of the nodes."""
        floor, window = self.configuration.memory.floor_bytes, self.ladder.window(self.bundle.window_tokens)
        context = choose_context(
            self.asked_context, lambda at: self.plans_at(available, at), floor, window, self.needs.measured_at
        )
        self.commands(context)  # refuses what the engine cannot be given
        return Plan(self, context, tuple(available.items()))

    def running_at(self, context_tokens: int) -> Plan:
        """The plan of a gang that runs already, at the context it was started with."""
        return Plan(self, context_tokens)

    def _refs(self, rank: int) -> tuple[StoreRef, ...]:
        bundle = self.bundle
        engram = (bundle.engram,) if bundle.engram else ()
        return (bundle.model, bundle.rank_caches[rank], bundle.kit, bundle.token_map, *engram)

    def _paths(self, rank: int) -> RankPaths:
        bundle, key = self.bundle, self.configuration.serve.api_key_file
        store = IN_CONTAINER if self.in_containers else self.store
        shown_key = KEY_IN_CONTAINER if self.in_containers else str(key)
        return RankPaths(
            model=str(bundle.model.under(store)),
            rank_cache=str(bundle.rank_caches[rank].under(store)),
            kit=str(bundle.kit.under(store)),
            token_map=str(bundle.token_map.under(store)),
            engram=str(bundle.engram.under(store)) if bundle.engram else None,
            api_key_file=shown_key if key and rank == 0 else None,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """One launch: the blueprint at a context. ``before`` is what each node had available when it was made, by name."""

    blueprint: Blueprint
    context_tokens: int
    before: tuple[tuple[str, int], ...] = ()

    @property
    def commands(self) -> tuple[RankCommand, ...]:
        """Every rank's command."""
        return self.blueprint.commands(self.context_tokens)

    @property
    def need_bytes(self) -> int:
        """What must be available before it starts."""
        return self.blueprint.need_bytes(self.context_tokens)

    @property
    def serving(self) -> Serving:
        """For status and metrics."""
        from supervisor.status.view import Serving

        one = self.blueprint
        return Serving(
            target=one.configuration.places.target,
            generation=one.generation,
            bundle_entry=one.bundle_entry,
            bundle=one.bundle,
            served_name=one.served_name,
            url=one.url,
            context_tokens=self.context_tokens,
            runner=one.configuration.serve.runner,
            nodes=one.nodes,
            planned=tuple((plan.node, plan.need_bytes(self.context_tokens)) for plan in self._plans),
            fresh_s=fresh_s(one.configuration.probes),
            context_bytes_per_token=self._plans[0].bytes_per_token,
        )

    @property
    def _plans(self) -> tuple[NodePlan, ...]:
        """Every node's, the head's first."""
        one = self.blueprint
        return one.plans_at(dict.fromkeys(one.nodes, 0), self.context_tokens)

    def rank_spec(self, launch_id: str, rank: int, site: Site) -> RankSpec:
        """What a runner starts on the rank's node."""
        one = self.blueprint
        spec = RankSpec(
            launch_id=launch_id,
            rank=rank,
            world_size=one.bundle.world_size,
            node=one.nodes[rank],
            command=self.commands[rank],
            spec_hash=one.spec_hash,
            bundle_entry=one.bundle_entry,
            context_tokens=self.context_tokens,
        )
        if not one.in_containers:
            return spec
        name = one.configuration.serve.container_name
        shared = one.nodes.count(one.nodes[rank]) > 1
        return replace(
            spec,
            mounts=one.mounts(rank, site),
            image=one.bundle.image.get(site.platform),
            needs=one.bundle.needs,
            user=site.user,
            container_name=f"{name}-rank{rank}" if shared else name,
        )


def fresh_s(probes: Probes) -> float:
    """So long work or a probe that was seen done proves life."""
    return 2 * probes.idle_probe_s + probes.stall_s


def blueprint(configuration: Configuration) -> Blueprint:
    """The blueprint of the variant's generation; an error that says to run ``doit`` where there is none."""
    workers, places = configuration.workers, configuration.places
    generation = generations.chosen(configuration.state_dir, places.target, places.variant)
    found = hosts(workers, generation.bundle.world_size)
    if len(found) > 1 and configuration.serve.runner != "docker":
        raise UsageError(f"worker = {workers.worker}: ranks on other hosts run in containers: set runner to docker")
    return Blueprint(
        configuration,
        generation.number,
        generation.bundle,
        generation.bundle_entry,
        generation.store,
        found,
        known=Takings(configuration.state_dir).of(generation.bundle_entry),
    )
