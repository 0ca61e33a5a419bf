"""What is wrong with the rails, and what follows for each node's own settings. Pure.

A rail that is bad is refused, or dropped with a word where ``rails = "auto"`` allows it and it is not the first. A rail that
is down is left out. Where one GID index does not fit every device of a node none is passed: NCCL gets the RoCE version and a
range of addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from build.facts import RdmaDevice, fitting_mtu
from build.facts.rdma import PATH_MTUS
from supervisor.doctor.facts import NodeFacts
from supervisor.doctor.findings import Action, Finding, Level, error, warning
from supervisor.doctor.gids import Indexes, indexes_differ, moved, no_gid, node_local, not_taken
from supervisor.doctor.rails import End, Peer, Rail, find
from supervisor.engine.contract import NodeLocal


@dataclass(frozen=True, slots=True)
class Wish:
    """What the settings ask of the link. ``rails``: how many at most, or "auto". ``rdma``: the target cannot do without.

    ``gid``: whether the engine's own RDMA takes "one" index for all devices of a node, finds "each" by itself, or is "fixed".
    """

    rails: int | str = 2
    master_addr: str = ""
    rdma: bool = False
    gid: str = "each"


@dataclass(frozen=True, slots=True)
class Probed:
    """What full-size packets over one rail between the head and one worker came to. ``outcome`` is "ok" or what went wrong.

    ``rail`` is the rail's number.
    """

    rail: int
    node: str
    size_bytes: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Links:
    """The rails in use, and all that was found. No rails: one host, or nothing that would carry a gang."""

    rails: tuple[Rail, ...] = ()
    findings: tuple[Finding, ...] = ()
    proven: bool = False  # full-size packets went over them

    @property
    def master(self) -> str:
        """Rank 0's address on the first rail; "" without rails."""
        return self.rails[0].ends[0].address if self.rails else ""

    def ends(self, node: str) -> tuple[End, ...]:
        """One node's ends, of the first rail first."""
        return tuple(end for rail in self.rails for end in rail.ends if end.node == node)

    def local(self, node: str) -> NodeLocal:
        """The node's own settings for this launch."""
        return node_local(self.ends(node))

    def indexes(self) -> Indexes:
        """Each node's GID index of each device in use, to be compared with at the next launch."""
        found: dict[str, dict[str, int]] = {}
        for rail in self.rails:
            for end in rail.ends:
                if end.rdma and end.gid:
                    found.setdefault(end.node, {})[end.rdma.name] = end.gid.index
        return found


def judge(head: NodeFacts, peers: Sequence[Peer], wish: Wish, before: Indexes) -> Links:
    """Find the rails and judge each. ``before``: the indexes of the last launch, empty where there was none."""
    found = find(head, peers, wish.master_addr)
    if not found.rails:
        return Links(findings=found.findings)
    limit = len(found.rails) if isinstance(wish.rails, str) else wish.rails
    kept, findings = _kept(found.rails[:limit], wish)
    links = Links(kept)
    facts = (head, *(peer.facts for peer in peers))
    if limit > 1:
        findings += _missing_twins(found.rails, facts)
    for node in facts if wish.gid == "each" else ():  # where one index is taken, other ones were judged rail by rail
        findings += indexes_differ(links.ends(node.name), node)
    findings += moved(links.indexes(), before, {node.name: node.label for node in facts})
    if wish.rdma and not any(end.rdma for rail in kept for end in rail.ends):
        findings.append(_no_rdma(head))
    return replace(links, findings=(*found.findings, *findings))


def _kept(rails: Sequence[Rail], wish: Wish) -> tuple[tuple[Rail, ...], list[Finding]]:
    """The rails that a launch would use, and what is wrong with any."""
    kept: list[Rail] = []
    findings: list[Finding] = []
    for rail in rails:
        troubles = [*_rail_troubles(rail, wish), *(_droppable(rail, wish, one) for one in not_taken(rail, kept, wish.gid))]
        findings += troubles
        if rail.up and not any(one.action is Action.DROP_RAIL for one in troubles):
            kept.append(rail)
    return tuple(kept), findings


def probe_findings(links: Links, probed: Iterable[Probed], wish: Wish) -> Links:
    """The links after full-size probes: a rail whose path does not carry them is refused, or dropped under "auto"."""
    probed = tuple(probed)
    numbered = {rail.number: rail for rail in links.rails}
    bad = [one for one in probed if one.outcome != "ok" and one.rail in numbered]
    findings = [_probe_finding(numbered[one.rail], one, wish) for one in bad]
    dropped = {one.rail for one, finding in zip(bad, findings, strict=True) if finding.action is Action.DROP_RAIL}
    rails = tuple(rail for rail in links.rails if rail.number not in dropped)
    return Links(rails, (*links.findings, *findings), proven=bool(probed))


def _rail_troubles(rail: Rail, wish: Wish) -> Iterator[Finding]:
    if not rail.up:
        yield _down(rail)
        return
    if len({end.netdev.mtu for end in rail.ends}) > 1:
        yield _droppable(rail, wish, _mtu_differs(rail))
    for end in rail.ends:
        if end.rdma and not end.gid:
            yield _droppable(rail, wish, no_gid(rail, end))
        yield from _low_mtu(end)


def _droppable(rail: Rail, wish: Wish, finding: Finding) -> Finding:
    """Under ``rails = "auto"`` a bad rail that is not the first is left out, and that is said."""
    if wish.rails != "auto" or rail.number == 0:
        return finding
    means = f"{rail.name} is left out, as rails = auto allows"
    return replace(finding, level=Level.WARNING, action=Action.DROP_RAIL, means=means)


def _down(rail: Rail) -> Finding:
    end = next(end for end in rail.ends if not end.up)
    found = f"{end.node}: {end.netdev.name} ({end.address}) of {rail.name} is down"
    do, command = "look at the cable and the port", f"ip link show {end.netdev.name}"
    if rail.number == 0:
        return error("link_down", end.node, found, "the ranks cannot meet", do, command)
    return warning("rail_down", end.node, found, "the gang runs on the rails that are left, with less bandwidth", do, command)


def _mtu_differs(rail: Rail) -> Finding:
    ends = ", ".join(f"{end.netdev.name} of {end.node} {end.netdev.mtu}" for end in rail.ends)
    most = max(end.netdev.mtu for end in rail.ends)
    low = min(rail.ends, key=lambda end: end.netdev.mtu)
    return error(
        "mtu_differs",
        low.node,
        f"MTU differs on {rail.name}: {ends}",
        "small messages pass and large transfers hang",
        f"set {most} on {low.node} ({low.netdev.name}), in /etc/netplan too",
        f"sudo ip link set {low.netdev.name} mtu {most}",
    )


def _low_mtu(end: End) -> Iterator[Finding]:
    if end.rdma is None or end.active_mtu is None:
        return
    fits = fitting_mtu(end.netdev.mtu)
    if end.active_mtu < fits:
        yield warning(
            "roce_mtu_low",
            end.node,
            f"{end.node}: {end.rdma.name} runs RoCE with {end.active_mtu} bytes, and MTU {end.netdev.mtu} carries {fits}",
            "prefill is up to 40% slower",
            "take the port down and up again after the MTU was set",
            f"sudo ip link set {end.netdev.name} down && sudo ip link set {end.netdev.name} up",
        )
    elif end.active_mtu < PATH_MTUS[0]:
        yield warning(
            "roce_mtu_low",
            end.node,
            f"{end.node}: {end.rdma.name} runs RoCE with {end.active_mtu} bytes, as MTU {end.netdev.mtu} carries no more",
            "prefill is up to 40% slower than with 4096",
            "set MTU 9000 on both ends, in /etc/netplan too",
            f"sudo ip link set {end.netdev.name} mtu 9000",
        )


def _missing_twins(rails: Sequence[Rail], nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    """PCIe twins of devices in use that are on no rail of their node. Of a bad one its other end is not to blame."""
    found: list[Finding] = []
    blamed: list[Finding] = []
    for node in nodes:
        used = [end.rdma for rail in rails for end in rail.ends if end.node == node.name and end.rdma]
        for device in used:
            for twin in node.rdma:
                if twin.twin_of(device) and twin not in used:
                    netdev = next((one for one in node.netdevs if one.name == twin.netdev), None)
                    up = twin.active and netdev is not None and netdev.up
                    found.append(_missing_twin(node, device, twin, up=up))
                    if netdev is None or not up or not netdev.networks():
                        blamed.append(found[-1])
    return iter(blamed or found)


def _missing_twin(node: NodeFacts, device: RdmaDevice, twin: RdmaDevice, *, up: bool) -> Finding:
    state = "has no address that its other end shares" if up else "is down"
    return warning(
        "rail_down",
        node.name,
        f"{node.label}: {twin.name} ({twin.netdev}), the PCIe twin of {device.name}, {state}",
        "half of that port's bandwidth is missing",
        f"give {twin.netdev} an address in a network of its own on both nodes (/etc/netplan), and bring it up",
        f"ip addr show {twin.netdev}",
    )


def _no_rdma(head: NodeFacts) -> Finding:
    return error(
        "no_rdma_device",
        head.name,
        f"{head.label}: no RDMA device is on the link",
        "the target's ranks speak RDMA only",
        "load the driver, and look for the devices",
        "ls /sys/class/infiniband",
    )


def _probe_finding(rail: Rail, probed: Probed, wish: Wish) -> Finding:
    own, there = rail.ends[0], next(end for end in rail.ends if end.node == probed.node)
    found = error(
        "path_not_full_size",
        probed.node,
        f"the path of {rail.name} ({own.netdev.name} {own.address} to {there.netdev.name} {there.address}) does not carry"
        f" {probed.size_bytes} bytes unfragmented both ways ({probed.outcome})",
        "large transfers hang",
        "set the same MTU on every port and switch between them",
        f"ping -M do -s {probed.size_bytes} -I {own.address} {there.address}",
    )
    return _droppable(rail, wish, found)
