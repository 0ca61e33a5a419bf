"""What is wrong with the rails, and what follows for each node's own settings. Pure.

A rail that is bad is refused, or dropped with a word where ``rails = "auto"`` allows it and it is not the first. A rail that
is down is left out. Where one GID index does not fit every device of a node none is passed: NCCL gets the RoCE version and a
range of addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network

from build.facts import RdmaDevice, fitting_mtu
from build.facts.rdma import PATH_MTUS, V2
from supervisor.doctor.facts import NodeFacts
from supervisor.doctor.findings import Action, Finding, Level, error, note, warning
from supervisor.doctor.rails import End, Peer, Rail, covering, find
from supervisor.engine.contract import NodeLocal

ENGINE_INDEX = 5  # what early builds of the engine's own RDMA always take
Indexes = Mapping[str, Mapping[str, int]]  # node -> RDMA device -> GID index


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
        findings += _indexes(links.ends(node.name), node)
    findings += _moved(links.indexes(), before, {node.name: node.label for node in facts})
    if wish.rdma and not any(end.rdma for rail in kept for end in rail.ends):
        findings.append(_no_rdma(head))
    return replace(links, findings=(*found.findings, *findings))


def _kept(rails: Sequence[Rail], wish: Wish) -> tuple[tuple[Rail, ...], list[Finding]]:
    """The rails that a launch would use, and what is wrong with any."""
    kept: list[Rail] = []
    findings: list[Finding] = []
    for rail in rails:
        troubles = [*_rail_troubles(rail, wish), *_index_troubles(rail, kept, wish)]
        findings += troubles
        if rail.up and not any(one.action is Action.DROP_RAIL for one in troubles):
            kept.append(rail)
    return tuple(kept), findings


def node_local(ends: Iterable[End]) -> NodeLocal:
    """Settings of a node from its ends of the rails in use, the first rail's first."""
    ends = tuple(ends)
    with_rdma = [end for end in ends if end.rdma]
    indexes = {end.gid.index for end in with_rdma if end.gid}
    one = len(indexes) == 1 and all(end.gid for end in with_rdma)
    return NodeLocal(
        rdma_devices=tuple(end.rdma.name for end in with_rdma if end.rdma),
        gid_index=indexes.pop() if one else None,
        address_range="" if one else covering(end.address for end in with_rdma),
        socket_ifname=ends[0].netdev.name if ends else "",
    )


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
            yield _droppable(rail, wish, _no_gid(rail, end))
        yield from _low_mtu(end)


def _index_troubles(rail: Rail, before: Sequence[Rail], wish: Wish) -> Iterator[Finding]:
    """Ends whose GID index the engine's own RDMA cannot be told, given the rails that are used already."""
    for end in rail.ends if rail.up and wish.gid != "each" else ():
        if end.rdma is None or end.gid is None:
            continue
        others = (one for other in before for one in other.ends if one.node == end.node)
        first = next((one.gid.index for one in others if one.gid), end.gid.index)
        takes = ENGINE_INDEX if wish.gid == "fixed" else first
        if end.gid.index != takes:
            yield _droppable(rail, wish, _index_not_taken(rail, end, takes, fixed=wish.gid == "fixed"))


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


def _no_gid(rail: Rail, end: End) -> Finding:
    device = end.rdma.name if end.rdma else ""
    return error(
        "no_v2_gid",
        end.node,
        f"{end.node}: {device} has no RoCE v2 GID of {end.address} ({end.netdev.name}, {rail.name})",
        "RDMA cannot use that device",
        "take the port down and up again, then look at the table",
        f"sudo ip link set {end.netdev.name} down && sudo ip link set {end.netdev.name} up && show_gids {device}",
    )


def _index_not_taken(rail: Rail, end: End, takes: int, *, fixed: bool) -> Finding:
    assert end.rdma is not None
    assert end.gid is not None
    why = "this engine always takes that index" if fixed else "this engine takes one index for all devices of a node"
    return error(
        "gid_index_not_taken",
        end.node,
        f"{end.node}: the RoCE v2 GID of {end.address} is at index {end.gid.index} of {end.rdma.name} ({rail.name}),"
        f" and the engine would use {takes}",
        f"{why}, so its own RDMA would use another address",
        "take the ports of that node down and up again, set rails = 1 or auto, or engine_gid = each if the engine finds them",
        f"show_gids {end.rdma.name}",
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


def _indexes(ends: Sequence[End], node: NodeFacts) -> Iterator[Finding]:
    """Notes where no single index fits, and where NCCL would meet another address first."""
    local = node_local(ends)
    if not local.rdma_devices or local.gid_index is not None or any(end.rdma and not end.gid for end in ends):
        return
    means = f"no index is passed; NCCL gets RoCE v2 and the range {local.address_range}"
    fronts = [(end, address) for end in ends for address in _in_front(end, IPv4Network(local.address_range))]
    for end, address in fronts:
        yield note(
            "gid_address_in_front",
            node.name,
            f"{node.label}: {end.netdev.name} has {address} beside {end.address}, at a lower GID index",
            f"{means}, and NCCL may take that address on this device",
            "remove it if it is an old one",
            f"sudo ip addr del {address}/{end.inet.network.prefixlen} dev {end.netdev.name}",
        )
    if not fronts:
        shown = ", ".join(f"{end.rdma.name} {end.gid.index}" for end in ends if end.rdma and end.gid)
        found = f"{node.label}: the GID index differs by device ({shown})"
        yield note("gid_index_differs", node.name, found, means, "nothing to do")


def _in_front(end: End, reach: IPv4Network) -> tuple[str, ...]:
    """Other addresses of the device that the range holds too, at lower indexes than the right one."""
    gids = end.rdma.gids if end.rdma and end.gid else ()
    last = end.gid.index if end.gid else 0
    others = (g.address for g in gids if g.version == V2 and g.index < last and g.address not in {"", end.address})
    return tuple(dict.fromkeys(address for address in others if IPv4Address(address) in reach))


def _moved(now: Indexes, before: Indexes, labels: Mapping[str, str]) -> Iterator[Finding]:
    for node, devices in now.items():
        for device, index in devices.items():
            old = before.get(node, {}).get(device)
            if old is not None and old != index:
                yield note(
                    "gid_index_moved",
                    node,
                    f"{labels.get(node, node)}: the GID index of {device} moved from {old} to {index} since the last launch",
                    "the new one is used",
                    "nothing to do",
                    action=Action.USE_NEW,
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
