"""RDMA devices as ``/sys/class/infiniband`` shows them and ``ibv_devinfo`` prints them.

A RoCE port has a table of GIDs; which index holds which address differs by device and moves over time. Only an entry of type
"RoCE v2" whose GID is the mapped IPv4 address in use is of any use to a rank.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address

V2 = "RoCE v2"
# Bytes that RoCE v2 adds round a payload: IPv4 20, UDP 8, BTH 12, RETH 16, ICRC 4, and room for an atomic's header.
ROCE_OVERHEAD_BYTES = 64
PATH_MTUS = (4096, 2048, 1024, 512, 256)


@dataclass(frozen=True, slots=True)
class Gid:
    """One entry of a port's table. ``address`` is the IPv4 address that it maps, "" for link-local and IPv6 ones."""

    index: int
    address: str
    version: str
    netdev: str


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """One device's first port. ``pci`` is the function's address, "" where it is not shown."""

    name: str
    pci: str
    state: str
    rate: str
    gids: tuple[Gid, ...]

    @property
    def active(self) -> bool:
        """Whether its port is up."""
        return self.state.endswith("ACTIVE")

    @property
    def netdev(self) -> str:
        """The network device on the same port, as its GIDs name it; "" where none does."""
        return next((gid.netdev for gid in self.gids if gid.netdev), "")

    def gid_of(self, address: str) -> Gid | None:
        """The RoCE v2 entry of exactly this IPv4 address."""
        return next((gid for gid in self.gids if gid.version == V2 and gid.address == address), None)

    def twin_of(self, other: RdmaDevice) -> bool:
        """Whether both are the same port behind two PCIe roots: the same function in another PCI domain.

        Without PCI addresses the names tell: ``rocep1s0f1`` and ``roceP2p1s0f1``.
        """
        if self.pci and other.pci:
            own, theirs = self.pci.partition(":"), other.pci.partition(":")
            return own[0] != theirs[0] and own[2] == theirs[2]
        return self.name != other.name and _bare(self.name) == _bare(other.name)


def rdma_devices(text: str) -> tuple[RdmaDevice, ...]:
    """Read lines ``/sys/class/infiniband/DEVICE/FILE:CONTENT`` and ``…/device -> LINK``, in any order; other lines are skipped.

    Devices come in the order of their PCI addresses, so that the first twin is the one in the lower domain.
    """
    tables: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        found = re.match(r"(?:.*/class/infiniband/)?([^/\s:]+)/(\S+?)(?: -> |:)(.*)$", line.strip())
        if found:
            tables.setdefault(found[1], {})[found[2]] = found[3].strip()
    devices = (_device(name, table) for name, table in tables.items())
    return tuple(sorted(devices, key=lambda one: (one.pci or "~", _domain(one.name), one.name)))


def active_mtus(text: str) -> Mapping[str, int]:
    """Read ``ibv_devinfo``: device to its port's active MTU in bytes."""
    found: dict[str, int] = {}
    device = ""
    for line in text.splitlines():
        if match := re.match(r"hca_id:\s*(\S+)", line.strip()):
            device = match[1]
        elif (match := re.match(r"active_mtu:\s*(\d+)", line.strip())) and device:
            found.setdefault(device, int(match[1]))
    return found


def fitting_mtu(link_mtu: int) -> int:
    """The largest RoCE path MTU that packets of a link's MTU can carry."""
    return next((size for size in PATH_MTUS if size + ROCE_OVERHEAD_BYTES <= link_mtu), PATH_MTUS[-1])


def mapped(gid: str) -> str:
    """The IPv4 address that a GID maps; "" for any other GID."""
    try:
        found = IPv6Address(gid.strip()).ipv4_mapped
    except ValueError:
        return ""
    return str(found) if found else ""


def _device(name: str, table: Mapping[str, str]) -> RdmaDevice:
    port = {key.removeprefix("ports/1/"): value for key, value in table.items()}
    indexes = sorted(int(key.removeprefix("gids/")) for key in port if re.fullmatch(r"gids/\d+", key))
    gids = (
        Gid(at, mapped(port[f"gids/{at}"]), port.get(f"gid_attrs/types/{at}", ""), port.get(f"gid_attrs/ndevs/{at}", ""))
        for at in indexes
    )
    pci = table.get("device", "").rstrip("/").rpartition("/")[2]
    used = tuple(gid for gid in gids if gid.version)  # an empty entry has no readable type
    return RdmaDevice(name, pci, port.get("state", ""), port.get("rate", ""), used)


def _domain(name: str) -> int:
    match = re.search(r"P(\d+)p", name)
    return int(match[1]) if match else 0


def _bare(name: str) -> str:
    return re.sub(r"P\d+p", "p", name)
