"""What differs between nodes that should be alike, or is slow on one: ranks wait for each other at every layer. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from build.facts import Gpu
from supervisor.doctor.facts import NodeFacts
from supervisor.doctor.findings import Finding, warning

SKEW_S = 2.0
CLOCK_TOLERANCE_MHZ = 25.0
LOADED_PERCENT = 50.0  # below it a GPU lowers its clock by itself, and the clock says nothing
STUCK_SHARE = 0.5  # a loaded GPU below this share of its maximum is held down by something
CAP_COMMAND = "sudo nvidia-smi -lgc 0,{cap:g}"


def findings(nodes: Sequence[NodeFacts], cap_mhz: float) -> Iterator[Finding]:
    """Of nodes that were read, the head first. ``cap_mhz`` is the clock cap that is advised."""
    yield from _differ(nodes)
    yield from _skew(nodes)
    yield from _clocks(nodes, cap_mhz)


def _differ(nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    topics = (
        ("drivers_differ", "NVIDIA driver", {n.label: n.gpus[0].driver for n in nodes if n.gpus}, "nvidia-smi"),
        ("kernels_differ", "kernel", {n.label: n.system.kernel for n in nodes if n.system.kernel}, "uname -r"),
    )
    for reason, what, values, command in topics:
        if len(set(values.values())) > 1:
            shown = ", ".join(f"{label} {value}" for label, value in values.items())
            yield warning(
                reason,
                nodes[0].name,
                f"the {what} differs: {shown}",
                "ranks wait for each other at every layer, and may differ in speed",
                "bring all nodes to the same version",
                command,
            )


def _skew(nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    for node in nodes[1:]:
        if node.skew_s is not None and abs(node.skew_s) > SKEW_S:
            ahead = "ahead of" if node.skew_s > 0 else "behind"
            yield warning(
                "time_skew",
                node.name,
                f"{node.label}: its clock is {abs(node.skew_s):.1f} s {ahead} the head's",
                "logs of the two cannot be compared",
                "let both follow a time server",
                "sudo timedatectl set-ntp true",
            )


def _clocks(nodes: Sequence[NodeFacts], cap_mhz: float) -> Iterator[Finding]:
    """Clocks in use of loaded GPUs; an idle one's clock and the maximum say nothing of a cap."""
    loaded = [(node, *clock) for node in nodes if (clock := _loaded_clock(node)) is not None]
    command = CAP_COMMAND.format(cap=cap_mhz)
    for node, now, most in loaded:
        if most and now < STUCK_SHARE * most:
            yield warning(
                "clock_stuck_low",
                node.name,
                f"{node.label}: the loaded GPU runs at {now:g} MHz of {most:g}",
                "both ranks are as slow as this one",
                "look at its power supply and temperature; a power cycle has helped",
                "nvidia-smi -q -d CLOCK,PERFORMANCE,POWER",
            )
    figures = [now for _, now, _ in loaded]
    if len(figures) > 1 and max(figures) - min(figures) > CLOCK_TOLERANCE_MHZ:
        fast = max(loaded, key=lambda one: one[1])[0]
        shown = ", ".join(f"{node.label} {now:g} MHz" for node, now, _ in loaded)
        yield warning(
            "clock_cap_differs",
            fast.name,
            f"the loaded GPUs run at different clocks: {shown}",
            f"the cap of {fast.label} may be lost; ranks wait for each other at every layer",
            "set the same cap on every node, at every boot",
            command,
        )


def _loaded_clock(node: NodeFacts) -> tuple[float, float] | None:
    """Clock in use and maximum in MHz of a node's GPU under load; None where it is idle or not known."""
    gpu: Gpu | None = node.gpus[0] if node.gpus else None
    section = node.clocks[0] if node.clocks else None
    load = gpu.utilization_percent if gpu else None
    now = (section and section.sm_mhz) or (gpu and gpu.sm_mhz)
    most = (section and section.sm_max_mhz) or (gpu and gpu.sm_max_mhz)
    if load is None or load < LOADED_PERCENT or not now:
        return None
    return now, most or 0.0
