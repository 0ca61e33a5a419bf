"""A node's hardware and guard as readings of catalogued metrics. Pure; what is not known is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from build.facts import Gpu
from metrics import catalog
from metrics.catalog import Metric
from metrics.readings import Reading
from supervisor.hardware.facts import EngramDisk, Hardware, Port, throttles
from supervisor.status.view import NodeGuard, NodeHardware, View

MHZ = 1e6


def hardware(view: View) -> Iterator[Reading]:
    """Every node's hardware."""
    for node in view.hardware:
        yield from _node(node, view.now_s)


def guards(view: View) -> Iterator[Reading]:
    """Every node's guard."""
    for guard in view.guards:
        yield from _guard(guard, view.now_s)


def _guard(guard: NodeGuard, now_s: float) -> Iterator[Reading]:
    node = {"node": guard.node}
    yield Reading(catalog.GUARD_UP, float(guard.up), node)
    yield Reading(catalog.GUARD_AGE, max(0.0, now_s - guard.at_s), node)
    if guard.lease_age_s is not None:
        yield Reading(catalog.LEASE_AGE, guard.lease_age_s, node)


def _node(one: NodeHardware, now_s: float) -> Iterator[Reading]:
    node, seen = {"node": one.node}, one.hardware
    yield Reading(catalog.HARDWARE_UP, float(one.up and seen is not None and not seen.gpu_failed), node)
    if seen is None:
        return
    yield Reading(catalog.HARDWARE_AGE, max(0.0, now_s - one.at_s), node)
    yield from _known(node, {catalog.DISK_SIZE: seen.disk_size_bytes, catalog.DISK_FREE: seen.disk_free_bytes})
    for gpu in seen.gpus or ():
        yield from _gpu(gpu, node)
    for port in seen.ports:
        yield from _port(port, node)
    if seen.engram:
        yield from _engram(seen.engram, node)
    yield from _stalls(seen, node)


def _gpu(gpu: Gpu, node: Mapping[str, str]) -> Iterator[Reading]:
    named = {**node, "device": str(gpu.index if gpu.index is not None else gpu.pci_bus_id)}
    clock, highest, busy = gpu.sm_mhz, gpu.sm_max_mhz, gpu.utilization_percent
    figures = {
        catalog.GPU_CLOCK: None if clock is None else clock * MHZ,
        catalog.GPU_CLOCK_MAX: None if highest is None else highest * MHZ,
        catalog.GPU_POWER: gpu.power_w,
        catalog.GPU_TEMPERATURE: gpu.temperature_c,
        catalog.GPU_BUSY: None if busy is None else busy / 100,
        catalog.GPU_MEMORY_TOTAL: gpu.memory_total_bytes,
        catalog.GPU_MEMORY_USED: gpu.memory_used_bytes,
    }
    yield from _known(named, figures)
    for reason, holds in (throttles(gpu) or {}).items():
        yield Reading(catalog.GPU_THROTTLED, float(holds), {**named, "reason": reason})


def _port(port: Port, node: Mapping[str, str]) -> Iterator[Reading]:
    figures = {
        catalog.LINK_UP: float(port.up),
        catalog.LINK_MTU: port.mtu_bytes,
        catalog.LINK_SPEED: port.bytes_per_s,
        catalog.LINK_GID_INDEX: port.gid_index,
        catalog.LINK_RECEIVED: port.received_bytes,
        catalog.LINK_SENT: port.sent_bytes,
        catalog.LINK_RETRANSMITS: port.retransmits,
    }
    yield from _known({**node, "device": port.device}, figures)


def _engram(disk: EngramDisk, node: Mapping[str, str]) -> Iterator[Reading]:
    yield Reading(catalog.ENGRAM_ON_NETWORK, float(disk.on_network), node)
    if disk.device:
        figures = {catalog.ENGRAM_READS: disk.reads, catalog.ENGRAM_READ_BYTES: disk.read_bytes}
        yield from _known({**node, "device": disk.device}, figures)


def _stalls(seen: Hardware, node: Mapping[str, str]) -> Iterator[Reading]:
    for resource, felt in seen.stalls:
        for kind, total_us in (("some", felt.some_total_us), ("full", felt.full_total_us)):
            yield Reading(catalog.STALLED, total_us / 1e6, {**node, "resource": resource, "kind": kind})


def _known(labels: Mapping[str, str], figures: Mapping[Metric, float | None]) -> Iterator[Reading]:
    yield from (Reading(metric, float(value), labels) for metric, value in figures.items() if value is not None)
