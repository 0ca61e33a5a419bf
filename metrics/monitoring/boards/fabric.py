"""Clocks, ports and disks of every node. Pure."""

from __future__ import annotations

from metrics import catalog as c
from metrics.monitoring.panels import Board, Look, Panel, Query, Row, of, rate

FABRIC = Board(
    "twinfold-fabric",
    "twinfold / Fabric and hardware",
    "Clocks, ports and disks of every node. Ranks wait for each other at every layer, so the slower node sets the pace.",
    (
        Row(
            "Clocks",
            (
                Panel(
                    "SM clock",
                    "What each GPU runs at.",
                    "hertz",
                    (Query(of(c.GPU_CLOCK), "{{node}} {{device}}"),),
                    width=8,
                    least=0,
                ),
                Panel(
                    "Clock parity",
                    "Slowest over fastest clock of all nodes; 1 is equal.",
                    "percentunit",
                    (Query(f"min by (job) ({of(c.GPU_CLOCK)}) / max by (job) ({of(c.GPU_CLOCK)})", "parity"),),
                    width=8,
                    limits=((None, "red"), (0.95, "green")),
                ),
                Panel(
                    "Held down",
                    "Reasons that hold a clock down.",
                    "short",
                    (Query(of(c.GPU_THROTTLED), "{{node}} {{device}} {{reason}}"),),
                    Look.STATES,
                    8,
                ),
                Panel("Power", "Power drawn.", "watt", (Query(of(c.GPU_POWER), "{{node}} {{device}}"),), width=8, least=0),
                Panel("Temperature", "Of each chip.", "celsius", (Query(of(c.GPU_TEMPERATURE), "{{node}} {{device}}"),), width=8),
                Panel(
                    "Utilisation",
                    "Share of time in which a kernel ran.",
                    "percentunit",
                    (Query(of(c.GPU_BUSY), "{{node}} {{device}}"),),
                    width=8,
                    least=0,
                ),
            ),
        ),
        Row(
            "Rails",
            (
                Panel("Ports", "Each port, up or not.", "short", (Query(of(c.LINK_UP), "{{node}} {{device}}"),), Look.STATES, 12),
                Panel(
                    "Ports' settings",
                    "MTU of each port, and GID index of each RDMA port.",
                    "short",
                    (Query(of(c.LINK_MTU), "{{node}} {{device}} MTU"), Query(of(c.LINK_GID_INDEX), "{{node}} {{device}} GID")),
                    width=6,
                    least=0,
                ),
                Panel(
                    "Ports' rates",
                    "What each port runs at.",
                    "Bps",
                    (Query(of(c.LINK_SPEED), "{{node}} {{device}}"),),
                    width=6,
                    least=0,
                ),
                Panel(
                    "Received", "Bytes a second.", "Bps", (Query(rate(c.LINK_RECEIVED), "{{node}} {{device}}"),), width=8, least=0
                ),
                Panel("Sent", "Bytes a second.", "Bps", (Query(rate(c.LINK_SENT), "{{node}} {{device}}"),), width=8, least=0),
                Panel(
                    "Sent again",
                    "Packets a second that an RDMA port had to send again.",
                    "pps",
                    (Query(rate(c.LINK_RETRANSMITS), "{{node}} {{device}}"),),
                    width=8,
                    least=0,
                ),
            ),
        ),
        Row(
            "Disks",
            (
                Panel(
                    "Engram reads",
                    "Reads a second of the disk with the Engram tables.",
                    "iops",
                    (Query(rate(c.ENGRAM_READS), "{{node}} {{device}}"),),
                    width=6,
                    least=0,
                ),
                Panel(
                    "Engram bytes",
                    "Bytes a second read from it.",
                    "Bps",
                    (Query(rate(c.ENGRAM_READ_BYTES), "{{node}} {{device}}"),),
                    width=6,
                    least=0,
                ),
                Panel(
                    "Disk left",
                    "What the store's file system has left.",
                    "bytes",
                    (Query(of(c.DISK_FREE), "{{node}}"), Query(of(c.DISK_SIZE), "{{node}} size")),
                    width=6,
                    least=0,
                ),
                Panel(
                    "Waiting for processor and disks",
                    "Share of time in which some tasks waited.",
                    "percentunit",
                    (Query(rate(c.STALLED, kind="some"), "{{node}} {{resource}}"),),
                    width=6,
                    least=0,
                ),
                Panel(
                    "Readings",
                    "Whether each node's hardware can be read.",
                    "short",
                    (Query(of(c.HARDWARE_UP), "{{node}}"),),
                    Look.STATES,
                    12,
                ),
                Panel(
                    "Age of readings",
                    "How old each node's last reading is.",
                    "s",
                    (Query(of(c.HARDWARE_AGE), "{{node}}"),),
                    width=12,
                    least=0,
                ),
            ),
        ),
    ),
)
