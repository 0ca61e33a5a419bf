"""Which rails join the nodes: pure, from every node's network devices, RDMA devices and routes.

A rail is one network that a port of the head and a port of every worker share. The first is the one that the ranks meet on. A
port that is no RDMA device is a rail only where the head has no RDMA devices at all.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface

from build.facts import Gid, Netdev, RdmaDevice, Route
from supervisor.doctor.facts import NodeFacts
from supervisor.doctor.findings import Finding, error

ASK = "set FABRIC_PEER to the worker's IPv4 address on the link"


@dataclass(frozen=True, slots=True)
class End:
    """One node's end of a rail. ``gid`` is the RoCE v2 entry of exactly this address; ``active_mtu`` is RoCE's, None unknown."""

    node: str
    netdev: Netdev
    inet: IPv4Interface
    rdma: RdmaDevice | None = None
    gid: Gid | None = None
    active_mtu: int | None = None

    @property
    def address(self) -> str:
        """Its IPv4 address."""
        return str(self.inet.ip)

    @property
    def up(self) -> bool:
        """Whether the port carries, as the network device and the RDMA device say."""
        return self.netdev.up and (self.rdma is None or self.rdma.active)

    def __str__(self) -> str:
        gid = f" {self.rdma.name} gid {self.gid.index if self.gid else '-'}" if self.rdma else ""
        return f"{self.netdev.name} {self.address}{gid}"


@dataclass(frozen=True, slots=True)
class Rail:
    """The ends of one network, the head's first."""

    number: int
    ends: tuple[End, ...]

    @property
    def name(self) -> str:
        """For messages."""
        return f"rail {self.number}"

    @property
    def up(self) -> bool:
        """Whether every end carries."""
        return all(end.up for end in self.ends)


@dataclass(frozen=True, slots=True)
class Found:
    """The rails in order, and why there is none where there is none."""

    rails: tuple[Rail, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Peer:
    """A worker: its facts, and its address as the user gave it. ``given`` is False where only an ssh target leads to it."""

    facts: NodeFacts
    address: str = ""
    given: bool = False


def find(head: NodeFacts, peers: Sequence[Peer], master_addr: str = "") -> Found:
    """The rails that join the head and all workers. ``master_addr``: the head's own address on the link, if the user set one."""
    if master_addr and not _has(head, master_addr):
        return Found(findings=(lost_address(head, master_addr),))
    troubles = tuple(found for peer in peers if peer.given and (found := _off_the_link(head, peer)))
    if troubles:
        return Found(findings=troubles)
    rails = [rail for end in _own_ends(head) if (rail := _rail(end, peers))]
    first = _first(rails, peers, master_addr)
    if first is None:
        return Found(findings=(_no_rail(head, peers),))
    plain = first.ends[0].rdma is None  # other ports without RDMA are a LAN, and no second rail
    ordered = [first] if plain else [first, *(rail for rail in rails if rail is not first)]
    return Found(tuple(Rail(number, rail.ends) for number, rail in enumerate(ordered)))


def lost_address(node: NodeFacts, address: str) -> Finding:
    """The node lacks an address that it must have on the link; names the port that should have it."""
    ports = unaddressed(node)
    port = ports[0].name if ports else "no port of it"
    held = ", ".join(str(inet.ip) for one in ports for inet in one.inet) or "none but link-local ones"
    state = f"{port} is up and has no address {address}" if ports else f"no port has the address {address}"
    return error(
        "no_ipv4_on_fabric_port",
        node.name,
        f"{node.label}: {state} (IPv4 addresses of such ports: {held})",
        f"the ranks cannot meet there: no RoCE v2 GID of {address} exists",
        f"give {port} its address again in /etc/netplan and apply it",
        "sudo netplan apply",
    )


def unaddressed(node: NodeFacts) -> tuple[Netdev, ...]:
    """RDMA ports that are up and have no IPv4 address but link-local ones."""
    by_netdev = _rdma_by_netdev(node)
    return tuple(one for one in node.netdevs if one.up and one.name in by_netdev and not one.networks())


def _has(node: NodeFacts, address: str) -> bool:
    return any(str(inet.ip) == address for one in node.netdevs for inet in one.inet)


def _rdma_by_netdev(node: NodeFacts) -> dict[str, RdmaDevice]:
    return {one.netdev: one for one in node.rdma if one.netdev}


def _own_ends(node: NodeFacts) -> Iterable[End]:
    """Every addressed port that can be a rail's end; those of RDMA devices only, where there are any. In their devices' order."""
    by_netdev = _rdma_by_netdev(node)
    names = list(by_netdev) or [one.name for one in node.netdevs if one.physical]
    devices = {one.name: one for one in node.netdevs}
    for name in names:
        for inet in devices[name].inet if name in devices else ():
            if not inet.is_link_local and not inet.is_loopback:
                yield _end(node, devices[name], inet)


def _end(node: NodeFacts, netdev: Netdev, inet: IPv4Interface) -> End:
    rdma = _rdma_by_netdev(node).get(netdev.name)
    gid = rdma.gid_of(str(inet.ip)) if rdma else None
    return End(node.name, netdev, inet, rdma, gid, node.active_mtus.get(rdma.name) if rdma else None)


def _rail(own: End, peers: Sequence[Peer]) -> Rail | None:
    """The rail that starts at one end of the head; None where a worker has no port on that network."""
    ends = [own]
    for peer in peers:
        there = [end for end in _own_ends(peer.facts) if end.inet.ip in own.inet.network and own.inet.ip in end.inet.network]
        named = [end for end in there if end.address == peer.address]
        if not there:
            return None
        ends.append((named or there)[0])
    return Rail(0, tuple(ends))


def _first(rails: Sequence[Rail], peers: Sequence[Peer], master_addr: str) -> Rail | None:
    """The rail that the user's words point at, else the first that is up, else the first."""
    said = {peer.address for peer in peers if peer.address} | ({master_addr} if master_addr else set())
    pointed = [rail for rail in rails if said & {end.address for end in rail.ends}]
    for wanted in (pointed, [rail for rail in rails if rail.up], list(rails)):
        if wanted:
            return wanted[0]
    return None


def off_the_link(head: NodeFacts, route: Route) -> Finding | None:
    """Why a route does not lead over the fabric; None where it does. The route's mere existence proves nothing."""
    fabric = {one.netdev for one in head.rdma}
    if not route.gateway and (route.device in fabric or not fabric):
        return None
    over = f"{route.device} over the gateway {route.gateway}" if route.gateway else route.device
    idle = ", ".join(one.name for one in unaddressed(head))
    lost = f" ({idle} is up and has no IPv4 address: has it lost it? see /etc/netplan)" if idle else ""
    return error(
        "not_the_fabric",
        head.name,
        f"{head.label}: {route.peer} is reached through {over}, which is not the fabric{lost}",
        "the ranks would meet over the LAN, or not at all",
        ASK,
        f"ip route get {route.peer}",
    )


def _off_the_link(head: NodeFacts, peer: Peer) -> Finding | None:
    try:
        IPv4Address(peer.address)
    except ValueError:
        return not_an_address(head, peer.address)
    way = next((one for one in head.routes if one.peer == peer.address), None)
    return off_the_link(head, way) if way else None


def not_an_address(head: NodeFacts, name: str) -> Finding:
    """A name where the engine and ``ip route get`` take IPv4 addresses only."""
    return error(
        "not_an_address",
        head.name,
        f"{name} is a name that does not resolve to an IPv4 address",
        "the engine takes IPv4 addresses only",
        ASK,
    )


def _no_rail(head: NodeFacts, peers: Sequence[Peer]) -> Finding:
    """No port of the head shares a network with every worker."""
    lost = [lost for node in (head, *(peer.facts for peer in peers)) if (lost := unaddressed(node))]
    if lost:
        node = next(node for node in (head, *(peer.facts for peer in peers)) if unaddressed(node))
        return lost_address(node, next((p.address for p in peers if p.facts is node and p.given), "of the link"))
    own = ", ".join(str(end) for end in _own_ends(head)) or "none"
    others = "; ".join(f"{p.facts.label}: {', '.join(map(str, _own_ends(p.facts))) or 'none'}" for p in peers)
    return error(
        "no_rail",
        head.name,
        f"no link port of the head ({own}) shares a network with the worker's ({others})",
        "the ranks cannot meet",
        "give both ends of the cable addresses in one network (/etc/netplan), or " + ASK,
        "ip -br addr",
    )


def covering(addresses: Iterable[str]) -> str:
    """The smallest IPv4 network that holds all of the addresses, as a prefix; "" for none."""
    numbers = [int(IPv4Address(one)) for one in addresses]
    if not numbers:
        return ""
    differing = 0
    for number in numbers:
        differing |= number ^ numbers[0]
    return str(ipaddress.IPv4Network((numbers[0], 32 - differing.bit_length()), strict=False))
