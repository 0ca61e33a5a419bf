"""RoCE v2 GID indexes, one for each device and address, never the same for long: what a launch passes, and what is wrong. Pure.

Where one index does not fit every device of a node none is passed: NCCL gets the RoCE version and a range of addresses, and the
engine's own RDMA finds its indexes by itself, or cannot be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network

from build.facts.rdma import V2
from supervisor.doctor.facts import NodeFacts
from supervisor.doctor.findings import Action, Finding, error, note
from supervisor.doctor.rails import End, Rail, covering
from supervisor.engine.contract import NodeLocal

ENGINE_INDEX = 5  # what early builds of the engine's own RDMA always take
Indexes = Mapping[str, Mapping[str, int]]  # node -> RDMA device -> GID index


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


def no_gid(rail: Rail, end: End) -> Finding:
    """A needed device has no RoCE v2 entry of its own address."""
    device = end.rdma.name if end.rdma else ""
    return error(
        "no_v2_gid",
        end.node,
        f"{end.node}: {device} has no RoCE v2 GID of {end.address} ({end.netdev.name}, {rail.name})",
        "RDMA cannot use that device",
        "take the port down and up again, then look at the table",
        f"sudo ip link set {end.netdev.name} down && sudo ip link set {end.netdev.name} up && show_gids {device}",
    )


def not_taken(rail: Rail, before: Sequence[Rail], takes: str) -> Iterator[Finding]:
    """Ends whose GID index the engine's own RDMA cannot be told, given the rails that are used already.

    ``takes``: "one" index for all devices of a node, "each" of them, or "fixed".
    """
    for end in rail.ends if rail.up and takes != "each" else ():
        if end.rdma is None or end.gid is None:
            continue
        others = (one for other in before for one in other.ends if one.node == end.node)
        first = next((one.gid.index for one in others if one.gid), end.gid.index)
        wanted = ENGINE_INDEX if takes == "fixed" else first
        if end.gid.index != wanted:
            yield _not_taken(rail, end, wanted, fixed=takes == "fixed")


def _not_taken(rail: Rail, end: End, wanted: int, *, fixed: bool) -> Finding:
    assert end.rdma is not None
    assert end.gid is not None
    why = "this engine always takes that index" if fixed else "this engine takes one index for all devices of a node"
    return error(
        "gid_index_not_taken",
        end.node,
        f"{end.node}: the RoCE v2 GID of {end.address} is at index {end.gid.index} of {end.rdma.name} ({rail.name}),"
        f" and the engine would use {wanted}",
        f"{why}, so its own RDMA would use another address",
        "take the ports of that node down and up again, set rails = 1 or auto, or engine_gid = each if the engine finds them",
        f"show_gids {end.rdma.name}",
    )


def indexes_differ(ends: Sequence[End], node: NodeFacts) -> Iterator[Finding]:
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


def moved(now: Indexes, before: Indexes, labels: Mapping[str, str]) -> Iterator[Finding]:
    """Notes of indexes that are others than at the last launch."""
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
