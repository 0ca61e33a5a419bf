"""Whether the pair serves, how fast, and how far it is from its floors. Pure."""

from __future__ import annotations

from metrics import catalog as c
from metrics.monitoring.panels import RED_BELOW_ZERO, Board, Look, Panel, Query, Row, of, quantile, rate

GOOD_IS_ONE = ((None, "red"), (1.0, "green"))

PAIR = Board(
    "twinfold-pair",
    "twinfold / Pair",
    "Is it serving, how fast, and how far is it from its floors?",
    (
        Row(
            "Now",
            (
                Panel(
                    "State",
                    "The phase that the gang is in.",
                    "short",
                    (Query(f"{of(c.GANG_STATE)} == 1", "{{state}}"),),
                    Look.STAT,
                    4,
                ),
                Panel("Ready", "1 when a request would be answered.", "short", (Query(of(c.READY)),), Look.STAT, 3, GOOD_IS_ONE),
                Panel("Ranks up", "Ranks that run.", "short", (Query(f"sum by (job) ({of(c.RANK_UP)})"),), Look.STAT, 3),
                Panel(
                    "Tokens a second",
                    "Tokens generated, over all streams.",
                    "short",
                    (Query(of(c.DECODE_RATE)),),
                    Look.STAT,
                    4,
                    decimals=1,
                ),
                Panel(
                    "Least headroom",
                    "Of the node that has least.",
                    "bytes",
                    (Query(f"min by (job) ({of(c.HEADROOM)})"),),
                    Look.STAT,
                    5,
                    RED_BELOW_ZERO,
                ),
                Panel(
                    "Context left",
                    "Tokens of context before the floor, on the node that has least.",
                    "short",
                    (Query(f"min by (job) ({of(c.CONTEXT_LEFT)})"),),
                    Look.STAT,
                    5,
                ),
            ),
        ),
        Row(
            "Throughput",
            (
                Panel(
                    "Tokens",
                    "Generated and prompt tokens a second, counted while requests run.",
                    "short",
                    (
                        Query(rate(c.GENERATED_TOKENS), "generated"),
                        Query(rate(c.PROMPT_TOKENS), "prompt"),
                        Query(of(c.PREFILL_RATE), "prefill, now"),
                    ),
                    width=12,
                    least=0,
                ),
                Panel(
                    "Requests",
                    "Requests that hold a stream, and those that wait for one.",
                    "short",
                    (Query(of(c.REQUESTS_RUNNING), "running"), Query(of(c.REQUESTS_WAITING), "waiting")),
                    width=6,
                    least=0,
                ),
                Panel(
                    "Drafts accepted",
                    "Share of drafted tokens that verification accepted.",
                    "percentunit",
                    (Query(f"{rate(c.ACCEPTED_TOKENS)} / clamp_min({rate(c.DRAFTED_TOKENS)}, 1e-9)", "accepted"),),
                    width=6,
                    least=0,
                ),
            ),
        ),
        Row(
            "Headroom",
            (
                Panel(
                    "Headroom",
                    "MemAvailable less the soft floor; below zero the gang is stopped.",
                    "bytes",
                    (Query(of(c.HEADROOM), "{{node}}"),),
                    width=12,
                    limits=RED_BELOW_ZERO,
                ),
                Panel(
                    "Available against the floors",
                    "What each node has, and what must stay.",
                    "bytes",
                    (Query(of(c.MEMORY_AVAILABLE), "{{node}} available"), Query(of(c.MEMORY_FLOOR), "{{node}} {{stage}} floor")),
                    width=12,
                    least=0,
                ),
            ),
        ),
        Row(
            "Latency",
            (
                Panel(
                    "Time to first token",
                    "Quantiles of the window.",
                    "s",
                    tuple(Query(quantile(q, c.TIME_TO_FIRST_TOKEN), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
                    least=0,
                ),
                Panel(
                    "Time per output token",
                    "Quantiles of the window.",
                    "s",
                    tuple(Query(quantile(q, c.TIME_PER_OUTPUT_TOKEN), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
                    least=0,
                ),
                Panel(
                    "Request duration",
                    "Quantiles of the window.",
                    "s",
                    tuple(Query(quantile(q, c.REQUEST_DURATION), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
                    least=0,
                ),
            ),
        ),
        Row(
            "Life",
            (
                Panel(
                    "State over time",
                    "The phases that the gang went through.",
                    "short",
                    (Query(of(c.GANG_STATE), "{{state}}"),),
                    Look.STATES,
                    12,
                ),
                Panel(
                    "Ranks over time",
                    "Each rank, up or not.",
                    "short",
                    (Query(of(c.RANK_UP), "rank {{rank}} on {{node}}"),),
                    Look.STATES,
                    6,
                ),
                Panel(
                    "Time since progress",
                    "How long ago work was last seen done.",
                    "s",
                    (Query(f"time() - {of(c.LAST_PROGRESS)}", "progress"),),
                    width=6,
                    least=0,
                ),
            ),
        ),
    ),
)
