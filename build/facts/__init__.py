"""Readers of what a system prints: pure, from text or a proc tree to typed figures, None for what is not said."""

from __future__ import annotations

from build.facts.containers import ContainerEnd, container_end
from build.facts.disks import FileSystem, file_systems
from build.facts.gpu import ClockSection, ComputeApp, Gpu, clock_sections, compute_apps, gpus
from build.facts.memory import CmaFinding, Meminfo, Pressure, cma_finding, meminfo, pressure, read_meminfo, read_pressure

__all__ = [
    "ClockSection",
    "CmaFinding",
    "ComputeApp",
    "ContainerEnd",
    "FileSystem",
    "Gpu",
    "Meminfo",
    "Pressure",
    "clock_sections",
    "cma_finding",
    "compute_apps",
    "container_end",
    "file_systems",
    "gpus",
    "meminfo",
    "pressure",
    "read_meminfo",
    "read_pressure",
]
