"""One node's facts out of what was collected there. Pure; a section that is missing or cannot be read leaves its fact empty."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

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

    def get(key: str) -> Section:
        return found.get(key, NOTHING)

    said = system(get("system.txt").text, get("end.txt").text.strip())
    ended_s = said.time_end_s
    stored = get("store.txt").text.splitlines()
    apps = get("nvidia-smi-apps.csv").text
    return NodeFacts(
        name=name,
        system=said,
        memory=_or_none(meminfo, get("meminfo").text),
        netdevs=_or_none(netdevs, get("ip-addr.json").text) or (),
        routes=routes(get("ip-route.jsonl").text.splitlines()),
        rdma=rdma_devices(get("infiniband.txt").text),
        active_mtus=active_mtus(get("ibv_devinfo.txt").text),
        gpus=gpus(get("nvidia-smi.csv").text),
        clocks=clock_sections(get("nvidia-smi-clock.txt").text),
        apps=compute_apps("\n".join(line for line in apps.splitlines() if not line.startswith("@owner "))),
        owners=tuple(_owners(apps.splitlines())),
        has_smi=get("nvidia-smi.csv").status == 0,
        docker=docker_info(get("docker-info.json").text),
        docker_said=_docker_said(found.get("docker-info.json")),
        containers=containers(get("docker-ps.jsonl").text),
        volume=volume(get("docker-volume.json").text),
        images=_or_none(layers, get("docker-images.json").text) or frozenset(),
        places=places(get("df.txt").text.splitlines()),
        exports=get("exports").text,
        udp_ports=udp_ports(get("udp.txt").text),
        present=frozenset(line for line in stored if " " not in line),
        tool=next((line.removeprefix("tool ") for line in stored if line.startswith("tool ")), ""),
        ping="ping yes" in stored,
        skew_s=None if ended_s is None or read_at_s is None else ended_s - read_at_s,
    )


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
