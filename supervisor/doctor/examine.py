"""An examination: every node's facts, the links between them, and all findings. It puts the pure parts together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from build.nodes.hosts import HEAD, Host, hosts
from build.nodes.node import Node
from build.units import gib
from supervisor.doctor import folder, links, nfs, rules
from supervisor.doctor.collect import Raw, collect
from supervisor.doctor.facts import NodeFacts
from supervisor.doctor.findings import Finding, Level, note
from supervisor.doctor.inquiry import Inquiry
from supervisor.doctor.links import Links, Probed
from supervisor.doctor.rails import Peer
from supervisor.doctor.rules import Wanted

ORDER = {Level.ERROR: 0, Level.WARNING: 1, Level.NOTE: 2}
Probe = Callable[[Mapping[str, Node], Mapping[str, NodeFacts], Links], tuple[Probed, ...]]
Probing = Callable[[Mapping[str, NodeFacts], Links], tuple[Probed, ...]]


@dataclass(frozen=True, slots=True)
class Examination:
    """All that is known. ``findings``: the worst first. ``probed``: full-size packets, where they could be sent."""

    nodes: tuple[NodeFacts, ...]
    links: Links
    findings: tuple[Finding, ...]
    wanted: Wanted = Wanted()
    probed: tuple[Probed, ...] = ()

    @property
    def forbidden(self) -> bool:
        """Whether something forbids a launch."""
        return any(one.level is Level.ERROR for one in self.findings)

    @property
    def verdict(self) -> str:
        """ok, warn or fail; notes are ok."""
        levels = {one.level for one in self.findings}
        return "fail" if Level.ERROR in levels else "warn" if Level.WARNING in levels else "ok"


def live(
    inquiry: Inquiry, opened: Mapping[str, Node], probe: Probe, *, serving: bool = False
) -> tuple[Examination, dict[str, Raw]]:
    """Ask the nodes. What they printed comes back too, to be saved."""
    raws = collect(inquiry.asked(opened))
    return told(inquiry, raws, lambda facts, found: probe(opened, facts, found), serving=serving), raws


def told(inquiry: Inquiry, raws: Mapping[str, Raw], probe: Probing = lambda *_: (), *, serving: bool = False) -> Examination:
    """Judge what the nodes have printed, and send full-size packets by ``probe``."""
    facts = {name: raw.facts(name) for name, raw in raws.items()}
    found = _links(inquiry, facts)
    probed = probe(facts, found)
    return judge(inquiry, tuple(facts.values()), links.probe_findings(found, probed, inquiry.wish), probed, serving=serving)


def from_folder(inquiry: Inquiry, where: Path) -> Examination:
    """Judge captured outputs. The nodes are those of the folder, whatever the settings name, and so are their stores' places."""
    facts = tuple(raw.facts(name) for name, raw in folder.load(where).items())
    owner = folder.load_owner(where)
    inquiry = replace(inquiry, hosts=_hosts_of(inquiry, facts), owner=inquiry.owner if owner is None else owner)
    probed = folder.load_probed(where)
    found = links.probe_findings(_links(inquiry, {one.name: one for one in facts}), probed, inquiry.wish)
    return judge(inquiry, facts, found, probed, serving=False)


def _hosts_of(inquiry: Inquiry, nodes: tuple[NodeFacts, ...]) -> tuple[Host, ...]:
    """The hosts that a folder's nodes were, with the ranks that they would have. ``UsageError`` where those do not share out."""
    found = inquiry.hosts
    names = [one.name for one in nodes if one.name != HEAD]
    if len(names) + 1 != len(found):
        world = inquiry.bundle.world_size if inquiry.bundle else len(nodes)
        found = hosts(replace(inquiry.configuration.workers, worker=" ".join(names), fabric_peer=""), world)
    stores = {one.name: one.places[0].path for one in nodes if one.places}  # a store's place is asked for first
    return tuple(replace(host, store=stores.get(host.name, host.store)) for host in found)


def judge(
    inquiry: Inquiry, nodes: tuple[NodeFacts, ...], found: Links, probed: tuple[Probed, ...] = (), *, serving: bool
) -> Examination:
    """Every finding. Pure."""
    wanted = inquiry.wanted({node.name: node.present for node in nodes}, serving=serving)
    findings = [*found.findings, *rules.judge(nodes, wanted), *_nfs(inquiry, nodes, found), *_not_built(inquiry, wanted)]
    return Examination(nodes, found, tuple(sorted(findings, key=lambda one: ORDER[one.level])), wanted, probed)


def _links(inquiry: Inquiry, facts: Mapping[str, NodeFacts]) -> Links:
    """No links where one host serves alone, or where a node could not be read: that is said by itself."""
    named = {host.name: host for host in inquiry.hosts}
    workers = [node for name, node in facts.items() if name != HEAD]
    if not workers or any(node.trouble for node in facts.values()):
        return Links()
    peers = [
        Peer(node, inquiry.addresses.get(node.name, ""), bool(named[node.name].fabric)) if node.name in named else Peer(node)
        for node in workers
    ]
    return links.judge(facts[HEAD], peers, inquiry.wish, inquiry.last_indexes())


def _nfs(inquiry: Inquiry, nodes: tuple[NodeFacts, ...], found: Links) -> tuple[Finding, ...]:
    head, *workers = nodes
    if not inquiry.nfs or not workers or any(node.trouble for node in nodes):
        return ()
    ends = found.rails[0].ends if found.rails else ()
    addresses = {end.node: end.address for end in ends}
    return nfs.findings(inquiry.export(found.master), head, [(node, addresses.get(node.name, "")) for node in workers])


def _to_come(inquiry: Inquiry, wanted: Wanted) -> str:
    """What the pins say of a first build, by node and place."""
    if inquiry.unbuilt is None:
        return "no pin tells how much a build brings"
    rows = ((name, path, size) for name, wish in wanted.nodes.items() for path, size in wish.missing.items() if size)
    return "by its pins " + ", ".join(f"{gib(size)} are to come to {path} on {name}" for name, path, size in rows)


def _not_built(inquiry: Inquiry, wanted: Wanted) -> tuple[Finding, ...]:
    if inquiry.generation is not None:
        return ()
    target = inquiry.configuration.places.target
    found = note(
        "nothing_built",
        HEAD,
        f"target {target} has no generation in {inquiry.configuration.state_dir}",
        f"{_to_come(inquiry, wanted)}; memory needs are not known yet",
        "build it",
        f"doit target={target}",
    )
    return (found,)
