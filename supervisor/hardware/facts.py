"""What the program of :mod:`supervisor.hardware.script` printed, as figures. Pure.

None is what a node does not say, never 0. Formats: the kernel's Documentation/ABI (sysfs-class-net, sysfs-class-infiniband),
Documentation/admin-guide/iostats.rst, and ``nvidia-smi --help-query-gpu``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from build.facts import Gpu, Pressure, gpus, pressure
from supervisor.hardware.script import THROTTLE

SECTOR_BYTES = 512
RDMA_WORD_BYTES = 4  # port_rcv_data and port_xmit_data count words of four bytes
# as `stat -f -c %T` names them
NETWORK_TYPES = frozenset({"nfs", "nfs4", "cifs", "smb", "smb2", "afs", "ceph", "lustre", "v9fs", "gpfs", "panfs"})
# Bits of nvmlClocksEventReasons*; idleness (bit 1) holds nothing down.
REASONS = {
    0x02: "clock setting",
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True)
class Port:
    """A network port, or an RDMA port under its device's name. ``received_bytes`` and ``sent_bytes`` are since boot.

    ``gid_index`` is that of an RDMA port's first RoCE v2 GID with an IPv4 address.
    """

    device: str
    up: bool
    mtu_bytes: int | None
    bytes_per_s: float | None
    received_bytes: int | None
    sent_bytes: int | None
    retransmits: int | None
    gid_index: int | None = None


@dataclass(frozen=True, slots=True)
class EngramDisk:
    """Where the Engram tables lie. ``device`` is "" where it is no disk of this node."""

    device: str
    on_network: bool
    reads: int | None
    read_bytes: int | None


@dataclass(frozen=True, slots=True)
class Hardware:
    """One reading of one node. ``gpus`` is None where there is no driver, or it does not answer (``gpu_failed``)."""

    gpus: tuple[Gpu, ...] | None
    gpu_failed: bool
    ports: tuple[Port, ...]
    disk_size_bytes: int | None
    disk_free_bytes: int | None
    engram: EngramDisk | None
    stalls: tuple[tuple[str, Pressure], ...]  # "cpu" and "io"


def read_hardware(text: str) -> Hardware:
    """Read one printing. ``ValueError`` where it was cut off."""
    sections = _sections(text)
    if ("end",) not in sections:
        raise ValueError("the reading of the hardware was cut off")
    store = _pairs(sections.get(("store",), ""))
    block, blocks, free = (_whole(store.get(name)) for name in ("block", "blocks", "free"))
    stalls = ((name, pressure(sections.get(("pressure", name), ""))) for name in ("cpu", "io"))
    failed = ("failed", "gpus") in sections
    return Hardware(
        gpus=gpus(sections[("gpus",)]) if ("gpus",) in sections and not failed else None,
        gpu_failed=failed,
        ports=tuple(_ports(sections)),
        disk_size_bytes=None if block is None or blocks is None else block * blocks,
        disk_free_bytes=None if block is None or free is None else block * free,
        engram=_engram(sections),
        stalls=tuple((name, stall) for name, stall in stalls if stall is not None),
    )


def throttles(gpu: Gpu) -> dict[str, bool] | None:
    """Each reason that can hold the clock down, and whether it does; None where the driver does not say."""
    cell = gpu.fields.get(THROTTLE, gpu.fields.get("clocks_event_reasons.active", ""))
    if not re.fullmatch(r"0x[0-9a-fA-F]+", cell):
        return None
    return {name: bool(int(cell, 16) & bit) for bit, name in REASONS.items()}


def _sections(text: str) -> dict[tuple[str, ...], str]:
    found: dict[tuple[str, ...], list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith("@@ "):
            current = found.setdefault(tuple(line[3:].split()), [])
        else:
            current.append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def _ports(sections: Mapping[tuple[str, ...], str]) -> list[Port]:
    found = []
    for name, text in sections.items():
        said = _pairs(text)
        if name[0] == "netdev" and len(name) == 2:
            found.append(_netdev(name[1], said))
        elif name[0] == "rdma" and len(name) == 3:
            found.append(_rdma(name[1] if name[2] == "1" else f"{name[1]}/{name[2]}", said))
    return found


def _netdev(device: str, said: Mapping[str, str]) -> Port:
    megabits = _whole(said.get("speed"))  # -1 where the driver does not know
    return Port(
        device,
        said.get("operstate") in {"up", "unknown"} and said.get("carrier", "1") == "1",
        _whole(said.get("mtu")),
        megabits * 125_000.0 if megabits is not None and megabits > 0 else None,
        _whole(said.get("statistics/rx_bytes")),
        _whole(said.get("statistics/tx_bytes")),
        None,
    )


def _rdma(device: str, said: Mapping[str, str]) -> Port:
    gigabits = re.match(r"([\d.]+) Gb/sec", said.get("rate", ""))
    received, sent = (_whole(said.get(f"counters/{name}")) for name in ("port_rcv_data", "port_xmit_data"))
    again = [_whole(said.get(f"hw_counters/{name}")) for name in ("packet_seq_err", "local_ack_timeout_err")]
    counted = [count for count in again if count is not None]
    return Port(
        device,
        said.get("state", "").endswith("ACTIVE"),
        None,
        float(gigabits[1]) * 1e9 / 8 if gigabits else None,
        None if received is None else received * RDMA_WORD_BYTES,
        None if sent is None else sent * RDMA_WORD_BYTES,
        sum(counted) if counted else None,
        _whole(said.get("gid")),
    )


def _engram(sections: Mapping[tuple[str, ...], str]) -> EngramDisk | None:
    if ("engram",) not in sections:
        return None
    lines = sections[("engram",)].splitlines()
    kind = _pairs(lines[0] if lines else "").get("type", "")
    device = lines[1].rpartition("/")[2] if len(lines) > 1 else ""
    for line in sections.get(("disks",), "").splitlines():
        columns = line.split()
        if len(columns) > 5 and columns[2] == device:
            return EngramDisk(device, kind in NETWORK_TYPES, int(columns[3]), int(columns[5]) * SECTOR_BYTES)
    return EngramDisk("", kind in NETWORK_TYPES, None, None)


def _pairs(text: str) -> dict[str, str]:
    return {key: value for key, equals, value in (line.partition("=") for line in text.splitlines()) if equals}


def _whole(word: str | None) -> int | None:
    return int(word) if word is not None and re.fullmatch(r"-?\d+", word) else None
