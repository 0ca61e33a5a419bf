"""``nvidia-smi`` answers as text. On GB10 the GPU shares the host's memory and every memory field is a placeholder."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Gpu:
    """One row of ``--query-gpu``. None is what the driver does not say; ``fields`` has every column under its bare name."""

    index: int | None
    uuid: str
    name: str
    pci_bus_id: str
    driver: str
    temperature_c: float | None
    power_w: float | None
    sm_mhz: float | None
    sm_max_mhz: float | None
    utilization_percent: float | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    memory_free_bytes: int | None
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ComputeApp:
    """A process that computes on a GPU."""

    pid: int
    name: str
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class ClockSection:
    """Clocks of one GPU in MHz. ``sm_mhz`` is what it runs at now; ``sm_max_mhz`` is what the chip could do, capped or not."""

    pci_bus_id: str
    sm_mhz: float | None
    sm_max_mhz: float | None


def gpus(text: str) -> tuple[Gpu, ...]:
    """Read ``--query-gpu=… --format=csv`` with its header; columns in any order, units kept or left out."""
    return tuple(_gpu(row) for row in _rows(text))


def compute_apps(text: str) -> tuple[ComputeApp, ...]:
    """Read ``--query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv``."""
    return tuple(
        ComputeApp(int(row["pid"]), row.get("process_name", ""), _mib(row.get("used_gpu_memory")))
        for row in _rows(text)
        if row.get("pid", "").isdecimal()
    )


def clock_sections(text: str) -> tuple[ClockSection, ...]:
    """Read ``nvidia-smi -q -d CLOCK``: the sections Clocks (in use) and Max Clocks of every GPU."""
    found: list[ClockSection] = []
    for block in re.split(r"^GPU (?=\S)", text, flags=re.MULTILINE)[1:]:
        sections = _sections(block)
        found.append(
            ClockSection(
                _bus(block.split("\n", 1)[0]),
                _figure(sections.get("Clocks", {}).get("SM")),
                _figure(sections.get("Max Clocks", {}).get("SM")),
            )
        )
    return tuple(found)


def _sections(block: str) -> dict[str, dict[str, str]]:
    sections: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in block.splitlines()[1:]:
        key, colon, value = line.partition(" : ")
        if colon:
            current[key.strip()] = value.strip()
        elif line.strip():
            current = sections.setdefault(line.strip(), {})
    return sections


def _rows(text: str) -> list[dict[str, str]]:
    """CSV rows by bare column name: ``power.draw [W]`` is ``power.draw``."""
    lines = [line for line in text.splitlines() if line.strip()]
    table = list(csv.reader(lines, skipinitialspace=True))
    if not table:
        return []
    names = [re.sub(r"\s*\[[^\]]*\]$", "", name.strip()) for name in table[0]]
    return [dict(zip(names, (cell.strip() for cell in row), strict=False)) for row in table[1:] if len(row) == len(names)]


def _gpu(row: dict[str, str]) -> Gpu:
    index = row.get("index", "")
    return Gpu(
        int(index) if index.isdecimal() else None,
        row.get("uuid", ""),
        row.get("name", ""),
        _bus(row.get("pci.bus_id", "")),
        row.get("driver_version", ""),
        _figure(row.get("temperature.gpu")),
        _figure(row.get("power.draw")),
        _figure(row.get("clocks.current.sm")),
        _figure(row.get("clocks.max.sm")),
        _figure(row.get("utilization.gpu")),
        _mib(row.get("memory.total")),
        _mib(row.get("memory.used")),
        _mib(row.get("memory.free")),
        MappingProxyType(row),
    )


def _figure(cell: str | None) -> float | None:
    """A number with or without its unit; every placeholder ([N/A], [Not Supported], Not Found, ERR!) is None, never 0."""
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)(?: ?[A-Za-z%/]+)?", cell or "")
    return float(match[1]) if match else None


def _mib(cell: str | None) -> int | None:
    figure = _figure(cell)
    return None if figure is None else int(figure * (1 << 20))


def _bus(raw: str) -> str:
    """A PCI address as the kernel writes it: nvidia-smi pads the domain to eight digits and writes capitals."""
    match = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", raw.strip().lower())
    return f"{int(match[1], 16):04x}:{match[2]}" if match else raw.strip().lower()
