"""What a testbed is made of, as data: hosts, networks, addresses, folders. Nothing here touches the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("/var/tmp/twinfold-testbed")
SIZES = (2, 4)


@dataclass(frozen=True, slots=True)
class Network:
    """One cable (or switch) between the hosts. ``device`` is its name on every host, ``roce`` the RDMA device or ""."""

    name: str
    device: str
    roce: str
    prefix: str  # the first three octets; a host's number is the fourth
    mtu: int

    def address(self, number: int) -> str:
        """The IPv4 address of host ``number`` (from 1)."""
        return f"{self.prefix}.{number}"


# Device names as on a DGX Spark: one port with two PCIe twins, and a LAN port whose name starts like the second twin's.
RAIL0 = Network("rail0", "enp1s0f1np1", "rocep1s0f1", "192.0.2", 9000)
RAIL1 = Network("rail1", "enP2p1s0f1np1", "roceP2p1s0f1", "198.51.100", 9000)
LAN = Network("lan", "enP7s7", "", "203.0.113", 1500)
NETWORKS = (RAIL0, RAIL1, LAN)
IPV6_PREFIX = "2001:db8::"  # on rail0


@dataclass(frozen=True, slots=True)
class HostPlan:
    """One host: its name (also its network namespace's) and everything of its own under ``folder``."""

    name: str
    number: int
    folder: Path

    @property
    def home(self) -> Path:
        """Home folder of its accounts."""
        return self.folder / "home"

    @property
    def proc(self) -> Path:
        """The proc tree that guard and readers are pointed at, to rewrite."""
        return self.folder / "proc"

    @property
    def sys(self) -> Path:
        """The sysfs tree with the RoCE devices, to rewrite."""
        return self.folder / "sys"

    @property
    def gpu(self) -> Path:
        """Files that this host's ``nvidia-smi`` prints."""
        return self.folder / "gpu"

    @property
    def docker_socket(self) -> Path:
        """The socket of its dockerd."""
        return self.folder / "docker.sock"

    @property
    def path(self) -> str:
        """PATH on this host: its own ``nvidia-smi`` comes first."""
        return f"{self.folder / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    def address(self, network: Network = RAIL0) -> str:
        """Its IPv4 address on a network."""
        return network.address(self.number)


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole testbed. ``prefix`` names hosts and namespaces, so that a second one elsewhere can stand beside the first."""

    folder: Path = FOLDER
    size: int = 2
    prefix: str = "spark"

    @classmethod
    def here(cls, environ: Mapping[str, str], size: int = 2) -> Layout:
        """The usual one, unless TWINFOLD_TESTBED_DIR and TWINFOLD_TESTBED_PREFIX put it beside another."""
        return cls(Path(environ.get("TWINFOLD_TESTBED_DIR", FOLDER)), size, environ.get("TWINFOLD_TESTBED_PREFIX", "spark"))

    @property
    def hosts(self) -> tuple[HostPlan, ...]:
        """The hosts in order; the first is the head."""
        names = (f"{self.prefix}-{letter}" for letter in "abcd"[: self.size])
        return tuple(HostPlan(name, number, self.folder / name) for number, name in enumerate(names, 1))

    @property
    def switch(self) -> str:
        """The namespace that holds the bridges, where more than two hosts share a network."""
        return f"{self.prefix}-switch"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Every network namespace of this testbed, whatever its size was."""
        return (*(f"{self.prefix}-{letter}" for letter in "abcd"), self.switch)
