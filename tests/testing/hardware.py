"""A node's proc and sys trees, and an ``nvidia-smi`` that answers as a GB10's does, for tests that read hardware."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from build.units import GIB

NVIDIA_SMI = """#!/bin/sh
echo 'index, uuid, name, pci.bus_id, driver_version, temperature.gpu, power.draw [W], clocks.current.sm [MHz], \
clocks.max.sm [MHz], utilization.gpu [%], memory.total [MiB], memory.used [MiB], memory.free [MiB], \
clocks_throttle_reasons.active'
echo '0, GPU-0, NVIDIA GB10, 0000000F:01:00.0, 580.95.05, 61, 80.52 W, 2190 MHz, 3003 MHz, 97 %, [N/A], [N/A], [N/A], \
0x0000000000000004'
"""
PSI = "some avg10=1.50 avg60=1.00 avg300=0.50 total={some}\nfull avg10=0.50 avg60=0.10 avg300=0.00 total={full}\n"
MEMINFO = "MemTotal: {total} kB\nMemFree: {free} kB\nMemAvailable: {available} kB\nCached: {cached} kB\nBuffers: 1024 kB\n"


def fill(folder: Path, files: dict[str, str]) -> None:
    """Write files below a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def netdev(name: str, *, up: bool = True, mtu: int = 9000, mbit: int = 200000) -> dict[str, str]:
    """One port below a sys tree, by path."""
    where = f"class/net/{name}"
    return {
        f"{where}/operstate": "up\n" if up else "down\n",
        f"{where}/carrier": f"{int(up)}\n",
        f"{where}/mtu": f"{mtu}\n",
        f"{where}/speed": f"{mbit}\n",
        f"{where}/statistics/rx_bytes": "1000\n",
        f"{where}/statistics/tx_bytes": "2000\n",
    }


def rdma(name: str, state: str = "4: ACTIVE") -> dict[str, str]:
    """One RDMA port below a sys tree, by path."""
    where = f"class/infiniband/{name}/ports/1"
    return {
        f"{where}/state": f"{state}\n",
        f"{where}/rate": "200 Gb/sec (4X HDR)\n",
        f"{where}/counters/port_rcv_data": "250\n",
        f"{where}/counters/port_xmit_data": "500\n",
        f"{where}/hw_counters/packet_seq_err": "2\n",
        f"{where}/hw_counters/local_ack_timeout_err": "1\n",
        f"{where}/gids/0": "fe80:0000:0000:0000:4ebb:47ff:fe2a:f0c5\n",
        f"{where}/gids/1": "0000:0000:0000:0000:0000:0000:0000:0000\n",
        f"{where}/gids/2": "0000:0000:0000:0000:0000:ffff:c0a8:6401\n",
        f"{where}/gids/3": "0000:0000:0000:0000:0000:ffff:c0a8:6401\n",
        f"{where}/gid_attrs/types/0": "RoCE v2\n",
        f"{where}/gid_attrs/types/2": "IB/RoCE v1\n",
        f"{where}/gid_attrs/types/3": "RoCE v2\n",
    }


def sys_tree(folder: Path) -> Path:
    """A sys tree with two ports, one of them down, and one RDMA port."""
    fill(folder, netdev("enp1s0f1np1") | netdev("enp1s0f0np0", up=False, mtu=1500, mbit=-1) | netdev("docker0"))
    fill(folder, rdma("rocep1s0f1"))
    return folder


def proc_tree(folder: Path, available_bytes: int, device: str = "sda1") -> Path:
    """A proc tree with stalls, memory, and one disk."""
    stalls = {f"pressure/{name}": PSI.format(some=3_000_000, full=1_000_000) for name in ("cpu", "io", "memory")}
    fill(folder, stalls | {"diskstats": f"   8       0 {device} 1100 0 8800 500 0 0 0 0 0 0 0 0 0 0 0\n"})
    set_available(folder, available_bytes)
    return folder


def set_available(proc: Path, available_bytes: int, total_bytes: int = 16 * GIB) -> None:
    """Rewrite the memory figures, so that a reader sees the old file or the new one."""
    kib = available_bytes // 1024
    text = MEMINFO.format(total=total_bytes // 1024, free=kib // 2, available=kib, cached=kib // 4)
    new = proc / "meminfo.new"
    new.write_text(text)
    new.rename(proc / "meminfo")


def nvidia_smi(folder: Path, text: str = NVIDIA_SMI) -> Path:
    """A folder for PATH with an ``nvidia-smi`` in it."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(text)
    program.chmod(0o755)
    return folder


def disk_of(path: Path) -> str:
    """The disk that ``path`` lies on, as /proc/diskstats names it; a made-up one where it is none."""
    shown = subprocess.run(["df", "-P", str(path)], capture_output=True, text=True, check=True).stdout.splitlines()[1].split()[0]
    return os.path.realpath(shown).rpartition("/")[2] if shown.startswith("/") else "sda1"
