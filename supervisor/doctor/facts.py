"""One node's facts out of what was collected there. Pure; a section that is missing or cannot be read leaves its fact empty."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from build.facts import (
    ClockSection,
    ComputeApp,
    Container,
    DockerInfo,
    Gpu,
    Meminfo,
    Netdev,
    Place,
    RdmaDevice,
    Route,
    System,
    Volume,
    active_mtus,
    clock_sections,
    compute_apps,
    containers,
    docker_info,
    gpus,
    layers,
    meminfo,
    netdevs,
    places,
    rdma_devices,
    routes,
    system,
    udp_ports,
    volume,
)
from supervisor.doctor.script import Section

T = TypeVar("T")
Text = Callable[[str], str]  # a section's content by its name
NOTHING = Section("", 127)


@dataclass(frozen=True, slots=True)
class GpuOwner:
    """Whose a GPU process is, as its node tells: its container's id and its rank's mark, "" where it has none."""

    pid: int
    container: str
    rank: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a node could not be read at all: the class of the error, its one line, and what ssh was told to reach."""

    kind: str
    message: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of one node. ``skew_s``: its clock less the head's, None where not measured.

    ``tool`` is the node tool's path below its store, "" where it is not there; ``ping``: it has one that forbids fragments.
    ``images`` are the layers' diff ids of each image that was asked about and is there.
    ``docker`` is None where the daemon did not answer; ``docker_said`` is then what was said instead.
    """

    name: str
    trouble: Trouble | None = None
    system: System = field(default_factory=lambda: system(""))
    memory: Meminfo | None = None
    netdevs: tuple[Netdev, ...] = ()
    routes: tuple[Route, ...] = ()
    rdma: tuple[RdmaDevice, ...] = ()
    active_mtus: Mapping[str, int] = field(default_factory=dict)
    gpus: tuple[Gpu, ...] = ()
    clocks: tuple[ClockSection, ...] = ()
    apps: tuple[ComputeApp, ...] = ()
    owners: tuple[GpuOwner, ...] = ()
    has_smi: bool = False
    docker: DockerInfo | None = None
    docker_said: str = ""
    containers: tuple[Container, ...] = ()
    volume: Volume | None = None
    images: frozenset[tuple[str, ...]] = frozenset()
    places: tuple[Place, ...] = ()
    exports: str = ""
    udp_ports: frozenset[int] = frozenset()
    present: frozenset[str] = frozenset()
    tool: str = ""
    ping: bool = False
    skew_s: float | None = None

    @property
    def label(self) -> str:
        """Its name for a person: the role, and what the host calls itself."""
        own = self.system.hostname
        return f"{self.name} ({own})" if own and own != self.name else self.name


def read(name: str, found: Mapping[str, Section], read_at_s: float | None = None) -> NodeFacts:
    """The facts of one node. ``read_at_s`` is the head's clock when the node had answered."""

    def text(key: str) -> str:
        return found.get(key, NOTHING).text

    said = system(text("system.txt"), text("end.txt").strip())
    ended_s = said.time_end_s
    return NodeFacts(
        name=name,
        system=said,
        memory=_or_none(meminfo, text("meminfo")),
        has_smi=found.get("nvidia-smi.csv", NOTHING).status == 0,
        docker_said=_docker_said(found.get("docker-info.json")),
        skew_s=None if ended_s is None or read_at_s is None else ended_s - read_at_s,
        exports=text("exports"),
        udp_ports=udp_ports(text("udp.txt")),
        **_ports(text),
        **_gpus(text),
        **_docker(text),
        **_disks(text),
    )


def _ports(text: Text) -> dict[str, Any]:
    """Network devices, ways to the peers, RDMA devices."""
    return {
        "netdevs": _or_none(netdevs, text("ip-addr.json")) or (),
        "routes": routes(text("ip-route.jsonl").splitlines()),
        "rdma": rdma_devices(text("infiniband.txt")),
        "active_mtus": active_mtus(text("ibv_devinfo.txt")),
    }


def _gpus(text: Text) -> dict[str, Any]:
    """GPUs, their clocks, and who computes on them."""
    apps = text("nvidia-smi-apps.csv").splitlines()
    return {
        "gpus": gpus(text("nvidia-smi.csv")),
        "clocks": clock_sections(text("nvidia-smi-clock.txt")),
        "apps": compute_apps("\n".join(line for line in apps if not line.startswith("@owner "))),
        "owners": tuple(_owners(apps)),
    }


def _docker(text: Text) -> dict[str, Any]:
    """What the daemon says of itself, its containers, a volume and images."""
    return {
        "docker": docker_info(text("docker-info.json")),
        "containers": containers(text("docker-ps.jsonl")),
        "volume": volume(text("docker-volume.json")),
        "images": _or_none(layers, text("docker-images.json")) or frozenset(),
    }


def _disks(text: Text) -> dict[str, Any]:
    """File systems, what the store holds, and what can send full-size packets."""
    stored = text("store.txt").splitlines()
    return {
        "places": places(text("df.txt").splitlines()),
        "present": frozenset(line for line in stored if " " not in line),
        "tool": next((line.removeprefix("tool ") for line in stored if line.startswith("tool ")), ""),
        "ping": "ping yes" in stored,
    }


def _or_none(reader: Callable[[str], T], text: str) -> T | None:
    try:
        return reader(text)
    except ValueError:
        return None


def _owners(lines: Iterable[str]) -> Iterable[GpuOwner]:
    for line in lines:
        words = line.split()
        if len(words) == 4 and words[0] == "@owner" and words[1].isdecimal():
            container, rank = (word if word != "-" else "" for word in words[2:])
            yield GpuOwner(int(words[1]), container, rank)


def _docker_said(section: Section | None) -> str:
    """Why the daemon did not answer, in one line; "" where nobody asked."""
    if section is None:
        return ""
    if section.status == 124:
        return "it takes the connection and does not answer"
    lines = [line.strip() for line in section.text.splitlines() if line.strip() and not line.startswith(("{", "WARNING"))]
    return lines[-1] if lines else ""
