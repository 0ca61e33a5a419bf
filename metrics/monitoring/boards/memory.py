"""What fills each node's memory, how fast, and what was done about it. Pure."""

from __future__ import annotations

from metrics import catalog as c
from metrics.monitoring.panels import RATE, RED_BELOW_ZERO, Board, Look, Panel, Query, Row, of, rate

TO_FLOOR = f"{of(c.HEADROOM)} / clamp_min(-{of(c.HEADROOM_SLOPE)}, 1)"

MEMORY = Board(
    "twinfold-memory",
    "twinfold / Memory",
    "What fills each node's memory, how fast, and what was done about it.",
    (
        Row(
            "What fills it",
            (
                Panel(
                    "Use of memory",
                    "Used by programs and devices, page cache, and free.",
                    "bytes",
                    (
                        Query(f"{of(c.MEMORY_TOTAL)} - {of(c.MEMORY_FREE)} - {of(c.PAGE_CACHE)}", "{{node}} used"),
                        Query(of(c.PAGE_CACHE), "{{node}} page cache"),
                        Query(of(c.MEMORY_FREE), "{{node}} free"),
                    ),
                    Look.STACKED,
                    12,
                    least=0,
                ),
                Panel(
                    "Planned",
                    "What the launch's plan says that the ranks need, beside what is in use.",
                    "bytes",
                    (
                        Query(of(c.MEMORY_PLANNED), "{{node}} planned"),
                        Query(f"{of(c.MEMORY_TOTAL)} - {of(c.MEMORY_AVAILABLE)}", "{{node}} in use"),
                    ),
                    width=6,
                    least=0,
                ),
                Panel(
                    "Swap in use",
                    "Swap that is taken.",
                    "bytes",
                    (Query(f"{of(c.SWAP_TOTAL)} - {of(c.SWAP_FREE)}", "{{node}}"),),
                    width=6,
                    least=0,
                ),
            ),
        ),
        Row(
            "Where it goes",
            (
                Panel(
                    "Slope of headroom",
                    "Below zero it shrinks.",
                    "binBps",
                    (Query(of(c.HEADROOM_SLOPE), "{{node}}"),),
                    width=8,
                    limits=RED_BELOW_ZERO,
                ),
                Panel(
                    "Time to the floor",
                    "At the slope of now; long where memory does not fall.",
                    "s",
                    (Query(TO_FLOOR, "{{node}}"),),
                    width=8,
                    least=0,
                ),
                Panel(
                    "Lowest since start",
                    "Lowest MemAvailable since the supervisor started.",
                    "bytes",
                    (Query(of(c.MEMORY_LOW_WATER), "{{node}}"),),
                    width=8,
                    least=0,
                ),
                Panel(
                    "Context left",
                    "Tokens of context that the headroom is worth.",
                    "short",
                    (Query(of(c.CONTEXT_LEFT), "{{node}}"),),
                    width=8,
                    least=0,
                ),
                Panel(
                    "Context served",
                    "The window that the gang serves.",
                    "short",
                    (Query(of(c.CONTEXT), "{{model}}"),),
                    width=8,
                    least=0,
                ),
                Panel(
                    "Kept prompt state",
                    "Share of the fullest pool in use.",
                    "percentunit",
                    (Query(of(c.KV_CACHE), "{{model}}"),),
                    width=8,
                    least=0,
                ),
            ),
        ),
        Row(
            "What was done",
            (
                Panel(
                    "Evictions",
                    "Gangs ended for memory, by the stage that acted.",
                    "short",
                    (Query(f"increase({of(c.EVICTIONS)}[{RATE}])", "{{node}} {{stage}}"),),
                    width=8,
                    least=0,
                ),
                Panel(
                    "Ladder", "Steps down the ladder of contexts.", "short", (Query(of(c.LADDER_RUNG), "rung"),), width=8, least=0
                ),
                Panel(
                    "Stalled on memory",
                    "Share of time in which tasks waited for memory.",
                    "percentunit",
                    (Query(of(c.PRESSURE), "{{node}} {{kind}}"),),
                    width=8,
                    least=0,
                ),
                Panel(
                    "Age of samples",
                    "How old each node's last memory sample is.",
                    "s",
                    (Query(of(c.MEMORY_AGE), "{{node}}"),),
                    width=8,
                    least=0,
                ),
                Panel(
                    "Guards",
                    "Each node's guard, answering or not.",
                    "short",
                    (Query(f"{of(c.GUARD_UP)} or on (job) ({of(c.READY)} * 0)", "{{node}}"),),
                    Look.STATES,
                    8,
                ),
                Panel(
                    "Time stalled",
                    "Seconds a second that tasks waited for memory.",
                    "percentunit",
                    (Query(rate(c.PRESSURE_STALLED), "{{node}} {{kind}}"),),
                    width=8,
                    least=0,
                ),
            ),
        ),
    ),
)
