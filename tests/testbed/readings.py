"""Files that stand for what a DGX Spark shows of itself: a proc tree, RoCE devices under /sys, and what nvidia-smi prints.

All are plain files of one host, to be rewritten by a test or a person while programs read them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path

from tests.testbed.layout import NETWORKS, HostPlan, Network

MEMINFO_KB = {
    "MemTotal": 127_600_748,
    "MemFree": 96_468_992,
    "MemAvailable": 114_051_072,
    "Buffers": 40_960,
    "Cached": 18_548_844,
    "SwapCached": 0,
    "SwapTotal": 16_777_212,
    "SwapFree": 16_777_212,
    "CmaTotal": 0,
    "CmaFree": 0,
}
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
GPU_FIELDS = (
    ("index", "0"),
    ("uuid", "GPU-00000000-0000-0000-0000-{number:012d}"),
    ("name", "NVIDIA GB10"),
    ("pci.bus_id", "0000000F:01:00.0"),
    ("driver_version", "580.173.02"),
    ("temperature.gpu", "35"),
    ("power.draw [W]", "11.17 W"),
    ("clocks.current.sm [MHz]", "208 MHz"),
    ("clocks.max.sm [MHz]", "3003 MHz"),
    ("clocks.current.memory [MHz]", "[N/A]"),
    ("utilization.gpu [%]", "0 %"),
    ("memory.total [MiB]", "[N/A]"),
    ("memory.used [MiB]", "[N/A]"),
    ("memory.free [MiB]", "[N/A]"),
)
GPU_CSV = ", ".join(name for name, _ in GPU_FIELDS) + "\n" + ", ".join(value for _, value in GPU_FIELDS) + "\n"
APPS_CSV = "pid, process_name, used_gpu_memory [MiB]\n"
NVIDIA_SMI = """#!/bin/sh
# Prints this host's own readings in the form that was asked for.
for word in "$@"; do
  case "$word" in
    --query-gpu*) exec cat {gpu}/query.csv ;;
    --query-compute-apps*) exec cat {gpu}/apps.csv ;;
    -q|--query|-lgc*|--lock-gpu-clocks*) exec cat {gpu}/q.txt ;;
  esac
done
exec cat {gpu}/q.txt
"""
GIDS = 8  # entries of a table; a real one has more, all zero


def write(host: HostPlan) -> None:
    """Make every reading of one host anew."""
    write_meminfo(host.proc, MEMINFO_KB)
    replace(host.proc / "pressure/memory", PRESSURE)
    replace(host.gpu / "query.csv", GPU_CSV.format(number=host.number))
    replace(host.gpu / "apps.csv", APPS_CSV)
    replace(host.gpu / "q.txt", "GPU 0000000F:01:00.0\n    Product Name : NVIDIA GB10\n")
    smi = host.folder / "bin/nvidia-smi"
    replace(smi, NVIDIA_SMI.format(gpu=host.gpu))
    smi.chmod(0o755)
    for network in NETWORKS:
        if network.roce:
            write_roce(host.sys, network, host.address(network))


def write_meminfo(proc: Path, kilobytes: Mapping[str, int]) -> None:
    """Replace ``meminfo`` atomically, in the kernel's form."""
    replace(proc / "meminfo", "".join(f"{name + ':':<16}{kb:>8} kB\n" for name, kb in kilobytes.items()))


def write_roce(sys: Path, network: Network, address: str, *, first_index: int = 2) -> None:
    """One RDMA device: its port is up, and ``address`` has its RoCE v1 and v2 GIDs from ``first_index`` on."""
    port = sys / "class/infiniband" / network.roce / "ports/1"
    plain = {"link_layer": "Ethernet", "state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "200 Gb/sec (4X HDR)"}
    for name, value in plain.items():
        replace(port / name, value + "\n")
    mapped = ipaddress.IPv6Address(b"\0" * 10 + b"\xff\xff" + ipaddress.IPv4Address(address).packed).exploded
    local = ipaddress.IPv6Address("fe80::200:ff:fe00:1").exploded
    gids = {0: local, 1: local, first_index: mapped, first_index + 1: mapped}
    for index in range(GIDS):
        replace(port / f"gids/{index}", gids.get(index, ipaddress.IPv6Address(0).exploded) + "\n")
        for name in ("types", "ndevs"):
            (port / f"gid_attrs/{name}/{index}").unlink(missing_ok=True)
    for index in gids:
        replace(port / f"gid_attrs/types/{index}", ("RoCE v2" if index % 2 else "IB/RoCE v1") + "\n")
        replace(port / f"gid_attrs/ndevs/{index}", network.device + "\n")


def use_gpu(host: HostPlan) -> None:
    """A stranger's process, 999999, is on the GPU."""
    replace(host.gpu / "apps.csv", APPS_CSV + "999999, /usr/bin/train, 19135 MiB\n")


def replace(path: Path, content: str) -> None:
    """Write a file so that a reader sees the old or the new content, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(content)
    new.rename(path)
