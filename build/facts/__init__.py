"""Readers of what a system prints: pure, from text or a proc tree to typed figures, None for what is not said."""

from __future__ import annotations

from build.facts.containers import ContainerEnd, container_end
from build.facts.disks import FileSystem, Place, file_systems, places
from build.facts.docker import Container, DockerInfo, Volume, containers, docker_info, layers, volume
from build.facts.gpu import ClockSection, ComputeApp, Gpu, clock_sections, compute_apps, gpus
from build.facts.links import Netdev, Route, netdevs, route, routes
from build.facts.memory import CmaFinding, Meminfo, Pressure, cma_finding, meminfo, pressure, read_meminfo, read_pressure
from build.facts.rdma import Gid, RdmaDevice, active_mtus, fitting_mtu, rdma_devices
from build.facts.sockets import udp_ports
from build.facts.system import System, system

__all__ = [
    "ClockSection",
    "CmaFinding",
    "ComputeApp",
    "Container",
    "ContainerEnd",
    "DockerInfo",
    "FileSystem",
    "Gid",
    "Gpu",
    "Meminfo",
    "Netdev",
    "Place",
    "Pressure",
    "RdmaDevice",
    "Route",
    "System",
    "Volume",
    "active_mtus",
    "clock_sections",
    "cma_finding",
    "compute_apps",
    "container_end",
    "containers",
    "docker_info",
    "file_systems",
    "fitting_mtu",
    "gpus",
    "layers",
    "meminfo",
    "netdevs",
    "places",
    "pressure",
    "rdma_devices",
    "read_meminfo",
    "read_pressure",
    "route",
    "routes",
    "system",
    "udp_ports",
    "volume",
]
